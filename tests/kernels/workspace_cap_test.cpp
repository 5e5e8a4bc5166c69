// With a small cap no workspace exceeds it, and the numbers are those of the reference.
#include <gtest/gtest.h>

#include "kernels/cpu/attention_kernel.h"
#include "kernels/harness.h"
#include "kernels/kernel.h"

namespace adjoint {
namespace {

Type of(std::vector<int64_t> sizes, Dtype dtype = Dtype::kF32) {
  Type type{dtype, {}};
  for (const int64_t size : sizes) type.axes.push_back({"n", size});
  return type;
}

Bytes largest_workspace(const Plan& plan) {
  Bytes most;
  for (const PlannedCall& call : plan.calls) {
    if (call.workspace >= 0) most = std::max(most, plan.storages[call.workspace].size);
  }
  return most;
}

struct Capped {
  Bytes without, with;  // the largest workspace
  double error;         // of the first result, to the reference's
};
Capped capped(std::string_view op, const Sample& sample, Dtype dtype, Bytes cap) {
  const Scheme s = sample_scheme(op, sample, dtype);
  const std::vector<Numbers> numbers = sample_numbers(sample, dtype, 1);
  const Plan plan = make_plan(s, {.threads = num_threads(), .workspace_cap = cap});
  Run run(s, plan, {.reference = false, .poison = true});
  run.fill_arena(std::byte{0xff});
  for (size_t i = 0; i < numbers.size(); ++i) run.set_values(s.inputs[i], numbers[i]);
  run.step();
  const Bytes without =
      largest_workspace(make_plan(s, {.threads = num_threads(), .workspace_cap = kNoCap}));
  return {.without = without,
          .with = largest_workspace(plan),
          .error = relative_error(run.values(s.outputs[0]), run_scheme(s, numbers, true)[0])};
}

Sample product(std::vector<Type> inputs, const char* map) {
  return {.inputs = std::move(inputs), .attrs = {{"map", std::string(map)}}};
}

TEST(WorkspaceCap, Products) {
  constexpr Bytes kCap{48 << 10};
  const std::pair<const char*, Sample> calls[] = {
      {"linear", {.inputs = {of({4, 101, 70}), of({131, 70}), of({131})}}},
      {"linear", {.inputs = {of({5, 7}), of({9000, 7})}}},                           // long along n
      {"contract", product({of({3, 2000, 40}), of({3, 2000, 33})}, "bso,bsi->oi")},  // along k
      {"contract", product({of({3, 2000, 40}), of({3, 2000, 33}), of({40, 33})}, "bso,bsi->oi")},
      {"contract", product({of({4, 50, 3, 20}), of({4, 60, 3, 20})}, "bihd,bjhd->bhij")}};
  for (const auto& [op, sample] : calls) {
    for (const Dtype dtype : {Dtype::kF32, Dtype::kBF16, Dtype::kF16}) {
      SCOPED_TRACE(std::string(op) + " " + std::string(name(dtype)));
      const Capped c = capped(op, sample, dtype, kCap);
      EXPECT_LE(c.with, kCap);
      EXPECT_LT(c.error, dtype == Dtype::kF32 ? 1e-6 : dtype == Dtype::kF16 ? 1e-3 : 5e-3);
      if (dtype == Dtype::kF16) {
        EXPECT_GT(c.without, kCap) << "or this tests nothing";
      }
    }
  }
}

// From 2048 rows on the second operand may be laid out anew, within the cap only.
TEST(WorkspaceCap, LongProducts) {
  const std::pair<const char*, Sample> calls[] = {
      {"linear", {.inputs = {of({2, 1025, 70}), of({131, 70}), of({131})}}},
      {"contract", product({of({2, 1025, 131}), of({131, 70})}, "bso,oi->bsi")},
      {"contract", product({of({2050, 64}), of({64, 96}), of({2050, 96})}, "mk,kn->mn")}};
  for (const auto& [op, sample] : calls) {
    for (const Dtype dtype : {Dtype::kF32, Dtype::kBF16}) {
      for (const Bytes cap : {kNoCap, Bytes{48 << 10}}) {
        SCOPED_TRACE(std::string(op) + " " + std::string(name(dtype)));
        const Capped c = capped(op, sample, dtype, cap);
        EXPECT_LE(c.with, cap);
        EXPECT_LT(c.error, dtype == Dtype::kF32 ? 1e-6 : 5e-3);
      }
    }
  }
}

// A piece of a sum is never rounded to 16 bits on its way: with 2000 terms that would show.
TEST(WorkspaceCap, SumsInPiecesStayWide) {
  const Sample sample{.inputs = {of({1, 4000}), of({1, 4000})},
                      .attrs = {{"map", std::string("mk,nk->mn")}},
                      .fills = {Sample::Fill::kOne, Sample::Fill::kOne}};
  const Capped c = capped("contract", sample, Dtype::kBF16, {4 << 10});
  // Where bf16 is multiplied natively its sum cannot be cut, and the least there is may be more.
  EXPECT_LE(c.with, std::max(c.without, Bytes{4 << 10}));
  EXPECT_LT(c.error, 4e-3) << "4000 rounded once";
}

TEST(WorkspaceCap, AttentionTakesFewerThreads) {
  const AttentionShape shape{.samples = 2, .length = 70, .kv_heads = 3, .size = 8};
  const Bytes each = forward_bytes_per_thread(shape);
  EXPECT_EQ(attention_workers(8, each, kNoCap), 8);
  EXPECT_EQ(attention_workers(8, each, 3 * each), 3);
  EXPECT_EQ(attention_workers(8, each, {1}), 1) << "the least that it can do with";
  const Sample sample{.inputs = {of({2, 70, 72})}, .attrs = {{"heads", int64_t{3}}}};
  for (const Bytes cap : {each, kNoCap}) {
    const Capped c = capped("attention", sample, Dtype::kF32, cap);
    EXPECT_LE(c.with, cap);
    EXPECT_LT(c.error, 1e-6);
  }
}

// oneDNN counts sides in 32 bits, and divides by one of 2^32 as by 0.
TEST(WorkspaceCap, ProductsWithSidesThatOneDnnCannotCount) {
  constexpr Bytes kCap{64 << 20};
  for (const int64_t longest : {int64_t{1} << 31, int64_t{1} << 32, (int64_t{1} << 33) + 5}) {
    const std::pair<const char*, Sample> calls[] = {
        {"linear", {.inputs = {of({longest, 64}), of({96, 64}), of({96})}}},
        {"linear", {.inputs = {of({5, 64}), of({longest, 64})}}},
        {"contract", product({of({longest, 40}), of({longest, 33})}, "so,si->oi")},
        {"contract", product({of({longest, 50, 20}), of({longest, 60, 20})}, "bid,bjd->bij")}};
    for (const auto& [op, sample] : calls) {
      for (const Dtype dtype : {Dtype::kF32, Dtype::kBF16, Dtype::kF16}) {
        const Scheme s = sample_scheme(op, sample, dtype);
        const Plan plan = make_plan(s, {.threads = 2, .workspace_cap = kCap});
        EXPECT_LE(largest_workspace(plan), kCap) << op << " " << longest << " " << name(dtype);
      }
    }
  }
}

TEST(WorkspaceCap, NarrowTablesAreSummedRowsAtATime) {
  const Sample sample{.inputs = {of({300}, Dtype::kI32), of({300, 33})},
                      .attrs = {{"rows", int64_t{100}}, {"dtype", std::string("bf16")}},
                      .fills = {Sample::Fill::kIds},
                      .ids_below = 100};
  const Capped c = capped("embed_grad", sample, Dtype::kF32, {1000});
  EXPECT_EQ(c.without.count, 100 * 33 * 4);
  EXPECT_EQ(c.with.count, 7 * 33 * 4);
  EXPECT_LT(c.error, 5e-3);
}

}  // namespace
}  // namespace adjoint
