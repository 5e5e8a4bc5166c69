// Small planned steps of many kinds, for tests of tables and charts.
#pragma once
#include "functors/pipeline.h"
#include "models/small_models.h"
#include "plan/plan.h"

namespace adjoint {

struct Planned {
  Scheme scheme;
  Plan plan;
};

inline Planned planned(const Scheme& scheme) { return {scheme, make_plan(scheme, {.threads = 2})}; }

inline Planned planned(const std::string& preset, const std::string& stack, double clip = 1,
                       int layers = 3) {
  StepOptions options;
  options.stack = stack;
  options.clip = clip;
  std::map<std::string, double> sizes = {{"layers", layers}, {"hidden", 32}, {"batch", 4}};
  if (preset == "char") sizes["seq"] = 16;
  return planned(build_step(elaborate_preset(preset, sizes), parse_stack(stack), options).scheme);
}

struct Case {
  std::string preset, stack;
  double clip = 1;
};
inline const std::vector<Case>& cases() {
  static const std::vector<Case> all = {
      {"char", ""},
      {"char", "", 0},
      {"char", "checkpoint(block)"},
      {"char", "accumulate(2)"},
      {"char", "accumulate(4) | checkpoint(all)"},
      {"char", "bf16"},
      {"char", "offload(optimizer)"},
      {"char", "offload(activations) | bf16"},
      {"llama-tiny", "lora(2)"},
      {"llama-tiny", "bf16 | checkpoint(every=2) | accumulate(2) | offload(optimizer)"},
  };
  return all;
}

inline std::string said(const Case& c) { return c.preset + " " + c.stack; }

constexpr Tier kTiers[] = {Tier::kDevice, Tier::kHost};

}  // namespace adjoint
