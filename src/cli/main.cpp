// adjoint: trains decoder-only language models. One binary, one subcommand per file.
#include <fmt/format.h>

#include <csignal>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <new>

#include "base/error.h"
#include "base/version.h"
#include "cli/command.h"
#include "cli/mistakes.h"
#include "comm/wire.h"
#include "device/parallel.h"
#include "device/waiting.h"

namespace adjoint {

void use_threads(int64_t threads) {
  if (threads < 0 || threads > 1024) fail("--threads: wanted 0 to 1024, found ", threads);
  if (threads > 0) set_num_threads(static_cast<int>(threads));
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

}  // namespace adjoint

int main(int argc, char** argv) {
  using namespace adjoint;
  // A full disk is an error to report, not a signal to die of.
  std::signal(SIGXFSZ, SIG_IGN);
  std::signal(SIGPIPE, SIG_DFL);
  CLI::App app{"Adjoint trains decoder-only language models written as text."};
  app.name("adjoint");
  app.require_subcommand(1);
  app.set_version_flag("--version", std::string("adjoint ") + kVersion);
  app.footer(
      "Example:\n"
      "  adjoint train --model char --data book.txt --out runs/book\n"
      "Exit codes: 0 done, 1 the input is wrong, 2 usage, 3 the machine failed, 130 interrupted.");
  Action action;
  for (const AddCommand add :
       {add_train, add_launch, add_generate, add_chat, add_eval, add_merge, add_convert,
        add_quantize, add_plan, add_profile, add_bench, add_verify, add_show, add_ops, add_functors,
        add_tokenizer, add_help}) {
    add(app, action);
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    if (e.get_exit_code() == 0) return app.exit(e);  // --help and --version
    std::cerr << visible(explained(app, e, argc, argv)) << "\n";
    return kUsage;
  }
  // Commands that run steps; others end too soon for another start to be worth it.
  for (const char* command :
       {"train", "generate", "chat", "eval", "quantize", "profile", "bench", "verify"}) {
    if (app.got_subcommand(command)) restart_with_short_waits(argv);
  }
  try {
    const int code = action();
    std::cout.flush();
    if (!std::cout && code == kDone) throw MachineError("standard output cannot be written");
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
