// adjoint train: trains a model on a text, saves, evaluates, resumes.
#include <fmt/format.h>

#include <csignal>
#include <cstring>
#include <iostream>

#include "analysis/totals.h"
#include "base/error.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/interrupts.h"
#include "comm/threads.h"
#include "device/parallel.h"
#include "train/progress.h"
#include "train/settings_text.h"
#include "train/trainer.h"

namespace adjoint {

namespace {

struct TrainFlags {
  std::string config;
  std::map<std::string, std::vector<std::string>> given;  // by option name
  std::vector<std::string> set;
  bool json = false;
};

std::string shell_quoted(const std::string& word) {
  const auto plain = [](unsigned char c) { return std::isalnum(c) || std::strchr("/._-+=", c); };
  if (std::all_of(word.begin(), word.end(), plain)) return word;
  std::string quoted = "'";
  for (const char c : word) quoted += c == '\'' ? "'\\''" : std::string(1, c);
  return quoted + "'";
}

nlohmann::json flags_layer(const TrainFlags& flags) {
  nlohmann::json layer = nlohmann::json::object();
  for (const OptionSpec& option : train_options()) {
    const auto found = flags.given.find(option.name);
    if (found == flags.given.end()) continue;
    const std::vector<std::string>& texts = found->second;
    layer[option.name] = texts.size() > 1 ? nlohmann::json(texts) : option.parse(texts[0]);
  }
  for (const std::string& setting : flags.set) layer["set"].update(parse_setting(setting));
  return layer;
}

// Where some parameters are frozen: how many are not.
std::string words_for_trained(const Scheme& step) {
  const int64_t trained = num_trained(step);
  return trained == num_parameters(step) ? "" : ", " + with_commas(trained) + " of them trained";
}

// Of several ranks the first one speaks.
int train(const TrainFlags& flags, Interrupts& interrupts, const ResolvedConfig& resolved,
          const std::optional<Communicator>& world) {
  Trainer trainer(resolved, world);
  if (world && world->rank() > 0) {
    trainer.train(interrupts.stop());
    return kDone;
  }
  const TrainConfig& c = trainer.config();
  const Scheme& step = trainer.run().scheme();
  if (!flags.json) {
    const Bytes copied = trainer.copied_to_save();
    std::cout << fmt::format(
        "{}: {} parameters{}; {} tokens to train on, {} to validate, {} in the vocabulary\n"
        "batch {} x {} tokens, {}{} threads, memory {} (predicted){}\n",
        trainer.model().name(), with_commas(num_parameters(step)), words_for_trained(step),
        with_commas(trainer.corpus().size(Split::kTrain)),
        with_commas(trainer.corpus().size(Split::kValidation)),
        with_commas(trainer.tokenizer().vocab_size()), c.batch, trainer.model().context(),
        world ? std::to_string(world->size()) + " ranks of " : "", num_threads(),
        human(trainer.run().plan().arena),
        copied.count > 0 ? ", and " + human(copied) + " to copy what a save writes" : "");
    for (const std::string& rule : trainer.idle_rules()) std::cout << rule << "\n";
    if (!c.wish.budget.empty()) {
      std::cout << "--fit chose the stack '" << c.step.stack << "'\n";
    }
    if (c.resume) std::cout << "resuming after step " << trainer.first_step() << "\n";
    for (const std::string& note : trainer.notes()) std::cout << note << "\n";
    std::cout << std::flush;
  }
  interrupts.ask_from_now_on();
  std::signal(SIGPIPE, SIG_IGN);  // a closed pipe ends nothing
  const Progress watch(1, 0);
  const TrainResult result = trainer.train(interrupts.stop(), flags.json ? nullptr : &std::cout);
  if (flags.json) {
    nlohmann::json out = {{"step", result.step},
                          {"loss", result.loss ? nlohmann::json(*result.loss) : nlohmann::json()},
                          {"out", c.out},
                          {"interrupted", result.interrupted},
                          {"predicted_bytes", result.predicted.count},
                          {"save_copy_bytes", trainer.copied_to_save().count}};
    if (!result.ended_by.empty()) out["ended_by"] = result.ended_by;
    if (result.val_loss) out["val_loss"] = *result.val_loss;
    if (!result.val_loss && !result.interrupted) out["val_loss"] = nullptr;  // nothing was counted
    std::cout << out.dump() << "\n";
  } else {
    if (!result.ended_by.empty()) std::cout << result.ended_by << "\n";
    std::cout << fmt::format("saved step {} of {} to {} ({})\n", result.step, c.steps, c.out,
                             human_time(watch.seconds()));
    if (result.step < c.steps) {
      std::cout << "go on with: adjoint train --resume --out " << shell_quoted(c.out) << "\n";
    }
  }
  return result.interrupted ? kInterrupted : kDone;
}

int run(const TrainFlags& flags) {
  Interrupts interrupts;
  const nlohmann::json toml = flags.config.empty() ? nlohmann::json() : read_toml(flags.config);
  ResolvedConfig resolved = resolve_config(toml, flags_layer(flags));
  const auto ranks = static_cast<int>(resolved.config.ranks);
  if (ranks == 1) return train(flags, interrupts, resolved, std::nullopt);
  // Ranks share the cores of this machine.
  if (resolved.config.threads == 0) {
    resolved.config.threads = std::max(1, num_threads() / ranks);
  }
  int status = kDone;
  run_ranks(ranks, [&](const Communicator& world) {
    const int mine = train(flags, interrupts, resolved, world);
    if (world.rank() == 0) status = mine;
  });
  return status;
}

}  // namespace

void add_train(CLI::App& app, Action& action) {
  CLI::App* command =
      app.add_subcommand("train", "train a model on a text; save, evaluate, resume");
  auto flags = std::make_shared<TrainFlags>();
  command->add_option("--config", flags->config,
                      "a TOML file with these options as keys (stop_after = 10) and [set]; "
                      "flags override it");
  for (const OptionSpec& option : train_options()) {
    std::string help = option.help;
    if (!option.choices.empty()) help += " {" + join(option.choices, "|") + "}";
    const std::string key = option.name;
    if (option.kind == OptionSpec::Kind::kSwitch) {
      command->add_flag_callback(
          option.flag(), [flags, key] { flags->given[key] = {"true"}; }, help);
      continue;
    }
    const std::string otherwise = option.otherwise.is_string() ? option.otherwise.get<std::string>()
                                                               : option.otherwise.dump();
    CLI::Option* added = nullptr;
    if (option.kind == OptionSpec::Kind::kTexts) {
      const auto take = [flags, key](const std::vector<std::string>& texts) {
        flags->given[key] = texts;
      };
      added = command->add_option_function<std::vector<std::string>>(option.flag(), take, help);
      added->allow_extra_args(false)->take_all();
    } else {
      const auto take = [flags, key](const std::string& text) { flags->given[key] = {text}; };
      added = command->add_option_function<std::string>(option.flag(), take, help);
    }
    const bool number =
        option.kind == OptionSpec::Kind::kInteger || option.kind == OptionSpec::Kind::kNumber;
    added->default_str(otherwise)->type_name(number ? "NUMBER" : "TEXT");
  }
  command->add_option("--set", flags->set,
                      "settings of the model by name, such as layers=2 dropout=0.1");
  command->add_flag("--json", flags->json, "the result as JSON");
  command->footer(
      "Examples:\n"
      "  adjoint train --model char --data book.txt --steps 2000 --out runs/book\n"
      "  adjoint train --resume --out runs/book --steps 4000\n"
      "  adjoint train --repeat runs/book --out runs/again\n"
      "  adjoint train --model my.scheme --data book.txt --set layers=6 dropout=0.1\n"
      "  adjoint train --init runs/book --data talks.jsonl --template chatml --documents apart\n"
      "  adjoint train --data book.txt --stack 'data_parallel(4)' --ranks 4\n"
      "  adjoint train --model char --data 'books/**/*.txt.gz:3' --data news.jsonl:1\n"
      "Writes model.safetensors, optimizer.safetensors, save.json, metrics.jsonl, run.json,\n"
      "model.scheme and tokenizer.json to --out, alone: a second run there is refused, and "
      "whoever\n"
      "reads the folder meanwhile sees a complete save. Ctrl-C saves and stops.");
  command->callback([flags, &action] { action = [flags] { return run(*flags); }; });
}

}  // namespace adjoint
