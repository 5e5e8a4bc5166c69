#include "cli/sample_flags.h"

#include <fmt/format.h>
#include <unistd.h>

#include <iostream>

#include "base/error.h"

namespace adjoint {

void SampleFlags::add_to(CLI::App& command) {
  command
      .add_option("--model", model,
                  "the --out folder of a training run, or a folder of Hugging Face's format")
      ->required();
  command.add_option("--weights", weights,
                     "a state that follows parameters, in their place: ema.average");
  own_stack = command.add_option(
      "--stack", stack, "functors instead of the run's own, such as 'bf16' or 'quantize(int8)'");
  command
      .add_option("--seq", seq,
                  "how many tokens the model sees at once; 0: as in training, or its context")
      ->capture_default_str();
  command.add_option("--tokens", sample.tokens, "how many tokens to add, at most")
      ->capture_default_str();
  command.add_option("--temperature", sample.temperature, "0: always the likeliest token")
      ->capture_default_str();
  command.add_option("--top-k", sample.top_k, "only the k likeliest tokens; 0: all")
      ->capture_default_str();
  command
      .add_option("--top-p", sample.top_p, "only the fewest tokens that have this share together")
      ->capture_default_str();
  command
      .add_option("--min-p", sample.min_p,
                  "only tokens with this share of the likeliest one's probability")
      ->capture_default_str();
  command
      .add_option("--repetition-penalty", sample.repetition,
                  "above 1: tokens of the text become less likely")
      ->capture_default_str();
  command.add_option("--stop", sample.stops, "a text ends before this; may be given several times");
  command.add_option("--seed", seed, "another seed, another text")->capture_default_str();
  command.add_option("--threads", threads, "CPU threads; 0: as many as there are cores");
  device.add_to(command);
  command.add_flag("--times", times,
                   "the time to the first token and tokens per second, on standard error; a "
                   "terminal shows them anyway");
}

SampleOptions SampleFlags::checked() const {
  if (seed < 0) fail("--seed: wanted 0 or more, found ", seed);
  if (seq < 0) fail("--seq: wanted 0 or more, found ", seq);
  SampleOptions options = sample;
  options.seed = static_cast<uint64_t>(seed);
  check(options);
  return options;
}

GeneratorOptions SampleFlags::generator() const {
  return {.plan = device.plan_options(),
          .weights = weights,
          .stack = stack,
          .own_stack = own_stack->count() == 0,
          .seq = seq};
}

void SampleFlags::show(const GenerationTimes& of) const {
  if (!times && isatty(STDERR_FILENO) == 0) return;
  std::cerr << fmt::format("first token after {:.2f} s", of.first);
  if (of.tokens_of_rest > 0)
    std::cerr << fmt::format(", then {:.1f} tokens/s", of.tokens_per_second());
  std::cerr << "\n";
}

}  // namespace adjoint
