// adjoint train: trains a model on a text, saves, evaluates, resumes.
#include <fmt/format.h>

#include <chrono>
#include <csignal>
#include <iostream>

#include "analysis/totals.h"
#include "base/activity.h"
#include "base/counts.h"
#include "base/error.h"
#include "base/note.h"
#include "base/text.h"
#include "cli/answer.h"
#include "cli/command.h"
#include "cli/interrupts.h"
#include "cli/train_flags.h"
#include "comm/gpu_reduction.h"
#include "comm/mpi.h"
#include "device/parallel.h"
#include "laws/later_tokens.h"
#include "run/machine.h"
#include "train/doubts.h"
#include "train/job.h"
#include "train/settings_text.h"
#include "train/trainer.h"

namespace adjoint {

namespace {

// How many parameters there are, how many of them are trained, and of stages, whose they are.
std::string words_for_parameters(const Scheme& step) {
  const int64_t all = num_parameters(step), trained = num_trained(step);
  return fmt::format("{} parameters{}, {}", with_commas(all),
                     step.of_all_stages.empty() ? "" : " on the first stage",
                     trained == all ? "all trained" : with_commas(trained) + " of them trained");
}

// What a signal is answered while steps run.
std::string stopping() {
  const std::string again = "; Ctrl-C again ends without ";
  if (teller().doing() == "saving") return "stopping once this save is written" + again + "it";
  return "stopping after this step, then saving" + again + "a save";
}

constexpr const char* kEnded = "ended at once, without a save";

// Of several ranks the first one speaks.
int train(const TrainFlags& flags, Interrupts& interrupts, const ResolvedConfig& resolved,
          const std::optional<Communicator>& world, int ranks_here = 1) {
  Trainer trainer(resolved, world);
  if (world && world->rank() > 0) {
    interrupts.ask_from_now_on({.first = stopping, .second = kEnded});
    trainer.train(interrupts.stop());
    return kDone;
  }
  const TrainConfig& c = trainer.config();
  for (const std::string& doubt : doubts_about_threads(num_threads(), ranks_here)) {
    warn_once(doubt);
  }
  if (const auto doubt = doubt_about_later_tokens(trainer.model(), c.settings,
                                                  parse_stack(c.step.stack), c.step)) {
    warn_once(*doubt);
  }
  const Scheme& step = trainer.run().scheme();
  if (!flags.json) {
    const Bytes copied = trainer.copied_to_save();
    std::cout << fmt::format(
        "{}: {}; {} tokens to train on, {} to validate, {} in the vocabulary\n"
        "batch {} x {} tokens, {}{}, memory {} (predicted){}\n",
        trainer.model().name(), words_for_parameters(step),
        with_commas(trainer.corpus().size(Split::kTrain)),
        with_commas(trainer.corpus().size(Split::kValidation)),
        with_commas(trainer.tokenizer().vocab_size()), c.batch, trainer.model().context(),
        world ? std::to_string(world->size()) + " ranks of " : "", counted(num_threads(), "thread"),
        human(trainer.run().plan().footprint()),
        copied.count > 0 ? ", and " + human(copied) + " to copy what a save writes" : "");
    for (const std::string& rule : trainer.idle_rules()) std::cout << rule << "\n";
    if (!c.wish.budget.empty()) {
      std::cout << "--fit chose the stack '" << c.step.stack << "'\n";
    }
    if (c.resume) std::cout << "resuming after step " << trainer.first_step() << "\n";
    for (const std::string& note : trainer.notes()) std::cout << note << "\n";
    std::cout << std::flush;
  }
  interrupts.ask_from_now_on({.first = stopping, .second = kEnded});
  std::signal(SIGPIPE, SIG_IGN);  // a closed pipe ends nothing
  const auto began = std::chrono::steady_clock::now();
  const TrainResult result = trainer.train(interrupts.stop(), flags.json ? nullptr : &std::cout);
  if (flags.json) {
    nlohmann::json out = {{"step", result.step},
                          {"loss", result.loss ? nlohmann::json(*result.loss) : nlohmann::json()},
                          {"out", c.out},
                          {"interrupted", result.interrupted},
                          {"peak_bytes", result.predicted.count},
                          {"save_copy_bytes", trainer.copied_to_save().count}};
    if (!result.ended_by.empty()) out["ended_by"] = result.ended_by;
    if (result.val_loss) out["val_loss"] = *result.val_loss;
    if (!result.val_loss && !result.interrupted) out["val_loss"] = nullptr;  // nothing was counted
    out["model"] = trainer.model().name();
    out["params"] = num_parameters(step);
    out["trained_params"] = num_trained(step);
    print_answer("train", std::move(out), -1);
  } else {
    if (!result.ended_by.empty()) std::cout << result.ended_by << "\n";
    std::cout << fmt::format(
        "saved step {} of {} to {} ({})\n", result.step, c.steps, c.out,
        human_time(
            std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count()));
    if (result.step < c.steps) {
      std::cout << "go on with: adjoint train --resume --out " << shell_quoted(c.out) << "\n";
    }
  }
  return result.interrupted ? kInterrupted : kDone;
}

ResolvedConfig resolved_with(const TrainFlags& flags, const nlohmann::json& toml,
                             const nlohmann::json& layer) {
  ResolvedConfig resolved = resolve_config(toml, layer);
  if (!flags.config.empty()) check_settings(flags.config, resolved.text);
  return resolved;
}

// As one of the ranks that a launcher started, each a process.
int run_launched_rank(const TrainFlags& flags, const JobLaunch& launch) {
  Interrupts interrupts({SIGUSR1});  // Open MPI's launcher passes it on, and Ctrl-C it does not
  let_first_rank_tell(launch.rank);
  int status = kDone;
  run_launched(
      launch,
      [&](const Communicator& world) {
        agree_on_program(world);
        const nlohmann::json toml = flags.file_layer();
        nlohmann::json layer = flags.layer();
        const nlohmann::json& said = layer.contains("ranks") ? layer : toml;
        if (said.contains("ranks") && said["ranks"] != launch.ranks) {
          fail("--ranks: the launcher started ", launch.ranks, " ranks, found ",
               said["ranks"].dump());
        }
        layer["ranks"] = launch.ranks;
        ResolvedConfig resolved = resolved_with(flags, toml, layer);
        if (resolved.config.threads == 0) resolved.config.threads = threads_of_ranks(world);
        if (launch.ranks == 1) {
          status = train(flags, interrupts, resolved, std::nullopt);
        } else {
          status = train(flags, interrupts, resolved, world);
        }
      },
      said_limits());
  return status;
}

int run(const TrainFlags& flags) {
  if (const auto launch = find_launch()) return run_launched_rank(flags, *launch);
  Interrupts interrupts;
  ResolvedConfig resolved = resolved_with(flags, flags.file_layer(), flags.layer());
  const auto ranks = static_cast<int>(resolved.config.ranks);
  if (ranks == 1) return train(flags, interrupts, resolved, std::nullopt);
  // Ranks share the cores of this machine.
  if (resolved.config.threads == 0) {
    resolved.config.threads = std::max(1, num_threads() / ranks);
  }
  int status = kDone;
  run_ranks(ranks,
            [&](const Communicator& world) {
              const int mine = train(flags, interrupts, resolved, world, ranks);
              if (world.rank() == 0) status = mine;
            },
            {.memory = memory_of(target_named(resolved.config.device))});
  return status;
}

}  // namespace

void add_train(CLI::App& app, Action& action) {
  CLI::App* command =
      app.add_subcommand("train", "train a model on a text; save, evaluate, resume");
  auto flags = std::make_shared<TrainFlags>();
  TrainFlags::add_to(*command, flags);
  command->footer(
      "Examples:\n"
      "  adjoint train --model char --data book.txt --steps 2000 --out runs/book\n"
      "  adjoint train --resume --out runs/book --steps 4000\n"
      "  adjoint train --repeat runs/book --out runs/again\n"
      "  adjoint train --model my.scheme --data book.txt --set layers=6 dropout=0.1\n"
      "  adjoint train --init runs/book --data talks.jsonl --template chatml --documents apart\n"
      "  adjoint train --data book.txt --stack data_parallel --ranks 4\n"
      "  mpirun -n 4 adjoint train --data book.txt --stack 'data_parallel | zero(3)'\n"
      "  adjoint train --model char --data 'books/**/*.txt.gz:3' --data news.jsonl:1\n"
      "Writes model.safetensors, optimizer.safetensors, save.json, metrics.jsonl, run.json,\n"
      "model.scheme and tokenizer.json to --out, alone: a second run there is refused, and "
      "whoever\n"
      "reads the folder meanwhile sees a complete save. Ctrl-C saves and stops.");
  command->callback([flags, &action] { action = [flags] { return run(*flags); }; });
}

}  // namespace adjoint
