// adjoint generate: text from a trained model.
#include "train/generate.h"

#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/activity.h"
#include "base/error.h"
#include "base/file.h"
#include "cli/command.h"
#include "cli/sample_flags.h"
#include "device/parallel.h"

namespace adjoint {

namespace {

struct GenerateFlags {
  std::string prompt, prompts;
  SampleFlags sample;
  int64_t samples = 1, batch = 8;
  bool json = false;
};

// One prompt a line; or, where a line is a JSON object, its "prompt".
std::vector<std::string> read_prompts(const std::string& file) {
  std::vector<std::string> prompts;
  const std::string text = read_file(file);
  int64_t number = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    std::string line = text.substr(at, end - at);
    at = end + 1;
    ++number;
    if (!line.empty() && line.back() == '\r') line.pop_back();
    if (line.empty()) continue;
    if (line[0] == '{') {
      const nlohmann::json json = nlohmann::json::parse(line, nullptr, false);
      if (json.is_discarded() || !json.contains("prompt") || !json["prompt"].is_string()) {
        fail(file, ":", number, ":1: wanted {\"prompt\": \"text\"}, found ",
             line.substr(0, std::min<size_t>(line.size(), 40)));
      }
      line = json["prompt"].get<std::string>();
    }
    prompts.push_back(std::move(line));
  }
  if (prompts.empty()) fail(file, ": wanted a prompt on each line, found none");
  return prompts;
}

void print_line(const nlohmann::json& out) {
  std::cout << out.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) << "\n";
}

int run_one(const GenerateFlags& flags, Generator& generator, const SampleOptions& sample) {
  // Until there is something to see.
  std::optional<Activity> writing(std::in_place, "writing");
  if (flags.json) {
    const std::string text = generator.generate(flags.prompt, sample, nullptr);
    writing.reset();
    print_line({{"prompt", flags.prompt}, {"text", text}, {"tokens", generator.times().tokens}});
    flags.sample.show(generator.times());
    return kDone;
  }
  const auto begin = [&] {
    if (!writing) return;
    writing.reset();
    std::cout << flags.prompt;
  };
  generator.generate(flags.prompt, sample, [&](std::string_view text) {
    begin();
    std::cout << text << std::flush;
  });
  begin();
  std::cout << "\n";
  flags.sample.show(generator.times());
  return kDone;
}

// Texts are done in batches, and shown when all of a batch are.
int run_many(const GenerateFlags& flags, Generator& generator, const SampleOptions& sample) {
  const std::vector<std::string> prompts =
      flags.prompts.empty() ? std::vector<std::string>{flags.prompt} : read_prompts(flags.prompts);
  const int64_t texts = static_cast<int64_t>(prompts.size()) * flags.samples;
  Activity writing(Progress{.what = "writing", .unit = "texts"});
  for (int64_t first = 0; first < texts; first += flags.batch) {
    const int64_t end = std::min(texts, first + flags.batch);
    std::vector<std::vector<int32_t>> batch;
    for (int64_t i = first; i < end; ++i) {
      batch.push_back(generator.tokenizer().encode_with_specials(prompts[i / flags.samples]));
    }
    const std::vector<Generated> made = generator.generate(batch, sample, first, nullptr);
    const Teller::Quiet quiet(teller());
    writing.at(end, texts);
    for (int64_t i = first; i < end; ++i) {
      const std::string& prompt = prompts[i / flags.samples];
      const Generated& text = made[i - first];
      if (flags.json) {
        print_line({{"prompt", prompt},
                    {"sample", i % flags.samples},
                    {"text", text.text},
                    {"tokens", text.tokens}});
      } else {
        std::cout << prompt << text.text << (i + 1 < texts ? "\n---\n" : "\n");
      }
    }
    std::cout.flush();
    flags.sample.show(generator.times());
  }
  return kDone;
}

int run(const GenerateFlags& flags) {
  if (flags.samples < 1) fail("--samples: wanted 1 or more, found ", flags.samples);
  if (flags.batch < 1) fail("--batch: wanted 1 or more, found ", flags.batch);
  if (!flags.prompt.empty() && !flags.prompts.empty()) {
    fail("--prompt and --prompts: wanted one of the two");
  }
  const SampleOptions sample = flags.sample.checked();
  use_threads(flags.sample.threads);
  std::optional<Activity> reading(std::in_place, "reading the model");
  Generator generator(flags.sample.model, flags.sample.generator());
  reading.reset();
  return flags.samples == 1 && flags.prompts.empty() ? run_one(flags, generator, sample)
                                                     : run_many(flags, generator, sample);
}

}  // namespace

void add_generate(CLI::App& app, Action& action) {
  CLI::App* command = app.add_subcommand("generate", "sample text from a trained model");
  auto flags = std::make_shared<GenerateFlags>();
  flags->sample.add_to(*command);
  command->add_option("--prompt", flags->prompt, "the text to go on from");
  command->add_option("--prompts", flags->prompts,
                      "a file of prompts: one on each line, or {\"prompt\": \"...\"}");
  command->add_option("--samples", flags->samples, "texts for each prompt")->capture_default_str();
  command->add_option("--batch", flags->batch, "texts that are made at the same time, at most")
      ->capture_default_str();
  command->add_flag("--json", flags->json, "prompts and texts as JSON, one on each line");
  command->footer(
      "Examples:\n"
      "  adjoint generate --model runs/book --prompt \"In the beginning\"\n"
      "  adjoint generate --model runs/book --prompts lines.txt --samples 4 --top-p 0.9 --json");
  command->callback([flags, &action] { action = [flags] { return run(*flags); }; });
}

}  // namespace adjoint
