// Functors for tests, most of them wrong on purpose, and small models to apply them to.
#pragma once
#include <gtest/gtest.h>

#include "laws/verify.h"
#include "ops/builder.h"

namespace adjoint {

using Apply = std::function<Scheme(const Scheme&, Application&)>;

inline Functor planted(std::string name, Law law, FunctorPhase phase, Apply apply) {
  return {.name = std::move(name),
          .summary = "planted by a test",
          .law = law,
          .rules = {{phase, std::move(apply)}}};
}

// A stack from text, with the given functors inserted before the defaults.
inline Stack with_planted(std::vector<Functor> functors, std::string_view rest = "") {
  Stack stack = parse_stack(rest);
  for (Functor& f : functors) {
    const Arguments none(f.name, f.params, Term{});
    stack.functors.insert(stack.functors.begin(), {std::move(f), none, false});
  }
  return stack;
}

inline Subject small_subject(const std::string& preset, nlohmann::json settings,
                             std::vector<uint64_t> seeds = {1, 2, 3}) {
  settings["dropout"] = 0.1;
  const BoundModel model(find_model(preset),
                         {.batch = 6, .context = 8, .settings = std::move(settings)});
  StepOptions options;
  options.eps = 1e-2;
  return {.forward = model.forward(), .options = options, .seeds = std::move(seeds)};
}

inline Subject small_gpt2(std::vector<uint64_t> seeds = {1, 2, 3}) {
  return small_subject("char", {{"layers", 2}, {"hidden", 32}, {"heads", 2}, {"vocab", 37}},
                       std::move(seeds));
}

// Adds a morphism with one operand and one result after the object at `path`; all readers of the
// object read the new one, which takes over its source.
inline Apply behind(std::string path, std::string op, Attrs attrs) {
  return [=](const Scheme& before, Application& application) {
    Scheme after = before;
    for (size_t i = 0; i < after.morphisms.size(); ++i) {
      const Value out = after.morphisms[i].outputs[0];
      if (to_string(after[out].source) != path) continue;
      const Value changed = after.add(after[out]);
      Morphism m{.op = op,
                 .inputs = {out},
                 .outputs = {changed},
                 .attrs = attrs,
                 .source = after.morphisms[i].source,
                 .phase = after.morphisms[i].phase};
      for (size_t k = i + 1; k < after.morphisms.size(); ++k) {
        std::replace(after.morphisms[k].inputs.begin(), after.morphisms[k].inputs.end(), out,
                     changed);
      }
      after.morphisms.insert(after.morphisms.begin() + static_cast<int64_t>(i) + 1, std::move(m));
      ++application.matches;
      return after;
    }
    return after;
  };
}

inline Apply scaled(std::string path, double by) {
  return behind(std::move(path), "scale", {{"by", by}, {"plus", 0.0}});
}

// A functor that matches once and changes nothing.
inline Apply nothing() {
  return [](const Scheme& before, Application& application) {
    ++application.matches;
    return before;
  };
}

// Multiplies by 3 and divides by 3: the same function with two more roundings.
inline Apply thirds(std::string path) {
  return [=](const Scheme& before, Application& application) {
    return scaled(path, 1.0 / 3)(scaled(path, 3)(before, application), application);
  };
}

}  // namespace adjoint
