// The sum of what all ranks along an axis of the mesh have, on each of them. It is added up in the
// order of the ranks in float32 and rounded once, so no algorithm changes a bit. Small objects go
// this way; large ones are reduced in pieces, of which each rank adds up one (reduce_scatter), and
// then gathered.
#include "base/counts.h"
#include "base/error.h"
#include "ops/axes.h"
#include "ops/collective.h"
#include "ops/samples.h"

namespace adjoint {

namespace {

std::vector<Type> infer(const OpCall& call) {
  check_collective(call);
  return call.inputs;
}

}  // namespace

extern const OpDef op_all_reduce = {
    .name = "all_reduce",
    .summary = "the sum over the ranks along an axis of the mesh, on each of them",
    .infer = infer,
    .index_map =
        [](const OpCall& call) { return letters_of_one(call, leading_letters(call.inputs[0], 0)); },
    .flops =
        [](const OpCall& call) {
          int64_t elements = 0;
          for (const Type& operand : call.inputs) elements += operand.num_elements();
          return product_of({elements, ranks_of(call) - 1});
        },
    .differentiable = false,
    .wants_dense = true,
    .linear = linear_by_parts,
    .collective = true,
    .samples =
        [] {
          Attrs each_part = collective_attrs("data", 1);
          each_part["each_part"] = int64_t{1};
          return std::vector<Sample>{
              {.inputs = {of({})}, .attrs = collective_attrs("data", 1)},
              {.inputs = {of({3, 5})}, .attrs = collective_attrs("tensor", 1)},
              {.inputs = {of({2, 3})}, .attrs = each_part},
              {.inputs = {of({}), of({3, 5}), of({7})}, .attrs = collective_attrs("data", 1)}};
        },
    .refused =
        [] {
          Type narrow = of({3});
          narrow.dtype = Dtype::kBF16;
          return std::vector<Sample>{
              {.inputs = {}, .attrs = collective_attrs("data", 1)},
              {.inputs = {of({3}), narrow}, .attrs = collective_attrs("data", 1)},
              {.inputs = {of({3})}, .attrs = {{"ranks", int64_t{1}}}},
              {.inputs = {of({3})}, .attrs = collective_attrs("data", 0)}};
        },
};

}  // namespace adjoint
