// The CUDA reading of bodies, as far as a machine without a GPU can tell: that NVRTC takes it, and
// that how it is shared out depends on what it may.
#include <gtest/gtest.h>

#include "body/facts.h"
#include "device/gpu.h"
#include "kernels/backend.h"
#include "kernels/body_readings.h"
#include "kernels/cuda/codegen/body.h"
#include "kernels/cuda/codegen/kernel_cache.h"
#include "kernels/harness.h"
#include "ops/samples.h"

namespace adjoint {
namespace {

struct Case {
  OpCall call;
  KernelCall kernel;
  explicit Case(const OpDef& op, const Sample& sample, Dtype dtype)
      : call{.op = op.name, .inputs = sample.inputs, .attrs = sample.attrs},
        kernel(call, {.target = Target::kCuda}) {
    for (Type& t : call.inputs) {
      if (t.dtype == Dtype::kF32) t.dtype = dtype;
      kernel.in_strides.push_back(dense_strides(t));
    }
    kernel.outputs = infer_types(call);
    for (const Type& t : kernel.outputs) kernel.out_strides.push_back(dense_strides(t));
  }
  std::string text() const {
    const CudaCut cut = cut_for_cuda(kernel, false);
    const auto chunks = [&](const std::vector<Strides>& strides, const std::vector<Type>& types) {
      const std::vector<const void*> aligned(types.size(), nullptr);
      return whole_chunks(cut, strides, types, aligned);
    };
    return cuda_text(cut, chunks(cut.space.in, cut.in_types), chunks(cut.space.out, cut.out_types));
  }
};

TEST(CudaBody, EveryBodyCompiles) {
  if (!has_cuda()) GTEST_SKIP() << "built without CUDA";
  for (const OpDef* op : all_ops()) {
    if (!op->body || !op->samples) continue;
    const Sample sample = op->samples().front();
    for (const char* architecture : {"sm_80", "sm_90"}) {
      EXPECT_NO_THROW(compile_text(Case(*op, sample, Dtype::kBF16).text(), architecture))
          << op->name;
    }
  }
}

CudaGang gang_of(const char* op, const Sample& sample, Dtype dtype) {
  const Case one(op_named(op), sample, dtype);
  CudaGang gang{.body = body_of(one.call)};
  for (const Type& t : one.call.inputs) gang.own.push_back(t.dtype);
  for (const Type& t : one.kernel.outputs) gang.outputs.push_back(t.dtype);
  gang.sums = adds_elements(gang.body);
  return gang;
}

TEST(CudaBody, GangsCompile) {
  if (!has_cuda()) GTEST_SKIP() << "built without CUDA";
  Body two;
  const Expr x = input(two, 0), y = input(two, 1);
  two.outputs = {{.node = row_sum(x * y).node, .row = BodyOutput::Row::kDropped},
                 {.node = row_sum(exp(x)).node, .row = BodyOutput::Row::kDropped}};
  std::vector<CudaGang> gangs = {
      gang_of("square_sum", {.inputs = {of({7})}}, Dtype::kF32),
      gang_of("square_sum", {.inputs = {of({7})}}, Dtype::kBF16),
      gang_of("map", {.inputs = {of({7}), of({7})}, .attrs = {{"body", print(two)}}}, Dtype::kF16),
      gang_of("cast", {.inputs = {of({7})}, .attrs = {{"dtype", std::string("bf16")}}},
              Dtype::kF32)};
  for (CudaGang& gang : gangs) {
    EXPECT_EQ(gang.sums, gang.outputs[0] != Dtype::kBF16);
    for (const bool chunks : {true, false}) {
      gang.members = chunks ? 148 : 3;
      gang.chunks = chunks;
      for (const char* architecture : {"sm_80", "sm_90"}) {
        EXPECT_NO_THROW(compile_text(cuda_gang_text(gang), architecture)) << cuda_gang_text(gang);
      }
    }
  }
}

// A call in float64, or with room inside its rows, runs alone, and the workspace is for both.
TEST(CudaBody, WorkspaceOfAGangHoldsItsBlocksSums) {
  Sample sample{.inputs = {of({5, 9001}), of({7})},
                .attrs = {{"op", std::string("square_sum")}, {"calls", int64_t{2}}}};
  const OpDef& gang = op_named("gang");
  EXPECT_EQ(workspace_bytes(Case(gang, sample, Dtype::kF32).kernel).count, 256) << "3 + 1 blocks";
  const Sample one{.inputs = {of({4096, 9001})}};
  const Bytes alone = workspace_bytes(Case(op_named("square_sum"), one, Dtype::kF64).kernel);
  sample.inputs[0] = one.inputs[0];
  EXPECT_EQ(workspace_bytes(Case(gang, sample, Dtype::kF64).kernel), alone);
  sample.inputs[0].axes[1].padded = 9008;
  EXPECT_GE(workspace_bytes(Case(gang, sample, Dtype::kF32).kernel).count, alone.count / 2);
}

// A long row, summed over many rows, and the same row alone: both have the same order of sums.
TEST(CudaBody, HowRowsAreSharedOutFollowsFromTheShapeAlone) {
  Body one, joined;
  const Expr x = input(one, 0);
  one.outputs = {{.node = row_sum(x).node, .row = BodyOutput::Row::kOne}};
  const Expr y = input(joined, 0);
  joined.outputs = {{.node = (row_sum(y) * y).node},
                    {.node = y.node, .summed_axes = 1},
                    {.node = row_sum(y).node, .row = BodyOutput::Row::kOne}};
  const OpDef& map = op_named("map");
  const auto cut = [&](const Body& body) {
    return cut_for_cuda(Case(map,
                             {.inputs = {{Dtype::kF32, {{"r", 64}, {"c", 3072}}}},
                              .attrs = {{"body", print(body)}}},
                             Dtype::kF32)
                            .kernel,
                        false);
  };
  EXPECT_EQ(cut(one).group, cut(joined).group);
  EXPECT_EQ(cut(one).chunks, cut(joined).chunks);
}

// Sums over rows, alone and beside a result that needs whole rows.
std::vector<Body> column_sums() {
  Body alone, joined;
  const Expr x = input(alone, 0), y = input(joined, 0);
  alone.outputs = {{.node = x.node, .summed_axes = 1}};
  joined.outputs = {{.node = (y - row_sum(y)).node}, {.node = y.node, .summed_axes = 1}};
  return {alone, joined};
}

TEST(CudaBody, BlocksOfASumTakeEveryRowOnceWhoeverElseReadsIt) {
  for (const int64_t rows : {1, 2, 5, 37, 1023, 32768}) {
    for (const int64_t columns : {1, 3, 40, 768, 3072}) {
      std::vector<int64_t> blocks;
      for (const Body& body : column_sums()) {
        const Case sum(op_named("map"),
                       {.inputs = {of({rows, columns})}, .attrs = {{"body", print(body)}}},
                       Dtype::kBF16);
        const CudaCut cut = cut_for_cuda(sum.kernel, false);
        EXPECT_GE(cut.blocks * cut.block_rows, rows);
        EXPECT_LT((cut.blocks - 1) * cut.block_rows, rows) << "the last one has a row, too";
        EXPECT_EQ(cut.block_rows % 4, 0) << "rows are read four at a time";
        blocks.push_back(cut.blocks);
      }
      EXPECT_EQ(blocks[0], blocks[1]);
    }
  }
}

TEST(CudaBody, SumsCompileWhereRowsAreLeftOver) {
  if (!has_cuda()) GTEST_SKIP() << "built without CUDA";
  for (const Body& body : column_sums()) {
    for (const int64_t rows : {37, 64}) {
      for (const Dtype dtype : {Dtype::kBF16, Dtype::kF16, Dtype::kF64}) {
        const Case sum(op_named("map"),
                       {.inputs = {of({rows, 40})}, .attrs = {{"body", print(body)}}}, dtype);
        EXPECT_NO_THROW(compile_text(sum.text(), "sm_90")) << sum.text();
      }
    }
  }
}

TEST(CudaBody, WorkspaceHoldsEveryBlocksSums) {
  Body body;
  body.outputs = {{.node = input(body, 0).node, .summed_axes = 1}};
  const Case sum(
      op_named("map"),
      {.inputs = {{Dtype::kF32, {{"r", 32768}, {"c", 768}}}}, .attrs = {{"body", print(body)}}},
      Dtype::kF32);
  const CudaCut cut = cut_for_cuda(sum.kernel, false);
  EXPECT_GT(cut.blocks, 1);
  EXPECT_GE(workspace_bytes(sum.kernel).count, cut.blocks * 768 * 4);
}

}  // namespace
}  // namespace adjoint
