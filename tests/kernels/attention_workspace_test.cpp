// Attention on CUDA within a cap on its workspace, as plans foretell it without a GPU.
#include <gtest/gtest.h>

#include "base/error_text.h"
#include "kernels/cuda/attention.h"

namespace adjoint {
namespace {

constexpr int64_t kMiB = 1 << 20;
constexpr AttentionShape kGpt2{
    .samples = 32, .length = 1024, .kv_heads = 12, .group = 1, .size = 64, .dtype = Dtype::kBF16};

TEST(AttentionWorkspace, WithoutACapACallIsOneLaunch) {
  const AttentionWay forward = attention_way(kGpt2, kNoCap);
  EXPECT_TRUE(forward.cudnn);
  const AttentionWay grad = attention_grad_way(kGpt2, false, kNoCap);
  EXPECT_TRUE(grad.cudnn);
  EXPECT_EQ(grad.part.samples, 32);
  EXPECT_EQ(grad.part.kv_heads, 12);
  // A sum per query, cuDNN's own, and the sums of dq twice.
  EXPECT_EQ(grad.workspace.count, 32 * 12 * 1024 * 4 + (64 << 10) + 2 * 32 * 12 * 1024 * 64 * 4);
  // Deterministic: as many samples as keep the scores below 256 MiB.
  const AttentionWay ordered = attention_grad_way(kGpt2, true, kNoCap);
  EXPECT_EQ(ordered.part.samples, 8);
  EXPECT_EQ(ordered.part.kv_heads, 12);
}

TEST(AttentionWorkspace, ACapMakesFewerSamplesAtOnceThenHeadsThenOurOwnKernels) {
  const Bytes row_sums{32 * 12 * 1024 * 4};
  for (const bool deterministic : {false, true}) {
    int64_t before = INT64_MAX;
    for (int64_t cap = 512 * kMiB; cap >= row_sums.count; cap = cap * 3 / 4) {
      SCOPED_TRACE(cap);
      const AttentionWay way = attention_grad_way(kGpt2, deterministic, {cap});
      EXPECT_LE(way.workspace.count, cap);
      EXPECT_EQ(kGpt2.samples % way.part.samples, 0);
      EXPECT_EQ(kGpt2.kv_heads % way.part.kv_heads, 0);
      EXPECT_TRUE(way.part.kv_heads == kGpt2.kv_heads || way.part.samples == 1);
      EXPECT_TRUE(way.cudnn || way.workspace == row_sums);
      const int64_t heads = way.cudnn ? way.part.samples * way.part.kv_heads : 0;
      EXPECT_LE(heads, before) << "less room, never more at once";
      before = heads;
    }
    EXPECT_EQ(before, 0) << "no room for one head of cuDNN's";
  }
  const AttentionWay at64 = attention_grad_way(kGpt2, false, {64 * kMiB});
  EXPECT_TRUE(at64.cudnn);
  EXPECT_EQ(at64.part.samples, 8);
  EXPECT_FALSE(attention_way(kGpt2, {1000}).cudnn);
  EXPECT_EQ(attention_way(kGpt2, {1000}).workspace.count, 0);
}

TEST(AttentionWorkspace, TheLeastIsTakenWhereNothingFits) {
  const AttentionWay way = attention_grad_way(kGpt2, false, {1000});
  EXPECT_FALSE(way.cudnn);
  EXPECT_EQ(way.workspace.count, 32 * 12 * 1024 * 4);
}

TEST(AttentionWorkspace, CudnnIsAskedForWhatItsPatternsSay) {
  const auto takes = [](auto change) {
    AttentionShape shape = kGpt2;
    change(shape);
    EXPECT_EQ(attention_way(shape, kNoCap).cudnn, attention_grad_way(shape, true, kNoCap).cudnn);
    return attention_way(shape, kNoCap).cudnn;
  };
  EXPECT_TRUE(takes([](AttentionShape& s) { s.said_scale = 0.1; }));
  EXPECT_TRUE(takes([](AttentionShape& s) { s.window = 100; }));
  EXPECT_TRUE(takes([](AttentionShape& s) { s.cap = 50; }));
  EXPECT_TRUE(takes([](AttentionShape& s) { s.size = 192, s.value_size = 128; }));
  EXPECT_FALSE(takes([](AttentionShape& s) { s.window = 100, s.causal = false; }));
  EXPECT_FALSE(takes([](AttentionShape& s) { s.alibi = true; }));
  EXPECT_FALSE(takes([](AttentionShape& s) { s.bias = 32; }));
  EXPECT_FALSE(takes([](AttentionShape& s) { s.sinks = true; }));
  EXPECT_FALSE(takes([](AttentionShape& s) { s.segments = true; }));
  EXPECT_FALSE(takes([](AttentionShape& s) { s.dropout = 0.1; }));
}

// A bias is summed by diagonals of tiles before its gradient is there.
TEST(AttentionWorkspace, ABiasWantsRoomForItsSums) {
  AttentionShape shape = kGpt2;
  shape.bias = 32;
  const int64_t diagonals = (1024 + 127) / 16;
  EXPECT_EQ(attention_grad_way(shape, false, kNoCap).workspace.count,
            32 * 12 * 1024 * 4 + 12 * diagonals * 160 * 4);
}

TEST(AttentionWorkspace, FloatsAreOurOwnKernels) {
  AttentionShape shape = kGpt2;
  shape.dtype = Dtype::kF32;
  EXPECT_FALSE(attention_way(shape, kNoCap).cudnn);
  const AttentionWay grad = attention_grad_way(shape, false, kNoCap);
  EXPECT_FALSE(grad.cudnn);
  EXPECT_EQ(grad.workspace.count, 32 * 12 * 1024 * 4);
}

}  // namespace
}  // namespace adjoint
