// Kernels that are generated for a GPU, held to the contract of all kernels: near the reference in
// every dtype, nothing written but results, the same bits in every order of threads and where a
// result takes its operand's place.
#include <set>

#include "functors/random_chain.h"
#include "gpu_on_cpu/block.h"
#include "gpu_on_cpu/compiler.h"
#include "gpu_on_cpu/scheme_on_cpu.h"
#include "kernels/backend.h"
#include "kernels/cuda/codegen/body.h"
#include "kernels/kernel_contract.h"
#include "ops/samples.h"

namespace adjoint {
namespace {

using Checks = std::vector<KernelCheck>;
using Places = SchemeOnCpu::Places;

// Enough where the dtype is not what matters.
const std::vector<Dtype> kTwo = {Dtype::kF32, Dtype::kBF16};

class BodyOnCpu : public KernelsOnCpu {};

void append(Checks& checks, Checks more) {
  std::move(more.begin(), more.end(), std::back_inserter(checks));
}

void expect_all_hold(const Checks& checks, Places places = {}) {
  Places over = places;
  over.overwrites = true;
  std::deque<SchemeOnCpu> apart, in_place;
  for (const KernelCheck& check : checks) {
    apart.emplace_back(check.scheme, places);
    in_place.emplace_back(check.scheme, over);
  }
  finish_kernels();
  for (const KernelCheck& check : checks) {
    set_thread_order(ThreadOrder::kFirstToLast);
    const std::vector<Numbers> once = apart.front().run(check.in);
    expect_near_reference(check, once);
    set_thread_order(ThreadOrder::kLastToFirst);
    expect_same_bits(apart.front().run(check.in), once, check.what + ", the last thread first");
    expect_same_bits(in_place.front().run(check.in), once, check.what + ", in place");
    apart.pop_front();
    in_place.pop_front();
  }
}

bool is_generated(const OpDef& op) { return op.body || op.name == "gang"; }

TEST_F(BodyOnCpu, EveryOpAgreesWithTheReference) {
  Checks checks;
  for (const OpDef* op : all_ops()) {
    if (is_generated(*op)) append(checks, kernel_checks(*op));
  }
  expect_all_hold(checks);
}

// The parameter of a kernel holds about a thousand of these.
TEST_F(BodyOnCpu, AGangOfMoreCallsThanOneLaunchTakes) {
  Checks checks;
  for (const char* op : {"square_sum", "cast"}) {
    Sample sample{.inputs = {}, .attrs = {{"op", std::string(op)}, {"calls", int64_t{1100}}}};
    for (int64_t i = 0; i < 1100; ++i) {
      sample.inputs.push_back(of({i % 50 == 9 ? 20000 + i : 1 + i % 30}));
    }
    if (op == std::string("cast")) sample.attrs["dtype"] = std::string("bf16");
    append(checks, kernel_checks(op_named("gang"), {sample}, {Dtype::kF32}));
  }
  expect_all_hold(checks);
}

// What lies behind a row is not read, for it is not a number, and not written, for it is others'.
TEST_F(BodyOnCpu, PaddingChangesNothing) {
  std::vector<PaddingCheck> checks;
  for (const OpDef* op : all_ops()) {
    if (!is_generated(*op)) continue;
    for (PaddingCheck& check : padding_checks(*op, Target::kCpu)) {
      // Two kinds of room are enough here: each is a program of its own for the host's compiler.
      const bool chosen = check.what == "other room for each" || check.what == "other even widths";
      if (chosen) checks.push_back(std::move(check));
    }
  }
  std::deque<SchemeOnCpu> padded;
  for (const PaddingCheck& check : checks) padded.emplace_back(check.padded);
  finish_kernels();
  for (const PaddingCheck& check : checks) {
    SCOPED_TRACE(check.what + "\n" + print(check.padded));
    expect_near_reference(check.plain, padded.front().run(check.plain.in));
    padded.pop_front();
  }
}

Sample map_of(const char* body, std::vector<Type> inputs) {
  // Sums of what is positive do not cancel.
  std::vector<Sample::Fill> fills(inputs.size(), Sample::Fill::kPositive);
  return {.inputs = std::move(inputs), .attrs = {{"body", std::string(body)}}, .fills = fills};
}

// Of a call of one body.
CudaCut cut_of(const Scheme& scheme) {
  const OpCall call = call_of(scheme, scheme.morphisms[0]);
  const auto dense = [&](Value v) { return dense_strides(scheme[v].type); };
  return cut_for_cuda(kernel_call(call, scheme, scheme.morphisms[0], {}, dense), false);
}

// A group of threads shares a row: of every size that there is, with chunks to spare and without,
// and the largest one going over a row several times.
TEST_F(BodyOnCpu, RowsOfEveryLength) {
  std::vector<Sample> rows, norms;
  for (const int64_t length :
       {5, 8, 16, 24, 57, 121, 250, 256, 1000, 1024, 2040, 4000, 7000, 9000, 20000, 40000}) {
    const int64_t count = length < 1000 ? 37 : 3;
    rows.push_back({.inputs = {of({count, length})}});
    const bool fits = length < 40000;  // into registers, for the sums of its gradient
    if (fits) norms.push_back({.inputs = {of({count, length}), of({length}), of({length})}});
  }
  Checks checks = kernel_checks(op_named("softmax"), rows, kTwo);
  append(checks, kernel_checks(op_named("layer_norm"), norms, kTwo));
  std::set<int64_t> groups;
  bool loops = false;
  for (const KernelCheck& check : checks) {
    const CudaCut cut = cut_of(check.scheme);
    groups.insert(cut.group);
    loops = loops || cut.loops;
  }
  EXPECT_EQ(groups, std::set<int64_t>({1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024}));
  EXPECT_TRUE(loops);
  expect_all_hold(checks);
}

// Where a call says that its rows are few, more threads share each.
TEST_F(BodyOnCpu, FewRowsAreSharedByMoreThreads) {
  const auto group = [](int64_t length, bool few) {
    Sample row{.inputs = {of({2, length})}};
    if (few) row.attrs["few_rows"] = int64_t{1};
    return cut_of(kernel_checks(op_named("softmax"), {row}, {Dtype::kF32})[0].scheme).group;
  };
  EXPECT_EQ(group(2048, false), 64);
  EXPECT_EQ(group(2048, true), 256);
  EXPECT_EQ(group(1000, true), 128) << "a chunk a thread";
  EXPECT_EQ(group(16384, true), 512) << "as many as registers want";
  EXPECT_EQ(group(200, true), group(200, false)) << "a warp or less stays";
  std::vector<Sample> norms;
  for (const int64_t length : {250, 264, 1000, 2048, 4000, 9000, 40000}) {
    norms.push_back({.inputs = {of({2, length}), of({length})},
                     .attrs = {{"eps", 1e-5}, {"few_rows", int64_t{1}}}});
  }
  Checks checks = kernel_checks(op_named("rms_norm"), norms, kTwo);
  std::erase_if(checks, [](const KernelCheck& check) { return check.is_gradient; });
  expect_all_hold(checks);
}

// Sums over rows: fewer than are read at a time, some left over, of one block and of many. What may
// grow beyond float16 is left in float32.
std::vector<Sample> sums() {
  std::vector<Sample> samples;
  for (const std::vector<int64_t>& sizes : std::vector<std::vector<int64_t>>{{1, 1, 8},
                                                                             {2, 3, 1},
                                                                             {3, 2, 40},
                                                                             {4, 1, 264},
                                                                             {5, 3, 3},
                                                                             {37, 1, 24},
                                                                             {12, 2, 768},
                                                                             {130, 1, 40},
                                                                             {513, 1, 64}}) {
    const Type type = of(sizes);
    samples.push_back(map_of("t0 = mul(sigmoid(x0), x1); t0, t0/1, x1/1/f32", {type, type}));
    samples.push_back(
        map_of("t0 = rowsum(mul(x0, x0)); div(x0, sqrt(t0)), x0/1, t0/1/one/f32", {type}));
    samples.push_back(map_of("x0/1, x0/2, rowsum(x0)/2/dropped/f32", {type}));
  }
  return samples;
}

std::vector<Sample> rotations() {
  std::vector<Sample> samples;
  // The other half of a row may be another thread's, of another warp even.
  for (const int64_t length : {2, 6, 16, 40, 128, 2048, 3000}) {
    const Type type = of({5, length});
    samples.push_back(map_of("add(mul(x0, x1), mul(rotate(x0), sub(1, x1)))", {type, type}));
    samples.push_back(map_of("rotate(mul(x0, x1)), rotate(x0)/1", {type, type}));
  }
  return samples;
}

TEST_F(BodyOnCpu, SumsOverRowsAndRotations) {
  Checks checks = kernel_checks(op_named("map"), sums(), all_floats());
  append(checks, kernel_checks(op_named("map"), rotations(), all_floats()));
  std::erase_if(checks, [](const KernelCheck& check) { return check.is_gradient; });
  expect_all_hold(checks);
}

// Neither where sixteen bytes begin nor row by row.
TEST_F(BodyOnCpu, WhereverOperandsAre) {
  std::vector<Sample> samples = sums();
  for (Sample& rotation : rotations()) samples.push_back(std::move(rotation));
  Checks checks = kernel_checks(op_named("map"), samples, kTwo);
  append(checks, kernel_checks(op_named("layer_norm"),
                               {{.inputs = {of({7, 24}), of({24}), of({24})}},
                                {.inputs = {of({3, 2, 768}), of({768}), of({768})}}},
                               kTwo));
  std::erase_if(checks, [](const KernelCheck& check) { return check.is_gradient; });
  expect_all_hold(checks, {.shift = 8});
  expect_all_hold(checks, {.transposed = true});
}

}  // namespace
}  // namespace adjoint
