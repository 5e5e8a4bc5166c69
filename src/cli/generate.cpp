// adjoint generate: text from a trained model.
#include "train/generate.h"

#include <iostream>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "cli/command.h"
#include "cli/step_flags.h"
#include "device/parallel.h"

namespace adjoint {

namespace {

struct GenerateFlags {
  std::string model, prompt, weights;
  SampleOptions sample;
  int64_t seed = 1, threads = 0, seq = 0;
  DeviceFlags device;
  bool json = false;
};

int run(const GenerateFlags& flags) {
  if (flags.sample.tokens < 1 || flags.sample.tokens > 1'000'000) {
    fail("--tokens: wanted 1 to 1000000, found ", flags.sample.tokens);
  }
  if (flags.seed < 0) fail("--seed: wanted 0 or more, found ", flags.seed);
  if (!(flags.sample.temperature >= 0)) {
    fail("--temperature: wanted 0 or more, found ", flags.sample.temperature);
  }
  if (flags.sample.top_k < 0) fail("--top-k: wanted 0 or more, found ", flags.sample.top_k);
  use_threads(flags.threads);
  if (flags.seq < 0) fail("--seq: wanted at least 1, found ", flags.seq);
  Generator generator(flags.model, flags.device.plan_options(), flags.weights, flags.seq);
  SampleOptions sample = flags.sample;
  sample.seed = static_cast<uint64_t>(flags.seed);
  if (flags.json) {
    const std::string text = generator.generate(flags.prompt, sample, nullptr);
    const nlohmann::json out = {{"prompt", flags.prompt}, {"text", text}};
    std::cout << out.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) << "\n";
    return kDone;
  }
  generator.generate(flags.prompt, sample,
                     [](std::string_view text) { std::cout << text << std::flush; });
  std::cout << "\n";
  return kDone;
}

}  // namespace

void add_generate(CLI::App& app, Action& action) {
  CLI::App* command = app.add_subcommand("generate", "sample text from a trained model");
  auto flags = std::make_shared<GenerateFlags>();
  command
      ->add_option("--model", flags->model,
                   "the --out folder of a training run, or a folder of Hugging Face's format")
      ->required();
  command->add_option("--prompt", flags->prompt, "the text to go on from");
  command->add_option("--weights", flags->weights,
                      "a state that follows parameters, in their place: ema.average");
  command->add_option("--seq", flags->seq,
                      "how many tokens the model sees; 0: as in training, or its context");
  command->add_option("--tokens", flags->sample.tokens, "how many tokens to add")
      ->capture_default_str();
  command->add_option("--temperature", flags->sample.temperature, "0: always the likeliest token")
      ->capture_default_str();
  command->add_option("--top-k", flags->sample.top_k, "only the k likeliest tokens; 0: all")
      ->capture_default_str();
  command->add_option("--seed", flags->seed, "another seed, another text")->capture_default_str();
  command->add_option("--threads", flags->threads, "CPU threads; 0: as many as there are cores");
  flags->device.add_to(*command);
  command->add_flag("--json", flags->json, "prompt and text as JSON");
  command->footer("Example:\n  adjoint generate --model runs/book --prompt \"In the beginning\"");
  command->callback([flags, &action] { action = [flags] { return run(*flags); }; });
}

}  // namespace adjoint
