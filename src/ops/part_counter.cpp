// The random counter as one part of a batch sees it: seed and step as they were, and the first
// sample moved on by index*size. Masks are then those of the whole batch, however it is split.
#include "base/error.h"
#include "ops/builder.h"
#include "ops/samples.h"

namespace adjoint {

namespace {

std::vector<Type> infer(const OpCall& call) {
  if (call.inputs.size() != 2 || call.inputs[0] != random_counter_type() ||
      call.inputs[1].rank() != 0 || call.inputs[1].dtype != Dtype::kI32) {
    fail("part_counter: wants the random counter and the i32 index of a part, found ",
         call.inputs.size(), " operands");
  }
  if (call.integer("size") < 1) {
    fail("part_counter: a part has at least 1 sample, found ", call.integer("size"));
  }
  return {call.inputs[0]};
}

}  // namespace

extern const OpDef op_part_counter = {
    .name = "part_counter",
    .summary = "the random counter of part `index` of a batch, `size` samples each",
    .infer = infer,
    .index_map =
        [](const OpCall&) {
          return IndexMap{{".", ""}, {"."}};
        },
    .flops = [](const OpCall&) { return int64_t{0}; },
    .differentiable = false,
    .wants_dense = true,
    .samples =
        [] {
          return std::vector<Sample>{{.inputs = {random_counter_type(), of({}, Dtype::kI32)},
                                      .attrs = {{"size", int64_t{3}}},
                                      .fills = {Sample::Fill::kCounter, Sample::Fill::kIds}}};
        },
    .refused =
        [] {
          return std::vector<Sample>{
              {.inputs = {of({3}), of({}, Dtype::kI32)}, .attrs = {{"size", int64_t{3}}}},
              {.inputs = {random_counter_type(), of({}, Dtype::kI32)},
               .attrs = {{"size", int64_t{0}}}}};
        },
};

}  // namespace adjoint
