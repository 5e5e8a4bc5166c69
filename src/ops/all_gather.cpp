// The pieces of all ranks along an axis of the mesh, joined along `axis` in the order of the ranks.
// `size` is that of the whole axis: where the ranks do not divide it, the last pieces are not full,
// and what is past the end of the axis is left out.
#include "base/error.h"
#include "ops/collective.h"
#include "ops/samples.h"

namespace adjoint {

namespace {

std::vector<Type> infer(const OpCall& call) {
  check_collective(call);
  Type t = call.inputs[0];
  if (t.rank() == 0) fail("all_gather: a single number has no axis to join");
  Axis& axis = t.axes[piece_axis(call)];
  const int64_t size = call.integer("size");
  if (size < 1 || axis.size != shard_size(size, ranks_of(call))) {
    fail("all_gather: ", ranks_of(call), " pieces of ", size, " are ",
         shard_size(size, ranks_of(call)), " each, found ", axis.size);
  }
  axis = {axis.name, size};
  return {t};
}

}  // namespace

extern const OpDef op_all_gather = {
    .name = "all_gather",
    .summary = "the pieces of all ranks along an axis of the mesh, joined",
    .infer = infer,
    .index_map = letters_beside_pieces,
    .flops = [](const OpCall&) { return int64_t{0}; },
    .differentiable = false,
    .wants_dense = true,
    .collective = true,
    .samples =
        [] {
          std::vector<Sample> all = pieces_samples();
          for (Sample& s : all) {
            const auto axis = static_cast<int>(std::get<int64_t>(s.attrs.at("axis")));
            s.attrs["size"] = s.inputs[0].dim(axis);
          }
          all.push_back(all[0]);
          all.back().inputs[0].dtype = Dtype::kI32;
          all.back().fills = {Sample::Fill::kIds};
          return all;
        },
    .refused =
        [] {
          Attrs wrong = collective_attrs("data", 2);
          wrong["size"] = int64_t{7};
          return std::vector<Sample>{{.inputs = {of({3})}, .attrs = wrong},
                                     {.inputs = {of({3})}, .attrs = collective_attrs("data", 1)},
                                     {.inputs = {of({})}, .attrs = collective_attrs("data", 1)}};
        },
};

}  // namespace adjoint
