#include "cli/mistakes.h"

#include "base/text.h"

namespace adjoint {

namespace {

std::string full_name(const CLI::App& command) {
  const CLI::App* const above = command.get_parent();
  return above ? full_name(*above) + " " + command.get_name() : command.get_name();
}

const CLI::App* command_named(const CLI::App& app, const std::string& word) {
  for (const CLI::App* sub : app.get_subcommands(nullptr)) {
    if (sub->get_name() == word) return sub;
  }
  return nullptr;
}

std::vector<std::string> names_of_commands(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* sub : app.get_subcommands(nullptr)) names.push_back(sub->get_name());
  return names;
}

// With their dashes.
std::vector<std::string> names_of_flags(const CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::Option* option : command.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
    for (const std::string& name : option->get_snames()) names.push_back("-" + name);
  }
  return names;
}

const CLI::Option* flag_named(const CLI::App& command, const std::string& flag) {
  return flag.starts_with('-') ? command.get_option_no_throw(flag) : nullptr;
}

}  // namespace

std::string explained(const CLI::App& app, const CLI::ParseError& error, int argc,
                      const char* const* argv) {
  const CLI::App* command = &app;
  int i = 1;
  for (; i < argc; ++i) {
    const CLI::App* const sub = command_named(*command, argv[i]);
    if (!sub) break;
    command = sub;
  }
  const std::string see = "; see " + full_name(*command) + " --help";
  const std::vector<std::string> commands = names_of_commands(*command);
  if (!commands.empty() && (i == argc || argv[i][0] != '-')) {
    const std::string wanted = " (" + join(commands, ", ") + ")";
    if (i == argc) return full_name(*command) + ": wanted a command" + wanted + see;
    const std::string near = did_you_mean(argv[i], commands);
    return full_name(*command) + ": there is no command '" + argv[i] + "'" +
           (near.empty() ? wanted : near);
  }
  for (; i < argc; ++i) {
    const std::string word = argv[i], flag = word.substr(0, word.find('='));
    if (word == "--") break;  // what follows is another command's
    if (const CLI::Option* known = flag_named(*command, flag)) {
      // What follows is its value, whatever it looks like: --stack -fuse.
      if (known->get_items_expected_min() > 0 && flag == word) ++i;
      continue;
    }
    if (word.size() < 2 || word[0] != '-') continue;
    const std::string near = did_you_mean(flag, names_of_flags(*command));
    return full_name(*command) + ": there is no flag '" + flag + "'" + (near.empty() ? see : near);
  }
  return full_name(*command) + ": " + error.what() + see;
}

}  // namespace adjoint
