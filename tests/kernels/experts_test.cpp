// The CPU's kernels of experts: pieces of all sizes, ids that are none, and caps on workspaces.
#include "kernels/backend.h"
#include "kernels/expert_calls.h"

namespace adjoint {
namespace {

TEST(Experts, RowsAreMultipliedByTheirMatrices) {
  experts_calls::expect_rows_are_multiplied(Target::kCpu);
}

TEST(Experts, RowsAreSummedByTheirExperts) { experts_calls::expect_rows_are_summed(Target::kCpu); }

// As embed reads them: an id that is none is the nearest.
TEST(Experts, IdsThatAreNoneAreTheNearest) {
  const Sample sample{.inputs = {of({4, 8}), of({3, 5, 8}), of({4, 1}, Dtype::kI32)}};
  const Scheme s = sample_scheme("expert_linear", sample, Dtype::kF32);
  std::vector<Numbers> x = sample_numbers(sample, Dtype::kF32, 1);
  x[2] = {-7, 0, 2, 99};
  const std::vector<Numbers> got = run_scheme(s, x, false);
  x[2] = {0, 0, 2, 2};
  EXPECT_EQ(got, run_scheme(s, x, false));
}

// A cap on workspaces makes pieces smaller, down to the least.
TEST(Experts, KeepToACapOnWorkspaces) {
  for (const char* op : {"expert_linear", "expert_linear_grad"}) {
    const bool forward = std::string_view(op) == "expert_linear";
    const OpCall call{.op = op,
                      .inputs = {of({4096, 256}), forward ? of({4, 256, 256}) : of({4096, 256}),
                                 of({4096, 1}, Dtype::kI32)},
                      .attrs = forward ? Attrs{} : Attrs{{"experts", int64_t{4}}}};
    const auto wanted = [&](Bytes cap) {
      KernelCall k(call, {.threads = 1, .workspace_cap = cap});
      k.outputs = infer_types(call);
      for (const Type& t : call.inputs) k.in_strides.push_back(dense_strides(t));
      k.out_strides.push_back(dense_strides(k.outputs[0]));
      return workspace_bytes(k);
    };
    const Bytes free = wanted(kNoCap), half{free.count / 2};
    EXPECT_GT(free, Bytes{2 * 1024 * 256 * 4});
    EXPECT_LE(wanted(half), half) << op;
    EXPECT_LT(wanted(Bytes{1}), half) << op;
  }
}

}  // namespace
}  // namespace adjoint
