// A subcommand of `adjoint`: one file each, listed in main.cpp.
#pragma once
#include <CLI/CLI.hpp>
#include <functional>
#include <vector>

namespace adjoint {

// Exit codes: the whole list.
enum ExitCode { kDone = 0, kBadInput = 1, kUsage = 2, kMachineFailed = 3, kInterrupted = 130 };

// Adds the subcommand; what runs it is put into `action` when the user chose it.
using Action = std::function<int()>;
using AddCommand = void (*)(CLI::App& app, Action& action);

// --threads of commands that have no table of options: 0 is all cores.
void use_threads(int64_t threads);

void add_train(CLI::App& app, Action& action);
void add_generate(CLI::App& app, Action& action);
void add_eval(CLI::App& app, Action& action);
void add_chat(CLI::App& app, Action& action);
void add_merge(CLI::App& app, Action& action);
void add_convert(CLI::App& app, Action& action);
void add_quantize(CLI::App& app, Action& action);
void add_plan(CLI::App& app, Action& action);
void add_profile(CLI::App& app, Action& action);
void add_bench(CLI::App& app, Action& action);
void add_show(CLI::App& app, Action& action);
void add_models(CLI::App& app, Action& action);
void add_ops(CLI::App& app, Action& action);
void add_functors(CLI::App& app, Action& action);
void add_verify(CLI::App& app, Action& action);
void add_tokenizer(CLI::App& app, Action& action);
void add_launch(CLI::App& app, Action& action);
// Puts the `--` before the `train` of `launch -n 4 train --data ...`, whose flags are not launch's.
void part_launched_command(std::vector<char*>& arguments);
void add_edit(CLI::App& app, Action& action);
void add_studio(CLI::App& app, Action& action);
void add_man(CLI::App& app, Action& action);
void add_completions(CLI::App& app, Action& action);
void add_help(CLI::App& app, Action& action);

}  // namespace adjoint
