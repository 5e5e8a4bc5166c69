// An axis of size 1 taken away, and put in. Views.
#include "base/error.h"
#include "ops/axes.h"
#include "ops/builder.h"
#include "ops/samples.h"

namespace adjoint {

namespace {

const Type& operand(const OpCall& call) {
  if (call.inputs.size() != 1) fail(call.op, ": wants one object, found ", call.inputs.size());
  return call.inputs[0];
}

int new_axis(const OpCall& call) {
  const int64_t axis = call.integer("axis");
  if (axis < 0 || axis > operand(call).rank()) {
    fail("unsqueeze: axis ", axis, " is not from 0 to ", operand(call).rank());
  }
  return static_cast<int>(axis);
}

int old_axis(const OpCall& call) {
  const int axis = axis_attr({call.op, {operand(call)}, call.attrs}, -1);
  if (operand(call).dim(axis) != 1) {
    fail("squeeze: axis ", axis, " must have size 1, found ", shape_string(operand(call)));
  }
  return axis;
}

std::vector<Sample> at(const std::vector<std::pair<std::vector<int64_t>, int64_t>>& calls) {
  std::vector<Sample> samples;
  for (const auto& [sizes, axis] : calls) {
    samples.push_back({.inputs = {of(sizes)}, .attrs = {{"axis", axis}}});
  }
  return samples;
}

}  // namespace

extern const OpDef op_squeeze = {
    .name = "squeeze",
    .summary = "without an axis of size 1",
    .params = {{"x"}, {"axis", Param::Kind::kAxis}},
    .infer =
        [](const OpCall& call) {
          Type t = operand(call);
          t.axes.erase(t.axes.begin() + old_axis(call));
          return std::vector<Type>{t};
        },
    .index_map =
        [](const OpCall& call) {
          const std::string letters = letters_but(operand(call), old_axis(call));
          std::string rest = letters;
          rest.erase(old_axis(call), 1);
          return IndexMap{{letters}, {rest}};
        },
    .flops = [](const OpCall&) { return int64_t{0}; },
    .grad =
        [](GradCall& g) {
          g.input_grads[0] =
              g.builder.emit("unsqueeze", {g.dout()}, {{"axis", int64_t{old_axis(g.call)}}});
        },
    .view = [](const OpCall& call, const Strides& in, int64_t&) -> std::optional<Strides> {
      Strides out = in;
      out.erase(out.begin() + old_axis(call));
      return out;
    },
    .samples =
        [] {
          return at({{{3, 1}, 1}, {{2, 1, 4}, 1}, {{1, 5}, 0}, {{1}, 0}});
        },
    .refused =
        [] {
          return at({{{3, 2}, 1}, {{3, 1}, 2}, {{}, 0}});
        },
};

extern const OpDef op_unsqueeze = {
    .name = "unsqueeze",
    .summary = "with an axis of size 1 put in",
    .params = {{"x"}, {"axis", Param::Kind::kSize}},
    .infer =
        [](const OpCall& call) {
          Type t = operand(call);
          t.axes.insert(t.axes.begin() + new_axis(call), Axis{"one", 1});
          return std::vector<Type>{t};
        },
    .index_map =
        [](const OpCall& call) {
          const std::string letters = leading_letters(operand(call), 0);
          std::string more = letters;
          more.insert(new_axis(call), 1, '.');
          return IndexMap{{letters}, {more}};
        },
    .flops = [](const OpCall&) { return int64_t{0}; },
    .grad =
        [](GradCall& g) {
          g.input_grads[0] =
              g.builder.emit("squeeze", {g.dout()}, {{"axis", int64_t{new_axis(g.call)}}});
        },
    .view = [](const OpCall& call, const Strides& in, int64_t&) -> std::optional<Strides> {
      Strides out = in;
      const int axis = new_axis(call);
      // What lies behind it, so that dense stays dense.
      const bool last = axis == static_cast<int>(in.size());
      out.insert(out.begin() + axis, last ? 1 : in[axis] * operand(call).axes[axis].physical());
      return out;
    },
    .samples =
        [] {
          return at({{{3}, 1}, {{2, 4}, 1}, {{5}, 0}, {{}, 0}});
        },
    .refused =
        [] {
          return at({{{3, 2}, 3}, {{3, 1}, -1}});
        },
};

}  // namespace adjoint
