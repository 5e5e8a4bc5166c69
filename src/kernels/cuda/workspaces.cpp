// The bytes that CUDA kernels want, said without CUDA.
#include <algorithm>
#include <cstdint>

#include "base/error.h"
#include "kernels/cuda/cached_attention_layout.h"
#include "kernels/cuda/choose_token_layout.h"
#include "kernels/cuda/embed_grad_layout.h"
#include "kernels/cuda/expert_layout.h"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/library_room.h"
#include "kernels/cuda/plain_sort.h"
#include "kernels/cuda/thin_product.h"
#include "ops/balance_loss.h"
#include "ops/cached_attention.h"

namespace adjoint {

namespace {
Bytes g_library_room{INT64_MAX};
}

void set_library_room(Bytes most) { g_library_room = most; }
Bytes library_room(Bytes planned) { return std::min(planned, g_library_room); }

Bytes cached_attention_cuda_workspace(const KernelCall& call) {
  const CachedAttentionOperands operands(call.call);
  const AttentionShape& shape = operands.all.shape;
  return CachedAttentionLayout(shape, operands.queries).workspace(shape);
}

bool thin_on_cuda(const Product& p) {
  // A product of more rows has work for tensor cores. A matrix below this is in the cache anyway.
  constexpr int64_t kMostRows = 4, kLeastMatrix = 1 << 16;
  const bool known =
      p.dtype == Dtype::kF32 ? !p.tf32 : p.dtype == Dtype::kBF16 || p.dtype == Dtype::kF16;
  return known && p.m <= kMostRows && p.n * p.k >= kLeastMatrix && p.outer.empty() &&
         p.batch.empty() && p.a_k == 1 && p.b_k == 1 && p.b_n >= p.k && is_float(p.out_dtype) &&
         p.epilogue == Product::Epilogue::kNone;
}

bool thin_experts_on_cuda(const KernelCall& call) {
  // Choices of more tokens meet in the same matrices, which tiles then read once.
  constexpr int64_t kMostTokens = 4;
  const ExpertLinearShape s = expert_linear_shape(call.call);
  const Dtype dtype = call.call.inputs[0].dtype;
  const bool known = dtype == Dtype::kF32 || dtype == Dtype::kBF16 || dtype == Dtype::kF16;
  return known && s.tokens <= kMostTokens && !s.transposed;
}

Bytes choose_token_cuda_workspace(const KernelCall& call) {  // a key of every block of every row
  const Type& logits = call.call.inputs[0];
  return {logits.dim(0) * logits.dim(1) * kBestBlocks * 8};
}

Bytes cross_entropy_cuda_workspace(const KernelCall& call) {  // one loss a row
  return call.call.inputs[1].num_elements() * size_of(call.outputs[0].dtype);
}

EmbedGradLayout::EmbedGradLayout(const KernelCall& call)
    : places(call.call.inputs[0].num_elements()),
      rows(call.call.integer("rows")),
      width(call.call.inputs[1].dim(-1)),
      // A run longer than a piece begins in at most every second block of places, so two slots for
      // each block are enough (embed_grad.cu).
      slots(places > kPiecePlaces ? 2 * ((places + kPiecePlaces - 1) / kPiecePlaces) : 0),
      // CUB's sort keeps a few KiB of counts, and 1 KiB more for each tile of thousands of places.
      // embed_grad.cu asks it, and sorts by itself if that is not so.
      sort_size{32768 + places} {
  CHECK(plain_sort_workspace(places) <= sort_size, "there is room for a sort of our own");
  const auto take = [&](int64_t bytes) {
    const Bytes begin = total;
    total += round_up(Bytes{bytes}, Bytes{256});
    return begin;
  };
  for (Bytes& buffer : ids) buffer = take(4 * places);
  for (Bytes& buffer : sources) buffer = take(4 * places);
  starts = take(4 * (rows + 1));
  sums = take(slots * width * (call.outputs[0].dtype == Dtype::kF64 ? 8 : 4));
  sort = take(sort_size.count);
}

Bytes embed_grad_cuda_workspace(const KernelCall& call) { return EmbedGradLayout(call).total; }

Bytes balance_loss_cuda_workspace(const KernelCall& call) {  // a loss and a count a sequence
  const BalanceShape s = balance_shape(call.call.inputs[0], call.outputs[2]);
  return 2 * s.sequences * size_of(call.outputs[0].dtype);
}

ExpertLayout::ExpertLayout(const ExpertRows& rows, Bytes results_size) {
  const auto take = [&](Bytes size) {
    const Bytes begin = total;
    total += round_up(size, Bytes{256});
    return begin;
  };
  order = take(Bytes{4 * rows.count()});
  starts = take(Bytes{4 * (rows.experts + 1)});
  results = take(results_size);
}

ExpertLayout expert_linear_layout(const KernelCall& call) {
  const ExpertLinearShape s = expert_linear_shape(call.call);
  return {s, s.sum ? s.count() * s.out * size_of(call.outputs[0].dtype) : Bytes{0}};
}

namespace {
int64_t expert_grad_tiles(const ExpertGradShape& s) {  // of one matrix
  const auto tiles = [](int64_t size, int64_t tile) { return (size + tile - 1) / tile; };
  return tiles(s.p, kExpertTileRows) * tiles(s.q, kExpertTileColumns);
}
}  // namespace

// As many units, tiles by groups, as keep these multiprocessors busy for whole rounds: more groups
// only if that saves a tenth, because sums of cut experts are written and read once more.
int64_t expert_grad_groups(const KernelCall& call) {
  constexpr int64_t kProcessors = 132;  // of an H100 or H200
  constexpr int64_t kLeastSteps = 4;    // of a group
  const ExpertGradShape s = expert_grad_shape(call.call);
  const auto packed = [&](int i) { return call.call.inputs[i].axes.back().physical() % 8 == 0; };
  const int64_t tiles = expert_grad_tiles(s);
  if (size_of(call.call.inputs[0].dtype) != Bytes{2} || !packed(0) || !packed(1) || !tiles) {
    return 0;
  }
  const auto rounds = [&](int64_t groups) {
    return (groups * tiles + kProcessors - 1) / kProcessors;
  };
  const int64_t most =
      std::min(2 * kProcessors / tiles, s.count() / kExpertTileTerms / kLeastSteps);
  int64_t best = 1;
  for (int64_t groups = 2; groups <= most; ++groups) {
    if (10 * rounds(groups) * best < 9 * rounds(best) * groups) best = groups;
  }
  return best;
}

ExpertLayout expert_grad_layout(const KernelCall& call) {
  const ExpertGradShape s = expert_grad_shape(call.call);
  const int64_t groups = expert_grad_groups(call);
  const int64_t parts = groups > 1 ? 2 * groups * expert_grad_tiles(s) : 0;
  return {s, Bytes{4 * parts * kExpertTileRows * kExpertTileColumns}};
}

Bytes expert_linear_cuda_workspace(const KernelCall& call) {
  return thin_experts_on_cuda(call) ? Bytes{0} : expert_linear_layout(call).total;
}
Bytes expert_linear_grad_cuda_workspace(const KernelCall& call) {
  return expert_grad_layout(call).total;
}

}  // namespace adjoint
