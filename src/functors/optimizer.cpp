// loss and gradients  ->  the whole step: norm, clipping, one division, and an update of every
// parameter. If no target was counted or the gradient is not finite, parameters stay unchanged.
// Parameters, moments and the step count are carried: they are updated in place.
#include <map>

#include "analysis/roles.h"
#include "base/error.h"
#include "base/text.h"
#include "functors/phases.h"
#include "ops/builder.h"

namespace adjoint {

namespace {

// The op that updates parameters, by its name.
const OpDef& rule_named(const std::string& name) {
  const OpDef* op = find_op(name);
  if (op && op->update) return *op;
  const std::vector<std::string> names = optimizer_names();
  fail("optimizer '", name, "' is not known (there are ", join(names, ", "), ")",
       did_you_mean(name, names));
}

Attrs attrs_for(const UpdateRule& rule, const StepOptions& options, bool decays) {
  const std::map<std::string_view, double> numbers = {{"beta1", options.beta1},
                                                      {"beta2", options.beta2},
                                                      {"eps", options.eps},
                                                      {"momentum", options.momentum}};
  Attrs attrs = {{"decay", decays ? options.weight_decay : 0.0}};
  for (const std::string_view name : rule.numbers) {
    const auto number = numbers.find(name);
    CHECK(number != numbers.end(), "an optimizer's number is an option: " + std::string(name));
    attrs[std::string(name)] = number->second;
  }
  return attrs;
}

}  // namespace

Scheme apply_optimizer(const Scheme& with_gradients, const StepOptions& options) {
  const OpDef& op = rule_named(options.optimizer);
  const UpdateRule& rule = *op.update;
  const std::vector<ParameterKind> kinds = parameter_kinds(with_gradients);
  Scheme step = with_gradients;
  const Value sum = step.outputs[0], count = step.outputs[1];
  const std::vector<Value> gradients(step.outputs.begin() + 2, step.outputs.end());
  std::vector<Value> trained;
  for (const Value in : step.inputs) {
    if (step[in].role == Role::kParameter && !step[in].frozen) trained.push_back(in);
  }
  CHECK(trained.size() == gradients.size(), "one gradient per trained parameter, in order");

  Builder builder(step);
  const auto at = [&](std::string path, Role role, std::string facet = {}) {
    builder.at({std::move(path), std::move(facet)}, Phase::kUpdate, role);
  };
  at("loss", Role::kMetric);
  const Value loss = builder.emit("mean_loss", {sum, count});
  step.outputs = {loss, count};

  const Value scale = builder.control("scale", step[sum].type);
  std::vector<Value> squares;
  for (const Value g : gradients) {
    at(step[g].source.path, Role::kMetric, "grad.squares");
    squares.push_back(builder.emit("square_sum", {g}));
  }
  at("gradient.squares", Role::kMetric);
  const Value all_squares = builder.emit("sum_all", squares);
  at("gradient", Role::kMetric);
  const auto whole =
      builder.emit_all("gradient_factor", {count, scale, all_squares}, {{"clip", options.clip}});
  step.outputs.push_back(whole[2]);
  // With clipping all updates wait for the norm. Without it, an update depends only on its own
  // gradient, which can be freed at once.
  const bool clips = options.clip > 0;
  at("gradient.divided", Role::kMetric);
  const auto divided = clips ? whole : builder.emit_all("gradient_factor", {count, scale});
  const Value factor = divided[0], ok = divided[1];
  const auto ok_for = [&](size_t i) {
    if (clips) return ok;
    at(step[trained[i]].source.path, Role::kMetric, "grad.factor");
    return builder.emit_all("gradient_factor", {count, scale, squares[i]})[1];
  };

  const Value rate = builder.control("rate", {Dtype::kF32, {}});
  const auto state = [&](const std::string& path, std::string_view facet, Type type) {
    return step.add_input({.type = std::move(type),
                           .source = {path, std::string(op.name) + "." + std::string(facet)},
                           .role = Role::kState,
                           .init = Init{}});
  };
  std::optional<Value> steps_taken;
  if (rule.counts_steps) {
    const Value before = state("optimizer", "steps", {Dtype::kF32, {}});
    at("optimizer", Role::kState, std::string(op.name) + ".steps");
    steps_taken = builder.emit("add", {before, ok});
    step.carries.push_back({before, *steps_taken});
  }
  for (size_t i = 0; i < trained.size(); ++i) {
    const Value p = trained[i];
    const std::string path = step[p].source.path;
    const Type type = step[p].type;
    std::vector<Value> operands = {p, gradients[i]};
    for (const std::string_view s : rule.states) operands.push_back(state(path, s, type));
    const std::vector<Value> carried_in = [&] {
      std::vector<Value> in = {p};
      in.insert(in.end(), operands.begin() + 2, operands.end());
      return in;
    }();
    operands.insert(operands.end(), {rate, factor, ok_for(i)});
    if (steps_taken) operands.push_back(*steps_taken);
    at(path, Role::kState);
    const bool decays = kinds[p] != ParameterKind::kVector;
    const auto updated = builder.emit_all(op.name, operands, attrs_for(rule, options, decays));
    for (size_t k = 0; k < updated.size(); ++k) {
      step[updated[k]].source = step[carried_in[k]].source;
      step[updated[k]].role = step[carried_in[k]].role;
      step.carries.push_back({carried_in[k], updated[k]});
    }
  }
  return step;
}

}  // namespace adjoint
