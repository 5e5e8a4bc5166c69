// The flags of commands that sample from a trained model.
#pragma once
#include <CLI/CLI.hpp>
#include <string>

#include "cli/step_flags.h"
#include "train/generate.h"

namespace adjoint {

struct SampleFlags {
  std::string model, weights, stack;
  CLI::Option* own_stack = nullptr;  // set where --stack was given
  SampleOptions sample;
  int64_t seed = 1, threads = 0, seq = 0;
  DeviceFlags device;
  bool times = false;

  void add_to(CLI::App& command);
  SampleOptions checked() const;  // refuses numbers that make no sense
  GeneratorOptions generator() const;
  // "first token after 0.12 s, then 35.2 tokens/s" on standard error, if that is a terminal or
  // --times was given.
  void show(const GenerationTimes& times) const;
};

}  // namespace adjoint
