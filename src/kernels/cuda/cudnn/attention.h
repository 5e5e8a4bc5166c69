// Attention and its gradient as graphs that cuDNN knows to be attention: it matches whole patterns
// of ops (the ones its own front end emits), never stores the scores, and has kernels of its own
// for each generation of GPUs. A rewrite that means the same may not match.
#pragma once
#include "kernels/cuda/cudnn/graph.h"
#include "kernels/rows.h"
#include "ops/attention_shape.h"

namespace adjoint {

// Where rows are, less the pointer: what a plan depends on.
struct RowSteps {
  int64_t sample = 0, row = 0;
};
struct AttentionSteps {
  RowSteps q, k, v, out, dout = {}, dq = {}, dk = {}, dv = {};
};

// A graph and its memory; 0 is none. `row_sums` [samples, heads, length] and `dq_sums` [samples,
// heads, length, size] are float32 that the graph writes before it reads.
struct AttentionGraph {
  CudnnGraph graph = {};
  CudnnGraph::Tensor q = 0, k = 0, v = 0, out = 0, lse = 0;
  CudnnGraph::Tensor dout = 0, dq = 0, dk = 0, dv = 0, row_sums = 0, dq_sums = 0;
};
AttentionGraph attention_graph(const AttentionShape& shape, const AttentionSteps& steps);
// Without `deterministic` blocks of keys add to dq_sums in the order they happen to finish. With it
// there are no dq_sums, and cuDNN keeps all scores in its workspace.
AttentionGraph attention_grad_graph(const AttentionShape& shape, const AttentionSteps& steps,
                                    bool deterministic);

}  // namespace adjoint
