// Every option of attention in both 16-bit dtypes and in float32, at head sizes that the tensor
// cores' kernels take and at lengths around the edges of their tiles, against the float64 meaning.
// The op's samples, which GpuOp runs, are of sizes that only the plain kernels take. Skipped where
// there is no GPU.
#include "device/gpu.h"
#include "kernels/attention_cases.h"

namespace adjoint {
namespace {

const Attr kOne = int64_t{1};

std::vector<Attrs> every_option() {
  const Attrs all = {{"window", int64_t{90}}, {"scale", 0.1},     {"cap", 5.0},    {"alibi", kOne},
                     {"sinks", kOne},         {"segments", kOne}, {"dropout", 0.2}};
  return {{},
          {{"scale", 0.05}},
          {{"window", int64_t{1}}},
          {{"window", int64_t{64}}},
          {{"window", int64_t{100}}},
          {{"cap", 2.0}},
          {{"window", int64_t{70}}, {"cap", 5.0}},
          {{"alibi", kOne}},
          {{"sinks", kOne}},
          {{"segments", kOne}},
          {{"dropout", 0.2}},
          all};
}

double tolerance_of(Dtype dtype) {
  return dtype == Dtype::kF32 ? 5e-6 : dtype == Dtype::kF16 ? 2e-3 : 1e-2;
}

void check_on_gpu(const AttentionCase& c, const std::vector<Dtype>& dtypes) {
  SCOPED_TRACE(c.text() + " value_size=" + std::to_string(c.value_size));
  const Scheme wide = with_gradients(c, Dtype::kF32);
  const std::vector<Numbers> x = random_numbers(wide, static_cast<unsigned>(c.length));
  const std::vector<Numbers> want = run_scheme(wide, x, true);
  for (const Dtype dtype : dtypes) {
    SCOPED_TRACE(name(dtype));
    const Scheme s = with_gradients(c, dtype);
    const std::vector<Numbers> got = run_scheme(s, x, false, Target::kCuda);
    expect_near(got, want, tolerance_of(dtype));
    EXPECT_EQ(run_scheme(s, x, false, Target::kCuda), got) << "the same bits every time";
  }
}

class GpuAttentionOptions : public testing::TestWithParam<std::pair<int64_t, int64_t>> {
 protected:
  void SetUp() override {
    if (!has_gpu()) GTEST_SKIP() << "no GPU that this binary can use";
  }
};

TEST_P(GpuAttentionOptions, AgreeWithTheMeaning) {
  const auto [size, value_size] = GetParam();
  int number = 0;
  for (const int64_t length : {63, 201}) {
    for (const Attrs& said : every_option()) {
      for (const bool causal : {true, false}) {
        const int mixture = number++;
        check_on_gpu({.samples = 2,
                      .length = length,
                      .size = size,
                      .kv_heads = 1 + mixture % 2,
                      .group = 1 + mixture % 3,
                      .packed = size == value_size && mixture % 2 == 0,
                      .causal = causal,
                      .options = said,
                      .bias = causal && said.size() > 5 ? 40 : 0,
                      .value_size = value_size},
                     {Dtype::kBF16, Dtype::kF16, Dtype::kF32});
      }
    }
    for (const int64_t bias : {1, 64, 300}) {
      check_on_gpu({.samples = 2,
                    .length = length,
                    .size = size,
                    .kv_heads = 1,
                    .group = 2,
                    .packed = false,
                    .causal = true,
                    .options = {},
                    .bias = bias,
                    .value_size = value_size},
                   {Dtype::kBF16, Dtype::kF16, Dtype::kF32});
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, GpuAttentionOptions,
                         testing::Values(std::pair<int64_t, int64_t>{64, 64},
                                         std::pair<int64_t, int64_t>{128, 128},
                                         std::pair<int64_t, int64_t>{192, 128},
                                         std::pair<int64_t, int64_t>{256, 256},
                                         std::pair<int64_t, int64_t>{40, 24}));

}  // namespace
}  // namespace adjoint
