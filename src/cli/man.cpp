// adjoint man: the manual pages, written from what --help says. A page is a command's description,
// its options and the text at its end, of which indented lines are examples.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <sstream>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "base/version.h"
#include "cli/build.h"
#include "cli/command.h"
#include "cli/values.h"

namespace adjoint {

namespace {

// As roff reads it: no line is a request, and a hyphen can be copied into a shell.
std::string roff(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\') {
      out += "\\e";
    } else if (c == '-') {
      out += "\\-";
    } else {
      if ((c == '.' || c == '\'') && (out.empty() || out.back() == '\n')) out += "\\&";
      out += c;
    }
  }
  return out;
}

std::string dashed(const CLI::App& command) {  // adjoint-bench-step
  std::string name = "adjoint " + path_of(command);
  if (name.back() == ' ') name.pop_back();
  std::replace(name.begin(), name.end(), ' ', '-');
  return name;
}

struct Footer {
  std::string text, examples;
};
Footer footer_of(const CLI::App& command) {
  Footer footer;
  std::istringstream in(command.get_footer());
  for (std::string line; std::getline(in, line);) {
    if (line == "Example:" || line == "Examples:") continue;
    if (line.starts_with("  ")) {
      footer.examples += roff(line.substr(2)) + "\n";
    } else {
      footer.text += roff(line) + "\n";
    }
  }
  return footer;
}

// --model MODEL, with its default.
std::string head_of(const CLI::Option& option) {
  const bool positional = option.get_positional();
  std::string head;
  if (positional) {
    head = "\\fI" + roff(option.get_name(true)) + "\\fR";
  } else {
    std::vector<std::string> names;
    for (const std::string& name : option.get_snames()) names.push_back("-" + name);
    for (const std::string& name : option.get_lnames()) names.push_back("--" + name);
    head = "\\fB" + roff(join(names, ", ")) + "\\fR";
    if (option.get_items_expected_max() > 0) {
      head += " \\fI" + roff(option.get_type_name()) + "\\fR";
    }
  }
  if (option.get_items_expected_max() > 1) head += " ...";
  if (!option.get_default_str().empty()) head += " [" + roff(option.get_default_str()) + "]";
  return head;
}

std::string synopsis_of(const CLI::App& command) {
  const std::string path = path_of(command);
  std::string line = "\\fBadjoint" + (path.empty() ? "" : " " + roff(path)) + "\\fR";
  for (const CLI::Option* option : command.get_options()) {
    if (!option->get_required() || option->get_positional()) continue;
    line += " " + head_of(*option);
  }
  line += command.get_subcommands(nullptr).empty() ? " [\\fIoption\\fR ...]"
                                                   : " \\fIcommand\\fR [\\fIoption\\fR ...]";
  for (const CLI::Option* option : command.get_options()) {
    if (!option->get_positional()) continue;
    line += option->get_required() ? " " + head_of(*option) : " [" + head_of(*option) + "]";
  }
  return line + "\n";
}

std::string page_of(const CLI::App& command) {
  const std::string name = dashed(command);
  std::string upper = name;
  for (char& c : upper) c = static_cast<char>(c >= 'a' && c <= 'z' ? c - 'a' + 'A' : c);
  const Footer footer = footer_of(command);
  std::string page = fmt::format(
      ".\\\" Written by `adjoint man`, from what --help says.\n"
      ".TH {} 1 \"{}\" \"adjoint {}\" \"Adjoint\"\n.SH NAME\n{} \\- {}\n.SH SYNOPSIS\n{}",
      upper, build().date, kVersion, roff(name), roff(command.get_description()),
      synopsis_of(command));
  if (!footer.text.empty()) page += ".SH DESCRIPTION\n" + footer.text;
  std::string commands, options;
  for (const CLI::App* sub : command.get_subcommands(nullptr)) {
    commands += fmt::format(".TP\n\\fB{}\\fR\n{}; see \\fB{}\\fR(1)\n", roff(sub->get_name()),
                            roff(sub->get_description()), roff(dashed(*sub)));
  }
  if (!commands.empty()) page += ".SH COMMANDS\n" + commands;
  for (const CLI::Option* option : command.get_options()) {
    options += ".TP\n" + head_of(*option) + "\n" + roff(option->get_description()) + "\n";
  }
  if (!options.empty()) page += ".SH OPTIONS\n" + options;
  if (!footer.examples.empty()) page += ".SH EXAMPLES\n.nf\n" + footer.examples + ".fi\n";
  const CLI::App* above = command.get_parent();
  if (above) page += ".SH SEE ALSO\n\\fB" + roff(dashed(*above)) + "\\fR(1)\n";
  return page;
}

void write_pages(const CLI::App& command, const std::filesystem::path& folder) {
  write_file_atomically(folder / (dashed(command) + ".1"), page_of(command));
  for (const CLI::App* sub : command.get_subcommands(nullptr)) write_pages(*sub, folder);
}

int run_man(const CLI::App& app, const std::vector<std::string>& words, const std::string& out) {
  const CLI::App* command = &app;
  for (const std::string& word : words) {
    const CLI::App* next = nullptr;
    std::vector<std::string> names;
    for (const CLI::App* sub : command->get_subcommands(nullptr)) {
      names.push_back(sub->get_name());
      if (sub->get_name() == word) next = sub;
    }
    if (!next) fail("man: there is no command '", word, "'", did_you_mean(word, names));
    command = next;
  }
  if (out.empty()) {
    std::cout << page_of(*command);
    return kDone;
  }
  std::filesystem::create_directories(out);
  write_pages(*command, out);
  return kDone;
}

}  // namespace

void add_man(CLI::App& app, Action& action) {
  struct Flags {
    std::vector<std::string> words;
    std::string out;
  };
  CLI::App* command = app.add_subcommand("man", "a manual page, as man reads it");
  auto flags = std::make_shared<Flags>();
  command->add_option("command", flags->words, "whose page; none: of the program");
  command->add_option("--out", flags->out,
                      "write the page, and those of commands below it, into this folder");
  command->footer(
      "Examples:\n"
      "  adjoint man train | man -l -\n"
      "  adjoint man --out man1");
  command->callback([&app, flags, &action] {
    action = [&app, flags] { return run_man(app, flags->words, flags->out); };
  });
}

}  // namespace adjoint
