// Collectives on a GPU, and the workspaces that they want: packed pieces, then the scratch of the
// exchange in which terms meet.
#include "kernels/cuda/collectives.h"

#include "comm/route.h"

namespace adjoint {

namespace {

Bytes scratch(const KernelCall& k, Collective collective, int64_t whole) {
  const auto ranks = static_cast<int>(ranks_of(k.call));
  if (ranks == 1) return {0};
  return most_scratch({.collective = collective,
                       .algorithm = Algorithm::kExchange,
                       .ranks = ranks,
                       .whole = whole,
                       .element = size_of(k.outputs[0].dtype).count});
}

// The most that one of the operands wants: they travel one behind the other.
template <class F>
Bytes most_of_operands(const KernelCall& k, const F& of_one) {
  Bytes most{0};
  for_each_operand(k, [&](size_t, const KernelCall& one) { most = std::max(most, of_one(one)); });
  return most;
}

Bytes gather_room(const KernelCall& k) { return packed_on_cuda(gathered(k)); }
Bytes sum_room(const KernelCall& k) {
  return scratch(k, Collective::kAllReduce, k.outputs[0].bytes().count);
}
Bytes scatter_room(const KernelCall& k) {
  const Pieces pieces = scattered(k);
  return packed_on_cuda(pieces) + scratch(k, Collective::kReduceScatter, pieces.packed_bytes());
}

}  // namespace

Bytes packed_on_cuda(const Pieces& pieces) {
  const bool as_they_lie = pieces.lie_as_they_travel() && pieces.are_equal();
  return {pieces.ranks == 1 || as_they_lie ? 0 : pieces.packed_bytes()};
}

extern const Kernel cuda_all_gather = {
    .op = "all_gather",
    .prepare = all_gather_cuda,
    .workspace = [](const KernelCall& k) { return most_of_operands(k, gather_room); },
};

extern const Kernel cuda_all_reduce = {
    .op = "all_reduce",
    .prepare = all_reduce_cuda,
    .workspace = [](const KernelCall& k) { return most_of_operands(k, sum_room); },
};

extern const Kernel cuda_reduce_scatter = {
    .op = "reduce_scatter",
    .prepare = reduce_scatter_cuda,
    .workspace = [](const KernelCall& k) { return most_of_operands(k, scatter_room); },
};

}  // namespace adjoint
