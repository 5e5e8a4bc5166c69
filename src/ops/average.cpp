// A loss of one's own: (sum, count) of values over the rows whose target is not `ignore`, and the
// count by itself, which depends on targets alone.
#include <cmath>

#include "base/error.h"
#include "ops/samples.h"
#include "ops/surface.h"

namespace adjoint {

namespace {

Attrs ignore_attr(const SurfaceCall& call) {
  const double ignore = call.number("ignore");
  if (std::floor(ignore) != ignore || std::abs(ignore) > 0x7fffffff) {
    fail("average: ignore must be a whole number that a target can be, found ", ignore);
  }
  return {{"ignore", static_cast<int64_t>(ignore)}};
}

Expr counts(Expr target, const OpCall& call) {
  const Expr ignored = constant(*target.body, static_cast<double>(ignored_target(call)));
  return 1.0 - equal(target, ignored);
}

void check_targets(const OpCall& call) {
  if (call.inputs.size() != 1 || call.inputs[0].dtype != Dtype::kI32 || call.inputs[0].rank() < 1) {
    fail(call.op, ": wants i32 targets with an axis");
  }
}

std::vector<Sample> count_samples() {
  const auto at = [](std::vector<int64_t> sizes) {
    return Sample{.inputs = {of(std::move(sizes), Dtype::kI32)},
                  .attrs = {{"ignore", int64_t{2}}},
                  .fills = {Sample::Fill::kIds},
                  .ignored_id = 2};
  };
  return {at({3, 7}), at({9, 1}), at({5})};
}

std::vector<Sample> count_refusals() {
  return {{.inputs = {}}, {.inputs = {of({3})}}, {.inputs = {of({}, Dtype::kI32)}}};
}

BodyOutput total(Expr node, int rank, Dtype dtype) {
  return {.node = row_sum(node).node,
          .summed_axes = std::max(0, rank - 1),
          .row = BodyOutput::Row::kDropped,
          .dtype = dtype};
}

}  // namespace

extern const OpDef op_average = {
    .name = "average",
    .summary = "(sum, count) of values over rows whose target is not `ignore`: a loss",
    .params = {{"values"}, {"targets"}, {"ignore", Param::Kind::kNumber, "-1"}},
    .surface =
        [](SurfaceCall& call) {
          return call.builder.emit_all("average", {call.tensor("values"), call.tensor("targets")},
                                       ignore_attr(call));
        },
    .body =
        [](const OpCall& call) {
          if (call.inputs.size() != 2 || !is_float(call.inputs[0].dtype) ||
              call.inputs[1].dtype != Dtype::kI32 || call.inputs[0].rank() < 1 ||
              !same_shape(call.inputs[0], call.inputs[1])) {
            fail("average: wants floating values and i32 targets of one shape, found ",
                 call.inputs.size() > 0 ? to_string(call.inputs[0]) : "nothing", " and ",
                 call.inputs.size() > 1 ? to_string(call.inputs[1]) : "nothing");
          }
          Body body;
          const Expr value = input(body, 0), counted = counts(input(body, 1), call);
          const int rank = call.inputs[0].rank();
          const Dtype wide = call.inputs[0].dtype == Dtype::kF64 ? Dtype::kF64 : Dtype::kF32;
          body.outputs = {total(select(counted, value, 0.0), rank, wide),
                          total(counted, rank, wide)};
          return body;
        },
    .constants = {1},
    .output_names = {"count"},
    .targets = 1,
    .counted_by = "count_targets",
    .samples =
        [] {
          const auto at = [](std::vector<int64_t> sizes) {
            return Sample{.inputs = {of(sizes), of(sizes, Dtype::kI32)},
                          .attrs = {{"ignore", int64_t{-1}}},
                          .fills = {Sample::Fill::kNormal, Sample::Fill::kIds},
                          .ignored_id = -1};
          };
          return std::vector<Sample>{at({5}), at({3, 7}), at({2, 3, 4})};
        },
    .refused =
        [] {
          return std::vector<Sample>{{.inputs = {of({3})}},
                                     {.inputs = {of({3}), of({4}, Dtype::kI32)}},
                                     {.inputs = {of({3}), of({3})}}};
        },
};

extern const OpDef op_count_targets = {
    .name = "count_targets",
    .summary = "how many targets are not `ignore`",
    .body =
        [](const OpCall& call) {
          check_targets(call);
          Body body;
          body.outputs = {total(counts(input(body, 0), call), call.inputs[0].rank(), Dtype::kF32)};
          return body;
        },
    .differentiable = false,
    .targets = 0,
    .samples =
        [] {
          return std::vector<Sample>{{.inputs = {of({3, 7}, Dtype::kI32)},
                                      .attrs = {{"ignore", int64_t{2}}},
                                      .fills = {Sample::Fill::kIds},
                                      .ignored_id = 2}};
        },
    .refused =
        [] {
          return std::vector<Sample>{{.inputs = {}}, {.inputs = {of({3})}}};
        },
};

extern const OpDef op_count_sequences = {
    .name = "count_sequences",
    .summary = "how many rows have a target that is not `ignore`",
    .body =
        [](const OpCall& call) {
          check_targets(call);
          Body body;
          const Expr counted = row_max(counts(input(body, 0), call));
          body.outputs = {{.node = counted.node,
                           .summed_axes = call.inputs[0].rank() - 1,
                           .row = BodyOutput::Row::kDropped,
                           .dtype = Dtype::kF32}};
          return body;
        },
    .differentiable = false,
    .targets = 0,
    .samples = count_samples,
    .refused = count_refusals,
};

}  // namespace adjoint
