// A step allocates nothing: every `new` of the process is counted, call by call. What oneDNN takes
// inside its products (by `new`, and on AVX2 by posix_memalign, too) is not ours to avoid.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <map>
#include <new>

#include "comm/threads.h"
#include "device/library_threads.h"
#include "device/parallel.h"
#include "functors/pipeline.h"
#include "functors/reference.h"
#include "models/small_models.h"
#include "run/random_steps.h"

#if !ADJOINT_NO_CLONES  // sanitizers have a `new` of their own

// GCC 12 inlines one half of the pair at -O1, and then takes it for another allocator's.
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"

static std::atomic<int64_t> g_allocations{0};
// Of ranks that are threads: what this one took, and what threads took that are no ranks.
static thread_local bool t_is_rank = false;
static thread_local int64_t t_allocations = 0;
static std::atomic<int64_t> g_beside_ranks{0};

static void count_allocation() {
  ++g_allocations;
  ++t_allocations;
  if (!t_is_rank) ++g_beside_ranks;
}

void* operator new(size_t size) {
  count_allocation();
  if (void* p = std::malloc(size ? size : 1)) return p;
  throw std::bad_alloc();
}
void* operator new(size_t size, std::align_val_t alignment) {
  count_allocation();
  const auto a = static_cast<size_t>(alignment);
  if (void* p = std::aligned_alloc(a, (size + a - 1) / a * a)) return p;
  throw std::bad_alloc();
}
void operator delete(void* p) noexcept { std::free(p); }
void operator delete(void* p, size_t) noexcept { std::free(p); }
void operator delete(void* p, std::align_val_t) noexcept { std::free(p); }
void operator delete(void* p, size_t, std::align_val_t) noexcept { std::free(p); }

namespace adjoint {
namespace {

Scheme built(const std::string& model, const std::string& stack) {
  const Scheme forward = elaborate_preset(
      model, {{"batch", 4}, {"seq", 16}, {"layers", 2}, {"hidden", 32}, {"dropout", 0.1}});
  return build_step(forward, parse_stack(stack), {}).scheme;
}

// In a run's first step, when threads are there already: nothing is left to later steps.
std::map<std::string, int64_t> allocations_by_op(const Scheme& step, bool reference) {
  const Plan plan = make_plan(step, {.threads = num_threads()});
  Run run(step, plan, {.reference = reference, .poison = false});
  RandomSteps steps(run, 1);
  steps.begin();
  steps.feed();
  parallel_for(64, 1, [](int64_t, int64_t, int) {});
  std::map<std::string, int64_t> by_op;
  for (const Morphism& m : step.morphisms) by_op[m.op] = 0;
  int64_t before = 0;
  run.after_call = [&](int at) {
    by_op.find(step.morphisms[plan.calls[at].morphism].op)->second += g_allocations - before;
    before = g_allocations;
  };
  before = g_allocations;
  run.step();
  return by_op;
}

TEST(Allocation, AStepAllocatesNothing) {
  for (const char* model : {"char", "llama-tiny"}) {
    for (const char* stack : {"", "bf16 | accumulate(2)", "checkpoint(block)", "fp16"}) {
      for (const auto& [op, count] : allocations_by_op(built(model, stack), false)) {
        if (op == "linear" || op == "contract" || op == "linear_act") continue;
        EXPECT_EQ(count, 0) << op << " in " << model << " with \"" << stack << "\"";
      }
    }
  }
}

// Its products are our own loops.
TEST(Allocation, NorDoesTheReference) {
  for (const char* model : {"char", "llama-tiny"}) {
    const Scheme step = to_reference(built(model, "bf16"));
    for (const auto& [op, count] : allocations_by_op(step, true)) {
      EXPECT_EQ(count, 0) << op << " in " << model;
    }
  }
}

// Neither the rank's thread nor the one that moves its bytes: the plan has all the scratch.
TEST(Allocation, NorDoCollectives) {
  const Scheme forward = elaborate_preset(
      "char", {{"batch", 5}, {"seq", 8}, {"layers", 2}, {"hidden", 32}, {"vocab", 37}});
  for (const char* stack : {"data_parallel(2)", "data_parallel(2) | zero(3)"}) {
    SCOPED_TRACE(stack);
    const Scheme step = build_step(forward, parse_stack(stack), {.on_mesh = true}).scheme;
    const Plan plan = make_plan(step, {.threads = num_threads()});
    std::array<std::map<std::string, int64_t>, 2> by_op;
    std::array<int64_t, 2> of_rank = {};
    run_ranks(2, [&](Communicator world) {
      const LibraryThreads as_planned(num_threads());
      Seat seat(world, step.mesh);
      adjoint::Run run(step, plan, {.reference = false, .poison = false, .seat = &seat});
      RandomSteps steps(run, 1);
      steps.begin();
      steps.feed();
      t_is_rank = true;
      auto& counts = by_op[world.rank()];
      for (const Morphism& m : step.morphisms) counts[m.op] = 0;
      int64_t before = 0;
      run.after_call = [&](int at) {
        counts.find(step.morphisms[plan.calls[at].morphism].op)->second += t_allocations - before;
        before = t_allocations;
      };
      world.barrier().wait();
      if (world.rank() == 0) g_beside_ranks = 0;
      world.barrier().wait();
      before = t_allocations;
      run.step();
      run.after_call = nullptr;
      run.step();  // and while collectives are under way
      world.barrier().wait();
      of_rank[world.rank()] = g_beside_ranks;
      world.barrier().wait();
      t_is_rank = false;
    });
    for (const auto& counts : by_op) {
      for (const auto& [op, count] : counts) {
        if (op == "linear" || op == "contract" || op == "linear_act") continue;
        EXPECT_EQ(count, 0) << op;
      }
    }
    EXPECT_EQ(of_rank[0], 0) << "threads that move bytes";
  }
}

}  // namespace
}  // namespace adjoint

#endif
