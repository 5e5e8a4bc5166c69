// The bytes that CUDA kernels want, said without CUDA.
#include <algorithm>
#include <cstdint>

#include "base/error.h"
#include "kernels/cuda/embed_grad_layout.h"
#include "kernels/cuda/expert_layout.h"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/library_room.h"
#include "kernels/cuda/plain_sort.h"
#include "ops/balance_loss.h"

namespace adjoint {

namespace {
Bytes g_library_room{INT64_MAX};
}

void set_library_room(Bytes most) { g_library_room = most; }
Bytes library_room(Bytes planned) { return std::min(planned, g_library_room); }

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
  return 2 * balance_shape(call.call.inputs[0]).sequences * size_of(call.outputs[0].dtype);
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

ExpertLayout expert_grad_layout(const KernelCall& call) {
  return {expert_grad_shape(call.call), Bytes{0}};
}

Bytes expert_linear_cuda_workspace(const KernelCall& call) {
  return expert_linear_layout(call).total;
}
Bytes expert_linear_grad_cuda_workspace(const KernelCall& call) {
  return expert_grad_layout(call).total;
}

}  // namespace adjoint
