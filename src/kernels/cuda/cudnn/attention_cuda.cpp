#include <limits>

#include "base/error.h"
#include "kernels/cuda/cudnn/attention.h"

namespace adjoint {

namespace {

using Tensor = CudnnGraph::Tensor;

cudnnDataType_t cudnn_dtype(Dtype dtype) {
  CHECK(dtype == Dtype::kBF16 || dtype == Dtype::kF16, "cuDNN's attention is of 16-bit floats");
  return dtype == Dtype::kBF16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_HALF;
}

// The tensors of one attention, in cuDNN's order of axes: sample, head, position, size.
struct Sizes {
  cudnnDataType_t dtype;
  Dims q, k, v, out;        // rows by head
  Dims k_turned, v_turned;  // the same memory, size before position
  Dims scores, row;         // row: a number per query

  explicit Sizes(const AttentionShape& s) : dtype(cudnn_dtype(s.dtype)) {
    const int64_t heads = s.kv_heads * s.group;
    q = {s.samples, heads, s.length, s.size};
    k = {s.samples, s.kv_heads, s.length, s.size};
    v = {s.samples, s.kv_heads, s.length, s.value_size};
    out = {s.samples, heads, s.length, s.value_size};
    k_turned = {s.samples, s.kv_heads, s.size, s.length};
    v_turned = {s.samples, s.kv_heads, s.value_size, s.length};
    scores = {s.samples, heads, s.length, s.length};
    row = {s.samples, heads, s.length, 1};
  }
};

// Of heads of `size` numbers.
Dims rows_strides(int64_t size, RowSteps steps) { return {steps.sample, size, steps.row, 1}; }
Dims turned_strides(int64_t size, RowSteps steps) { return {steps.sample, size, 1, steps.row}; }

// Scores of keys after the query become -inf, then those of keys too far before it, each by ops of
// its own: that is the pattern.
Tensor masked(CudnnGraph& graph, const AttentionShape& shape, const Sizes& sizes, Tensor scores) {
  const Dims strides = dense_strides(sizes.scores);
  const auto index = [&](int64_t axis) {
    return graph.index(scores, axis, graph.hidden(CUDNN_DATA_INT32, sizes.scores, strides));
  };
  const auto keep = [&](cudnnPointwiseMode_t compare, Tensor a, Tensor b) {
    const Tensor seen =
        graph.pointwise(compare, {a, b}, graph.hidden(CUDNN_DATA_BOOLEAN, sizes.scores, strides));
    const Tensor never = graph.number(-std::numeric_limits<float>::infinity());
    scores = graph.pointwise(CUDNN_POINTWISE_BINARY_SELECT, {scores, never, seen},
                             graph.hidden(sizes.scores));
  };
  if (shape.causal) {
    const Tensor row = index(2), column = index(3);
    keep(CUDNN_POINTWISE_CMP_GE, row, column);
  }
  if (shape.window) {
    const Tensor row = index(2), column = index(3);
    const Tensor reach = graph.pointwise(CUDNN_POINTWISE_ADD,
                                         {column, graph.number(static_cast<float>(shape.window))},
                                         graph.hidden(sizes.scores));
    keep(CUDNN_POINTWISE_CMP_GT, reach, row);
  }
  return scores;
}

// q k^T, scaled and capped; `before_tanh` is what the cap's slope follows from.
struct CappedScores {
  Tensor scores = 0, cap = 0, before_tanh = 0;
};
CappedScores capped_scores(CudnnGraph& graph, const AttentionShape& shape, const Sizes& sizes,
                           Tensor q, Tensor k, Tensor scale) {
  CappedScores made;
  made.scores = graph.matmul(q, k, graph.hidden(sizes.scores));
  made.scores =
      graph.pointwise(CUDNN_POINTWISE_MUL, {made.scores, scale}, graph.hidden(sizes.scores));
  if (shape.cap == 0) return made;
  made.cap = graph.number(static_cast<float>(shape.cap));
  made.before_tanh =
      graph.pointwise(CUDNN_POINTWISE_DIV, {made.scores, made.cap}, graph.hidden(sizes.scores));
  const Tensor tanh =
      graph.pointwise(CUDNN_POINTWISE_TANH_FWD, {made.before_tanh}, graph.hidden(sizes.scores));
  made.scores = graph.pointwise(CUDNN_POINTWISE_MUL, {tanh, made.cap}, graph.hidden(sizes.scores));
  return made;
}

}  // namespace

AttentionGraph attention_graph(const AttentionShape& shape, const AttentionSteps& steps) {
  const Sizes sizes(shape);
  AttentionGraph result;
  CudnnGraph& graph = result.graph;
  result.q = graph.memory(sizes.dtype, sizes.q, rows_strides(shape.size, steps.q));
  result.k = graph.memory(sizes.dtype, sizes.k_turned, turned_strides(shape.size, steps.k));
  result.v = graph.memory(sizes.dtype, sizes.v, rows_strides(shape.value_size, steps.v));
  result.out = graph.memory(sizes.dtype, sizes.out, rows_strides(shape.value_size, steps.out));
  result.lse = graph.memory(CUDNN_DATA_FLOAT, sizes.row, dense_strides(sizes.row));
  const Tensor scale = graph.number(static_cast<float>(shape.scale()));

  Tensor scores = capped_scores(graph, shape, sizes, result.q, result.k, scale).scores;
  scores = masked(graph, shape, sizes, scores);

  const Tensor largest = graph.reduce(CUDNN_REDUCE_TENSOR_MAX, scores, graph.hidden(sizes.row));
  const Tensor below =
      graph.pointwise(CUDNN_POINTWISE_SUB, {scores, largest}, graph.hidden(sizes.scores));
  const Tensor exps = graph.pointwise(CUDNN_POINTWISE_EXP, {below}, graph.hidden(sizes.scores));
  const Tensor sum = graph.reduce(CUDNN_REDUCE_TENSOR_ADD, exps, graph.hidden(sizes.row));
  const Tensor log = graph.pointwise(CUDNN_POINTWISE_LOG, {sum}, graph.hidden(sizes.row));
  graph.pointwise(CUDNN_POINTWISE_ADD, {largest, log}, result.lse);
  // The second matmul takes its left operand in the dtype of the rows, and only so.
  const Tensor weights =
      graph.pointwise(CUDNN_POINTWISE_DIV, {exps, sum},
                      graph.hidden(sizes.dtype, sizes.scores, dense_strides(sizes.scores)));
  graph.matmul(weights, result.v, result.out);
  return result;
}

AttentionGraph attention_grad_graph(const AttentionShape& shape, const AttentionSteps& steps,
                                    bool deterministic) {
  const Sizes sizes(shape);
  AttentionGraph result;
  CudnnGraph& graph = result.graph;
  result.q = graph.memory(sizes.dtype, sizes.q, rows_strides(shape.size, steps.q));
  result.k = graph.memory(sizes.dtype, sizes.k_turned, turned_strides(shape.size, steps.k));
  result.v = graph.memory(sizes.dtype, sizes.v_turned, turned_strides(shape.value_size, steps.v));
  result.out = graph.memory(sizes.dtype, sizes.out, rows_strides(shape.value_size, steps.out));
  result.lse = graph.memory(CUDNN_DATA_FLOAT, sizes.row, dense_strides(sizes.row));
  result.dout = graph.memory(sizes.dtype, sizes.out, rows_strides(shape.value_size, steps.dout));
  result.dq = graph.memory(sizes.dtype, sizes.q, rows_strides(shape.size, steps.dq));
  result.dk = graph.memory(sizes.dtype, sizes.k, rows_strides(shape.size, steps.dk));
  result.dv = graph.memory(sizes.dtype, sizes.v, rows_strides(shape.value_size, steps.dv));
  result.row_sums = graph.memory(CUDNN_DATA_FLOAT, sizes.row, dense_strides(sizes.row));
  const Tensor scale = graph.number(static_cast<float>(shape.scale()));

  // row_sums = sum of dout * out; the factor 1 stands where the pattern has dropout's.
  Tensor sums =
      graph.pointwise(CUDNN_POINTWISE_MUL, {result.dout, result.out}, graph.hidden(sizes.out));
  sums = graph.reduce(CUDNN_REDUCE_TENSOR_ADD, sums, graph.hidden(sizes.row));
  graph.pointwise(CUDNN_POINTWISE_MUL, {sums, graph.number(1)}, result.row_sums);

  // weights = exp(scores - lse), as forward had them.
  const CappedScores capped = capped_scores(graph, shape, sizes, result.q, result.k, scale);
  Tensor scores =
      graph.pointwise(CUDNN_POINTWISE_SUB, {capped.scores, result.lse}, graph.hidden(sizes.scores));
  scores = masked(graph, shape, sizes, scores);
  const Tensor weights = graph.pointwise(CUDNN_POINTWISE_EXP, {scores}, graph.hidden(sizes.scores));

  // Keys before queries, in the dtype of the rows.
  const Dims dense = dense_strides(sizes.scores);
  const auto turned = [&](Tensor scores_like) {
    return graph.reshape(scores_like, graph.hidden(sizes.dtype, sizes.scores,
                                                   {dense[0], dense[1], dense[3], dense[2]}));
  };
  // A product for every head of queries, and their sum where several share a head of keys.
  const auto summed = [&](Tensor left, Tensor right, const Dims& all_heads, Tensor out) {
    if (shape.group == 1) return graph.matmul(left, right, out);
    const Tensor by_head =
        graph.matmul(left, right, graph.hidden(sizes.dtype, all_heads, dense_strides(all_heads)));
    return graph.reduce(CUDNN_REDUCE_TENSOR_ADD, by_head, out);
  };
  summed(turned(weights), result.dout, sizes.out, result.dv);

  // dscores = weights * (dout v^T - row_sums) * scale
  Tensor dscores = graph.matmul(result.dout, result.v, graph.hidden(sizes.scores));
  dscores =
      graph.pointwise(CUDNN_POINTWISE_SUB, {dscores, result.row_sums}, graph.hidden(sizes.scores));
  dscores = graph.pointwise(CUDNN_POINTWISE_MUL, {dscores, weights}, graph.hidden(sizes.scores));
  if (capped.cap) {
    dscores =
        graph.pointwise(CUDNN_POINTWISE_MUL, {dscores, capped.cap}, graph.hidden(sizes.scores));
    dscores = graph.tanh_slope(dscores, capped.before_tanh, graph.hidden(sizes.scores));
    dscores =
        graph.pointwise(CUDNN_POINTWISE_DIV, {dscores, capped.cap}, graph.hidden(sizes.scores));
  }
  dscores = graph.pointwise(CUDNN_POINTWISE_MUL, {dscores, scale}, graph.hidden(sizes.scores));
  summed(turned(dscores), result.q, sizes.q, result.dk);

  const Tensor keys = graph.reshape(
      result.k, graph.hidden(CUDNN_DATA_FLOAT, sizes.k, rows_strides(shape.size, steps.k)));
  if (deterministic) {
    graph.matmul(dscores, keys, result.dq);
    return result;
  }
  result.dq_sums = graph.memory(CUDNN_DATA_FLOAT, sizes.q, dense_strides(sizes.q));
  graph.matmul(dscores, keys, result.dq_sums);
  graph.pointwise(CUDNN_POINTWISE_IDENTITY, {result.dq_sums}, result.dq);
  return result;
}

}  // namespace adjoint
