// adjoint: trains decoder-only language models. One binary, one subcommand per file.
#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <memory>
#include <new>
#include <optional>
#include <string_view>
#include <vector>

#include "base/activity.h"
#include "base/error.h"
#include "base/note.h"
#include "cli/build.h"
#include "cli/command.h"
#include "cli/complete.h"
#include "cli/interrupts.h"
#include "cli/mistakes.h"
#include "cli/values.h"
#include "cli/view_flags.h"
#include "cli/wrapped_help.h"
#include "comm/wire.h"
#include "device/parallel.h"
#include "device/waiting.h"
#include "train/doubts.h"

namespace adjoint {

void use_threads(int64_t threads) {
  if (threads < 0 || threads > 1024) fail("--threads: wanted 0 to 1024, found ", threads);
  if (threads == 0) return;
  set_num_threads(static_cast<int>(threads));
  for (const std::string& doubt : doubts_about_threads(threads)) warn_once(doubt);
}

// A message may quote names of a stranger's file, which must not speak to the terminal.
static std::string visible(std::string_view message) {
  std::string shown;
  for (const char c : message) {
    const auto byte = static_cast<unsigned char>(c);
    const bool control = (byte < ' ' && c != '\n' && c != '\t') || byte == 0x7F;
    shown += control ? fmt::format("\\x{:02x}", byte) : std::string(1, c);
  }
  return shown;
}

// Whoever read from a pipe and closed it has what it wanted: train | head -1. A command that a
// closed pipe does not end (train, which saves) was done all the same.
static bool reader_has_left() {
  pollfd out = {.fd = STDOUT_FILENO, .events = POLLOUT, .revents = 0};
  return ::poll(&out, 1, 0) > 0 && (out.revents & POLLERR) != 0;
}

}  // namespace adjoint

int main(int argc, char** argv) {
  using namespace adjoint;
  // A full disk is an error to report, not a signal to die of.
  std::signal(SIGXFSZ, SIG_IGN);
  std::signal(SIGPIPE, SIG_DFL);
  CLI::App app{"Adjoint trains decoder-only language models written as text."};
  app.name("adjoint");
  app.formatter(std::make_shared<WrappedHelp>());
  app.require_subcommand(1);
  app.set_version_flag(
      "--version", [] { return std::string(); },
      "the version, the commit and what was built in; with --json as JSON");
  app.footer(
      "Example:\n"
      "  adjoint train --model char --data book.txt --out runs/book\n"
      "Exit codes: 0 done, 1 the input is wrong, 2 usage, 3 the machine failed, 130 interrupted.");
  // A restart begins with all of them again.
  std::vector<char*> arguments(argv, argv + argc);
  const ViewFlags view = take_view_flags(arguments);
  part_launched_command(arguments);
  const auto count = static_cast<int>(arguments.size());
  double every = Teller::Options{}.every;
  app.add_option("--tell-every", every,
                 "where standard error is no terminal: seconds after which long work writes a line "
                 "on what it does; 0: never")
      ->type_name("SECONDS")
      ->capture_default_str();
  Action action;
  for (const AddCommand add :
       {add_train,   add_launch,   add_generate, add_chat,       add_eval,  add_merge,
        add_convert, add_quantize, add_plan,     add_profile,    add_bench, add_verify,
        add_show,    add_models,   add_ops,      add_functors,   add_edit,  add_tokenizer,
        add_studio,  add_help,     add_man,      add_completions}) {
    add(app, action);
  }
  name_values(app);
  // Asked by shells at every press of a key, and no command of people's.
  if (argc > 1 && std::string_view(argv[1]) == "complete") {
    print_candidates(candidates(app, std::vector<std::string>(argv + 2, argv + argc)));
    return kDone;
  }
  if (const std::string missing = missing_value(app, count, arguments.data()); !missing.empty()) {
    std::cerr << visible(missing) << "\n";
    return kUsage;
  }
  try {
    app.parse(count, arguments.data());
  } catch (const CLI::ParseError& e) {
    if (e.get_name() == "CallForVersion") {
      const bool as_json =
          std::find(argv + 1, argv + argc, std::string_view("--json")) < argv + argc;
      std::cout << (as_json ? version_json() : version_text());
      return kDone;
    }
    if (e.get_exit_code() == 0) return app.exit(e);  // --help
    std::cerr << visible(explained(app, e, count, arguments.data())) << "\n";
    return kUsage;
  }
  if (!(every >= 0 && every < 1e9)) {
    std::cerr << "adjoint: --tell-every: wanted seconds, 0 or more; see adjoint --help\n";
    return kUsage;
  }
  // Commands that run steps; others end too soon for another start to be worth it.
  for (const char* command :
       {"train", "generate", "chat", "eval", "quantize", "profile", "bench", "verify"}) {
    if (app.got_subcommand(command)) restart_with_short_waits(argv);
  }
  if (app.get_subcommand("plan")->count("--measure") > 0) restart_with_short_waits(argv);
  // Some answer Ctrl-C in their own way; the others end at once, and say what they were doing.
  std::optional<Interrupts> interrupts;
  bool own_way = false;
  for (const char* command : {"train", "chat", "launch", "studio"}) {
    own_way = own_way || app.got_subcommand(command);
  }
  if (!own_way) interrupts.emplace();
  start_telling(every);
  try {
    apply(view);
    const int code = action();
    std::cout.flush();
    if (!std::cout && code == kDone && !reader_has_left()) {
      throw MachineError("standard output cannot be written");
    }
    return code;
  } catch (const Error& e) {
    std::cerr << "adjoint: " << visible(e.what()) << "\n";
    return kBadInput;
  } catch (const std::filesystem::filesystem_error& e) {
    std::cerr << "adjoint: " << e.path1().string() << ": " << e.code().message() << "\n";
    return kBadInput;
  } catch (const Aborted& e) {
    if (!e.told) std::cerr << "adjoint: " << e.what() << "\n";
    return e.refused ? kBadInput : kMachineFailed;
  } catch (const MachineError& e) {
    std::cerr << "adjoint: " << e.what() << "\n";
    return kMachineFailed;
  } catch (const std::bad_alloc&) {
    std::cerr << "adjoint: the machine has no memory left\n";
    return kMachineFailed;
  } catch (const std::exception& e) {
    std::cerr << "adjoint: " << e.what() << "\n";
    return kMachineFailed;
  }
}
