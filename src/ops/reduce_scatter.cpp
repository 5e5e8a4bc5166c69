// The sum of what all ranks along an axis of the mesh have, of which each keeps its piece along
// `axis`: rank r the rows from r * piece on. Where the ranks do not divide the axis, what is past
// its end is zeros, so that all ranks have pieces of one size.
#include "base/error.h"
#include "ops/collective.h"
#include "ops/samples.h"

namespace adjoint {

namespace {

std::vector<Type> infer(const OpCall& call) {
  check_collective(call);
  std::vector<Type> pieces = call.inputs;
  for (Type& t : pieces) {
    if (t.rank() == 0) fail("reduce_scatter: a single number has no axis to cut");
    Axis& axis = t.axes[piece_axis(call)];
    axis = {axis.name, shard_size(axis.size, ranks_of(call))};
  }
  return pieces;
}

}  // namespace

extern const OpDef op_reduce_scatter = {
    .name = "reduce_scatter",
    .summary = "each rank's piece of the sum over the ranks along an axis of the mesh",
    .infer = infer,
    .index_map = letters_beside_pieces,
    .flops =
        [](const OpCall& call) {
          const int64_t ranks = ranks_of(call);
          int64_t elements = 0;
          for (const Type& operand : call.inputs) elements += operand.num_elements();
          return elements / ranks * (ranks - 1);
        },
    .differentiable = false,
    .wants_dense = true,
    .linear = linear_by_parts,
    .collective = true,
    .samples =
        [] {
          std::vector<Sample> all = pieces_samples();
          all[0].attrs["each_part"] = int64_t{1};
          all.push_back(all[1]);
          all.back().inputs.push_back(of({4, 5, 1}));
          return all;
        },
    .refused =
        [] {
          Attrs past = collective_attrs("data", 1);
          past["axis"] = int64_t{2};
          return std::vector<Sample>{{.inputs = {of({3})}, .attrs = {}},
                                     {.inputs = {of({})}, .attrs = collective_attrs("data", 1)},
                                     {.inputs = {of({3, 2})}, .attrs = past}};
        },
};

}  // namespace adjoint
