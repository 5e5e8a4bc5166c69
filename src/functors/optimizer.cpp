// loss and gradients  ->  the whole step: norm, clipping, one division, and an update of every
// parameter. If no target was counted or the gradient is not finite, parameters stay unchanged.
// A guarded step also leaves them where its loss is far above those before (ops/watch_loss.cpp).
// Parameters, moments and the step count are carried: they are updated in place. A parameter may
// have a rate, a decay, an optimizer and a group for clipping of its own (Training in scheme.h).
#include <map>

#include "analysis/roles.h"
#include "base/error.h"
#include "base/text.h"
#include "functors/norms.h"
#include "functors/optimizer_text.h"
#include "functors/phases.h"
#include "ops/builder.h"

namespace adjoint {

namespace {

constexpr int64_t kLossesKept = 100;  // by a guarded step, to compare a loss with

Attrs attrs_for(const Optimizer& optimizer, double decay) {
  Attrs attrs = {{"decay", decay}};
  for (const std::string_view name : optimizer.op->update->numbers) {
    attrs[std::string(name)] = optimizer.args.number(name);
  }
  return attrs;
}

// What a guarded step remembers of the losses before, and what it says of this one.
struct Watch {
  Value take, usual;
};
Watch watch_loss(Scheme& step, Builder& builder, Value loss, Value count, double spike) {
  const Value losses = step.add_input({.type = {Dtype::kF32, {{"losses", kLossesKept + 1}}},
                                       .source = {"loss", "watch.losses"},
                                       .role = Role::kState,
                                       .init = Init{}});
  builder.at({"loss", "watch"}, Phase::kUpdate, Role::kMetric);
  const auto told = builder.emit_all("watch_loss", {loss, count, losses}, {{"times", spike}});
  step[told[1]].source = step[losses].source;
  step[told[1]].role = Role::kState;
  step.carries.push_back({losses, told[1]});
  return {.take = told[0], .usual = told[2]};
}

}  // namespace

Scheme apply_optimizer(const Scheme& with_gradients, const StepOptions& options) {
  const Optimizer named = find_optimizer(options.optimizer, options);
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
  // Parameters that are clipped apart have sums of their own, by the name of their group.
  const auto training_of = [&](size_t i) { return step[trained[i]].attributes.training; };
  std::map<std::string, std::vector<Value>> groups;
  for (size_t i = 0; i < trained.size(); ++i) {
    const std::string group = training_of(i).clipped_as;
    if (!group.empty() && options.clip == 0) {
      fail("'", step[trained[i]].source.path, "' is clipped as ", group,
           ", and this run does not clip: its clip is 0");
    }
    groups[group].push_back(squares[i]);
  }
  std::map<std::string, Value> squares_of;
  std::vector<Value> sums = squares;
  if (groups.size() > 1) {
    sums.clear();
    for (const auto& [name, members] : groups) {
      at("gradient.squares", Role::kMetric, name.empty() ? "rest" : "of." + name);
      squares_of[name] = builder.emit("sum_all", members);
      sums.push_back(squares_of[name]);
    }
  }
  at("gradient.squares", Role::kMetric);
  const Value all_squares = builder.emit("sum_all", sums);
  std::vector<Value> judged = {count, scale, all_squares};
  std::optional<Value> usual;
  if (options.guarded) {
    const auto watch = watch_loss(step, builder, loss, count, options.spike);
    judged.push_back(watch.take);
    usual = watch.usual;
  }
  at("gradient", Role::kMetric);
  const auto whole = builder.emit_all("gradient_factor", judged, {{"clip", options.clip}});
  step.outputs.push_back(whole[2]);
  if (usual) step.outputs.insert(step.outputs.end(), {whole[1], *usual});
  // With clipping all updates wait for the norm, and so they do where a step is made as a whole or
  // not at all. Otherwise an update depends only on its own gradient, which can be freed at once.
  const bool waits = options.clip > 0 || options.guarded;
  at("gradient.divided", Role::kMetric);
  const auto divided = waits ? whole : builder.emit_all("gradient_factor", {count, scale});
  const Value ok = divided[1];
  const auto ok_for = [&](size_t i) {
    if (waits) return ok;
    at(step[trained[i]].source.path, Role::kMetric, "grad.factor");
    return builder.emit_all("gradient_factor", {count, scale, squares[i]})[1];
  };
  // Whether a step is taken at all is one decision, also where there are several norms.
  std::map<std::string, Value> factors;
  for (const auto& [name, members] : groups) factors[name] = divided[0];
  for (const auto& [name, sum_of_group] : squares_of) {
    at("gradient", Role::kMetric, name.empty() ? "rest" : "of." + name);
    factors[name] = builder.emit_all("gradient_factor", {count, scale, sum_of_group},
                                     {{"clip", options.clip}})[0];
  }

  const Value rate = builder.control("rate", {Dtype::kF32, {}});
  std::map<double, Value> rates = {{1.0, rate}};
  const auto rate_times = [&](double by) {
    const auto found = rates.find(by);
    if (found != rates.end()) return found->second;
    at("rate", Role::kMetric, "times." + shortest(by));
    return rates[by] = builder.emit("scale", {rate}, {{"by", by}, {"plus", 0.0}});
  };
  const auto state = [&](const std::string& path, const std::string& optimizer,
                         std::string_view facet, Type type) {
    return step.add_input({.type = std::move(type),
                           .source = {path, optimizer + "." + std::string(facet)},
                           .role = Role::kState,
                           .init = Init{}});
  };
  std::map<std::string, Value> steps;  // that each optimizer has taken
  const auto steps_taken = [&](const std::string& optimizer) {
    const auto found = steps.find(optimizer);
    if (found != steps.end()) return found->second;
    const Value before = state("optimizer", optimizer, "steps", {Dtype::kF32, {}});
    at("optimizer", Role::kState, optimizer + ".steps");
    const Value after = builder.emit("add", {before, ok});
    step.carries.push_back({before, after});
    return steps[optimizer] = after;
  };
  std::optional<Roles> roles;  // only texts and norms ask for them
  if (options.norms) {
    roles.emplace(with_gradients);
    std::map<std::string, std::vector<Value>> by_role;
    for (size_t i = 0; i < trained.size(); ++i) {
      by_role[role_of(*roles, trained[i])].push_back(squares[i]);
    }
    for (const auto& [role, members] : by_role) {
      at("gradient.squares", Role::kMetric, role);
      const Value sum_of_role = builder.emit("sum_all", members);
      at("gradient", Role::kMetric, role);
      const Value norm = builder.emit_all("gradient_factor", {count, scale, sum_of_role})[2];
      step[norm].source = norm_source(role);
      step.outputs.push_back(norm);
    }
  }
  for (size_t i = 0; i < trained.size(); ++i) {
    const Value p = trained[i];
    const std::string path = step[p].source.path;
    const Type type = step[p].type;
    const Training said = training_of(i);
    const ParameterIs is = [&](std::string_view word) {
      if (!roles) roles.emplace(with_gradients);
      return roles->is(p, word) || roles->is_of(p, word);
    };
    const Optimizer wanted =
        said.optimizer.empty() ? named : find_optimizer(said.optimizer, options);
    const Optimizer own = optimizer_for(wanted, type, is, options);
    const bool decays = kinds[p] != ParameterKind::kVector;
    const double decay = said.decay.value_or(decays ? options.weight_decay : 0);
    const Value own_rate = rate_times(said.rate.value_or(1));
    const Value own_factor = factors.at(said.clipped_as);
    if (own.text) {
      const Value ok_for_p = ok_for(i);
      update_by_text(builder, own,
                     {.parameter = p,
                      .gradient = gradients[i],
                      .rate = own_rate,
                      .factor = own_factor,
                      .ok = ok_for_p,
                      .decay = decay,
                      .is = is,
                      .steps = [&] { return steps_taken(own.name); }});
      continue;
    }
    const UpdateRule& rule = *own.op->update;
    std::optional<Value> count_of_steps;
    if (rule.counts_steps) count_of_steps = steps_taken(own.name);
    std::vector<Value> operands = {p, gradients[i]};
    for (const std::string_view s : rule.states) {
      operands.push_back(state(path, own.name, s, type));
    }
    const std::vector<Value> carried_in = [&] {
      std::vector<Value> in = {p};
      in.insert(in.end(), operands.begin() + 2, operands.end());
      return in;
    }();
    operands.insert(operands.end(), {own_rate, own_factor, ok_for(i)});
    if (count_of_steps) operands.push_back(*count_of_steps);
    at(path, Role::kState);
    const auto updated = builder.emit_all(own.op->name, operands, attrs_for(own, decay));
    for (size_t k = 0; k < updated.size(); ++k) {
      step[updated[k]].source = step[carried_in[k]].source;
      step[updated[k]].role = step[carried_in[k]].role;
      step.carries.push_back({carried_in[k], updated[k]});
    }
  }
  return step;
}

}  // namespace adjoint
