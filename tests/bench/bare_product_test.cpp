// The bare loop that products are held to computes the product that it is timed for.
#include "bench/bare_product.h"

#include <gtest/gtest.h>

#include "kernels/harness.h"
#include "ops/samples.h"

namespace adjoint {
namespace {

Sample product(std::vector<Type> inputs, const char* map) {
  return {.inputs = std::move(inputs), .attrs = {{"map", std::string(map)}}};
}

TEST(BareProduct, ComputesWhatTheCallComputes) {
  const std::pair<const char*, Sample> calls[] = {
      {"linear", {.inputs = {of({2, 33, 17}), of({65, 17}), of({65})}}},
      {"contract", product({of({2, 3, 7}), of({2, 3, 5})}, "bso,bsi->oi")},
      {"contract", product({of({2, 3, 7}), of({2, 3, 5}), of({7, 5})}, "bso,bsi->oi")},
      {"contract", product({of({2, 3, 2, 5}), of({2, 4, 2, 5})}, "bihd,bjhd->bhij")}};
  for (const auto& [op, sample] : calls) {
    const Scheme s = sample_scheme(op, sample, Dtype::kF32);
    const std::vector<Numbers> numbers = sample_numbers(sample, Dtype::kF32, 1);
    const std::vector<Numbers> want = run_scheme(s, numbers, true);
    for (const BareLayout layout : {BareLayout::kPlain, BareLayout::kPacked}) {
      const Plan plan = make_plan(s, {.threads = num_threads()});
      adjoint::Run run(s, plan, {.reference = false, .poison = false});
      for (size_t i = 0; i < numbers.size(); ++i) run.set_values(s.inputs[i], numbers[i]);
      const Morphism& m = s.morphisms[0];
      const OpCall call = call_of(s, m);
      const KernelCall k = kernel_call(call, s, m, plan);
      Pointers at;
      for (const Value v : m.inputs) at.in.push_back(run.data(v));
      const Value out = m.outputs[0];
      at.out.push_back(run.data(out));
      // The bare loop adds to what is there, where the call adds its third operand.
      const bool adds = std::string(op) == "contract" && numbers.size() > 2;
      run.set_values(out, adds ? numbers[2] : Numbers(want[0].size(), 7.0));
      const auto bare = bare_product(k, at, layout);
      ASSERT_TRUE(bare) << op;
      (*bare)();
      EXPECT_LT(relative_error(run.values(out), want[0]), 1e-6) << op;
    }
  }
}

}  // namespace
}  // namespace adjoint
