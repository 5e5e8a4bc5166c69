#include "cli/values.h"

#include <algorithm>
#include <map>

#include "base/error.h"
#include "base/text.h"
#include "cli/pages.h"
#include "cost/sheet.h"
#include "data/chat_template.h"
#include "data/split.h"
#include "data/tokenizer.h"
#include "functors/functor.h"
#include "functors/optimizer_text.h"
#include "models/library.h"
#include "ops/op_def.h"
#include "ops/words.h"
#include "report/level_view.h"
#include "report/owner_table.h"
#include "run/machine.h"
#include "train/config.h"

namespace adjoint {

namespace {

using Paths = ValueKind::Paths;

std::vector<std::string> names_of_functors() {
  std::vector<std::string> names;
  for (const Functor* functor : all_functors()) {
    if (!functor->of_forward) names.push_back(functor->name);
  }
  return names;
}

// Of `adjoint help`: what has a name of one word.
std::vector<std::string> topics() {
  std::vector<std::string> names;
  for (const HelpPage& page : pages()) names.emplace_back(page.name.substr(0, page.name.find('.')));
  for (const OpDef* op : all_ops()) {
    if (!op->params.empty()) names.emplace_back(op->name);
  }
  for (const OpDef& word : notation_words()) names.emplace_back(word.name);
  for (const Functor* functor : all_functors()) names.push_back(functor->name);
  for (const std::string& optimizer : known_optimizers()) names.push_back(optimizer);
  return names;
}

std::vector<std::string> names_of_patterns() {
  std::vector<std::string> names;
  for (const auto& [name, pattern] : kNamedPatterns) names.emplace_back(name);
  return names;
}

ValueKind choice_of(std::vector<std::string> choices) {
  std::string word = "{" + join(choices, "|") + "}";
  return {.word = std::move(word), .choices = std::move(choices)};
}

// By flag, and by command and flag where one command differs from the others.
const std::map<std::string, ValueKind>& table() {
  static const ValueKind file = {.word = "FILE", .paths = Paths::kFiles};
  static const ValueKind folder = {.word = "FOLDER", .paths = Paths::kFolders};
  static const ValueKind bytes = {.word = "BYTES"};
  static const ValueKind stack = {.word = "STACK", .names = names_of_functors};
  static const std::map<std::string, ValueKind> all = {
      {"--model", {.word = "MODEL", .names = known_presets, .paths = Paths::kFiles}},
      {"generate --model", folder},
      {"chat --model", folder},
      {"eval --model", folder},
      {"--stack", stack},
      {"--compare", stack},
      {"verify --with", {.word = "MODEL", .names = known_presets, .paths = Paths::kFiles}},
      {"--set", {.word = "NAME=NUMBER"}},
      {"--optimizer", {.word = "OPTIMIZER", .names = known_optimizers, .paths = Paths::kFiles}},
      {"--template", {.word = "TEMPLATE", .names = known_chat_templates, .paths = Paths::kFiles}},
      {"--tokenizer", {.word = "TOKENIZER", .names = learned_tokenizers, .paths = Paths::kFiles}},
      {"tokenizer encode --tokenizer", file},
      {"tokenizer decode --tokenizer", file},
      {"tokenizer info --tokenizer", file},
      {"tokenizer speed --tokenizer", file},
      {"--device", choice_of(known_targets())},
      {"plan --device", {.word = "DEVICE", .names = device_names, .paths = Paths::kFiles}},
      {"show --device", {.word = "DEVICE", .names = device_names, .paths = Paths::kFiles}},
      {"--fit", bytes},
      {"--fit-seconds", {.word = "SECONDS"}},
      {"--workspace", bytes},
      {"--shard", bytes},
      {"--schedule-memory", bytes},
      {"bench comm --sizes", bytes},
      // ---- paths
      {"--config", file},
      {"--data", file},
      {"--choices", file},
      {"--prompts", file},
      {"--chart", file},
      {"--trace", file},
      {"show --viete", file},
      {"edit --request", file},
      {"--pareto-chart", file},
      {"--write-schedule", file},
      {"tokenizer train --out", file},
      {"tokenizer encode file", file},
      {"tokenizer decode file", file},
      {"tokenizer speed file", file},
      {"--out", folder},
      {"--run", folder},
      {"--init", folder},
      {"--adapter", folder},
      {"--cache", folder},
      {"--profile", folder},
      {"--repeat", folder},
      {"man --out", folder},
      {"convert in", folder},
      {"convert out", folder},
      // ---- a few words each; tests hold them to what the help says
      {"--by", choice_of(words_of_by())},
      {"show --level", choice_of(words_of_levels())},
      {"eval --by", choice_of({"source", "file"})},
      {"convert --dtype", choice_of({"f32", "bf16", "f16"})},
      {"quantize --format", choice_of({"int8", "int4", "nf4"})},
      {"quantize --per", choice_of({"tensor", "channel", "group"})},
      {"quantize --method", choice_of({"gptq", "round"})},
      {"tokenizer train --pattern", choice_of(names_of_patterns())},
      {"completions shell", choice_of({"bash", "zsh", "fish"})},
      {"functors functor", {.word = "FUNCTOR", .names = names_of_functors, .paths = Paths::kFiles}},
      {"help topic", {.word = "TOPIC", .names = topics}},
  };
  return all;
}

// What other programs call commands, and flags that are no option of a run; those say it in their
// declaration (train/config.h).
const std::map<std::string, std::vector<std::string>>& names_elsewhere() {
  static const std::map<std::string, std::vector<std::string>> all = {
      {"train", {"fit", "finetune", "fine-tune", "pretrain"}},
      {"generate", {"sample", "inference", "infer", "predict"}},
      {"eval", {"evaluate", "test", "validate"}},
      {"convert", {"export"}},
      {"--run", {"--model"}},
      {"--tokens", {"--max-new-tokens", "--max-tokens", "--max-length"}},
      {"--samples", {"--num-samples", "--num-return-sequences"}},
  };
  return all;
}

// Flags of other programs that are no flag here, and how it is said instead; {} is their value.
struct SaidInstead {
  std::vector<std::string> flags;
  std::string_view instead;
};
const std::vector<SaidInstead>& said_instead() {
  constexpr std::string_view kMetrics =
      "every number of a run is a line of metrics.jsonl in its folder, and --tensorboard writes "
      "them "
      "for TensorBoard, too";
  constexpr std::string_view kPrecision =
      "a step computes in float32 unless the stack says otherwise: did you mean '--stack bf16' or "
      "'--stack fp16'?";
  constexpr std::string_view kRanks =
      "`--ranks N` runs N ranks in this process, `adjoint launch` starts N processes";
  static const std::vector<SaidInstead> all = {
      {{"--lora-r", "--lora-rank", "--use-lora", "--use-peft", "--peft"},
       "did you mean '--stack \"lora(rank={})\"'?"},
      {{"--lora-alpha"}, "did you mean '--stack \"lora(alpha={})\"'?"},
      {{"--lora-target-modules", "--lora-target"},
       "did you mean '--stack \"lora(on=attention)\"' (or attention_in, attention_out, "
       "feed_forward)?"},
      {{"--load-in-4bit", "--qlora"}, "did you mean '--stack qlora'?"},
      {{"--load-in-8bit"}, "did you mean '--stack \"quantize(int8) | lora\"'?"},
      {{"--dtype", "--torch-dtype", "--precision", "--half"}, kPrecision},
      {{"--wandb", "--wandb-project", "--wandb-log", "--report-to", "--log-with"}, kMetrics},
      {{"--micro-batch-size", "--micro-batch", "--device-batch-size"},
       "--batch is the whole batch of a step, and '--stack \"accumulate(N)\"' takes it in N parts"},
      {{"--use-flash-attention", "--use-flash-attn", "--flash-attn", "--flash-attention",
        "--attn-implementation"},
       "attention never writes its scores to memory, without any flag"},
      {{"--compile", "--torch-compile"}, "every step is compiled, without any flag"},
      {{"--nproc-per-node", "--num-gpus", "--num-processes", "--world-size"}, kRanks},
  };
  return all;
}

// The options of a run whose values are a few words.
const std::map<std::string, ValueKind>& choices_of_runs() {
  static const std::map<std::string, ValueKind> all = [] {
    std::map<std::string, ValueKind> found;
    for (const OptionSpec& option : train_options()) {
      if (!option.choices.empty()) found[option.flag()] = choice_of(option.choices);
    }
    return found;
  }();
  return all;
}

}  // namespace

std::string path_of(const CLI::App& command) {
  const CLI::App* const above = command.get_parent();
  if (!above) return "";
  const std::string path = path_of(*above);
  return (path.empty() ? "" : path + " ") + command.get_name();
}

const ValueKind* value_kind(const CLI::App& command, const CLI::Option& option) {
  const std::string path = path_of(command);
  const std::string name =
      option.get_lnames().empty() ? option.get_name(true) : "--" + option.get_lnames()[0];
  if (path == "train") {
    const auto found = choices_of_runs().find(name);
    if (found != choices_of_runs().end()) return &found->second;
  }
  for (const std::string& key : {path + " " + name, name}) {
    const auto found = table().find(key);
    if (found != table().end()) return &found->second;
  }
  return nullptr;
}

std::string called_elsewhere(const CLI::App& command, std::string_view word) {
  std::string said(word);
  std::replace(said.begin(), said.end(), '_', '-');
  const auto has = [&](const std::string& name) {
    if (name.starts_with('-')) return command.get_option_no_throw(name) != nullptr;
    const auto subs = command.get_subcommands(nullptr);
    return std::any_of(subs.begin(), subs.end(),
                       [&](const CLI::App* sub) { return sub->get_name() == name; });
  };
  for (const auto& [name, others] : names_elsewhere()) {
    if (has(name) && std::find(others.begin(), others.end(), said) != others.end()) return name;
  }
  if (!said.starts_with("--")) return "";
  const OptionSpec* const option = option_elsewhere(train_options(), said.substr(2));
  return option && has(option->flag()) ? option->flag() : "";
}

std::string flag_said_instead(const CLI::App& command, std::string_view flag,
                              const std::string& value) {
  if (!command.get_option_no_throw("--stack")) return "";
  std::string said(flag);
  std::replace(said.begin(), said.end(), '_', '-');
  for (const auto& [flags, instead] : said_instead()) {
    if (std::find(flags.begin(), flags.end(), said) == flags.end()) continue;
    std::string sentence(instead);
    const size_t hole = sentence.find("{}");
    if (hole != sentence.npos) sentence.replace(hole, 2, value.empty() ? "N" : value);
    return "; " + sentence;
  }
  return "";
}

const std::vector<std::string>& choices_of(const std::string& key) {
  const auto found = table().find(key);
  CHECK(found != table().end() && !found->second.choices.empty(), "a row with choices: " + key);
  return found->second.choices;
}

void name_values(CLI::App& app) {
  for (CLI::App* command : app.get_subcommands(nullptr)) name_values(*command);
  for (CLI::Option* option : app.get_options()) {
    const bool is_flag = option->get_items_expected_max() == 0;
    const ValueKind* const kind = is_flag ? nullptr : value_kind(app, *option);
    // Choices of a run stand at the end of its help.
    if (kind && (kind->choices.empty() || path_of(app) != "train")) option->type_name(kind->word);
  }
}

}  // namespace adjoint
