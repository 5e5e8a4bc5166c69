// The pieces of all ranks along an axis of the mesh, joined along `axis` in the order of the ranks.
// `size` is that of the whole axis: where the ranks do not divide it, the last pieces are not full,
// and what is past the end of the axis is left out. Of several operands `sizes` lists it.
#include "base/error.h"
#include "ops/collective.h"
#include "ops/samples.h"

namespace adjoint {

namespace {

std::vector<int64_t> whole_sizes(const OpCall& call) {
  const auto listed = call.attrs.find("sizes");
  if (listed == call.attrs.end()) return {call.integer("size")};
  const auto* sizes = std::get_if<std::vector<int64_t>>(&listed->second);
  if (!sizes) fail("all_gather: sizes is a list of numbers");
  return *sizes;
}

std::vector<Type> infer(const OpCall& call) {
  check_collective(call);
  const std::vector<int64_t> sizes = whole_sizes(call);
  if (sizes.size() != call.inputs.size()) {
    fail("all_gather: ", call.inputs.size(), " operands, and sizes of ", sizes.size());
  }
  std::vector<Type> joined = call.inputs;
  for (size_t i = 0; i < joined.size(); ++i) {
    if (joined[i].rank() == 0) fail("all_gather: a single number has no axis to join");
    Axis& axis = joined[i].axes[piece_axis(call)];
    if (sizes[i] < 1 || axis.size != shard_size(sizes[i], ranks_of(call))) {
      fail("all_gather: ", ranks_of(call), " pieces of ", sizes[i], " are ",
           shard_size(sizes[i], ranks_of(call)), " each, found ", axis.size);
    }
    axis = {axis.name, sizes[i]};
  }
  return joined;
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
          Attrs both = collective_attrs("data", 1);
          both["axis"] = int64_t{1};
          both["sizes"] = std::vector<int64_t>{5, 3};
          all.push_back({.inputs = {of({6, 5}), of({2, 3, 2})}, .attrs = both});
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
