// adjoint help TOPIC: a section of the pages under docs that travel inside the program, an op, a
// functor or an optimizer.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <functional>
#include <iostream>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/text.h"
#include "cli/answer.h"
#include "cli/command.h"
#include "cli/pages.h"
#include "cli/values.h"
#include "functors/functor.h"
#include "functors/optimizer_text.h"
#include "ops/op_def.h"
#include "ops/words.h"

namespace adjoint {

namespace {

struct Section {
  std::string_view page;  // notation.md
  std::string title;      // Attention
  std::string_view text;  // with its heading
};

std::vector<Section> sections() {
  std::vector<Section> all;
  for (const HelpPage& page : pages()) {
    for (size_t at = page.text.find("\n## "); at != page.text.npos;) {
      const size_t next = page.text.find("\n## ", at + 1);
      const std::string_view text = page.text.substr(at + 1, next - at - 1);
      const std::string_view title = text.substr(3, text.find('\n') - 3);
      all.push_back({page.name, std::string(title), text});
      at = next;
    }
  }
  return all;
}

std::string op_text(const OpDef& op) {
  return fmt::format("{}\n    {}\n", signature(op), op.summary);
}

// A page by its name, a section by its title, then ops, words, functors and optimizers.
std::string text_for(const std::string& topic) {
  const std::string wanted = lowered(topic);
  std::string found;
  for (const HelpPage& page : pages()) {
    if (page.name.substr(0, page.name.find('.')) == wanted) return std::string(page.text);
  }
  for (const Section& section : sections()) {
    if (lowered(section.title) == wanted) found += section.text;
  }
  if (const OpDef* op = find_op(wanted); op && !op->params.empty()) {
    found = op_text(*op) + (found.empty() ? "" : "\n" + found);
  }
  if (const OpDef* word = find_word(wanted)) found += op_text(*word);
  for (const Functor* f : all_functors()) {
    if (f->name != wanted) continue;
    found += fmt::format("{}: {}\n    law: {}{}\n", f->name, f->summary, name(f->law),
                         f->against_text.empty() ? "" : " against " + f->against_text);
    if (!f->text.empty()) found += "\n" + f->text;
  }
  for (const OptimizerFile& file : optimizer_files()) {
    if (file.name.substr(0, file.name.find('.')) == wanted) found += file.text;
  }
  return found;
}

// The titles of sections in which a word stands by itself.
std::vector<std::string> sections_with(const std::string& word) {
  const auto is_part = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || c == '_';
  };
  std::vector<std::string> titles;
  for (const Section& section : sections()) {
    const std::string text = lowered(section.text);
    for (size_t at = text.find(word); at != text.npos; at = text.find(word, at + 1)) {
      const size_t end = at + word.size();
      if ((at > 0 && is_part(text[at - 1])) || (end < text.size() && is_part(text[end]))) continue;
      if (std::find(titles.begin(), titles.end(), lowered(section.title)) == titles.end()) {
        titles.push_back(lowered(section.title));
      }
      break;
    }
  }
  return titles;
}

std::string contents() {
  std::string out =
      "adjoint help TOPIC prints a page, a section of one, or what is known of an op, a word, "
      "a functor or an optimizer.\n";
  std::string_view page;
  for (const Section& section : sections()) {
    if (section.page != page) {
      page = section.page;
      out += fmt::format("\n{}\n", page.substr(0, page.find('.')));
    }
    out += "  " + lowered(section.title) + "\n";
  }
  return out +
         "\nOps, words and optimizers are listed by `adjoint ops`, functors by `adjoint "
         "functors`.\n";
}

// The commands, by what stands behind `adjoint`, for which `chosen` holds.
std::vector<std::string> commands_with(const CLI::App& app,
                                       const std::function<bool(const CLI::App&)>& chosen) {
  std::vector<std::string> found;
  for (const CLI::App* command : app.get_subcommands(nullptr)) {
    if (chosen(*command)) found.push_back(path_of(*command));
    const std::vector<std::string> below = commands_with(*command, chosen);
    found.insert(found.end(), below.begin(), below.end());
  }
  return found;
}

// "; `adjoint train --help` says what train does", if the topic is a command or a flag of some.
std::string help_of_commands(const CLI::App& app, const std::string& topic) {
  const auto commands =
      commands_with(app, [&](const CLI::App& command) { return path_of(command) == topic; });
  if (!commands.empty()) return "; it is a command: see adjoint " + topic + " --help";
  const std::string flag = topic.starts_with("--") ? topic : "--" + topic;
  const auto takers = commands_with(
      app, [&](const CLI::App& command) { return command.get_option_no_throw(flag) != nullptr; });
  if (takers.empty()) return "";
  return "; " + flag + " is a flag of " + join(takers, ", ") + ": see adjoint " + takers[0] +
         " --help";
}

int run(const CLI::App& app, const std::vector<std::string>& words, bool as_json) {
  const std::string topic = join(words, " ");
  std::string text = topic.empty() ? contents() : text_for(topic);
  if (text.empty()) {
    std::vector<std::string> known;
    for (const HelpPage& page : pages())
      known.emplace_back(page.name.substr(0, page.name.find('.')));
    for (const Section& section : sections()) known.push_back(lowered(section.title));
    for (const OpDef* op : all_ops()) {
      if (!op->params.empty()) known.emplace_back(op->name);
    }
    for (const OpDef& word : notation_words()) known.emplace_back(word.name);
    for (const Functor* f : all_functors()) known.push_back(f->name);
    for (const std::string& optimizer : known_optimizers()) known.push_back(optimizer);
    const std::vector<std::string> speaking = sections_with(lowered(topic));
    const std::string near = did_you_mean(lowered(topic), known);
    const std::string of_commands = help_of_commands(app, lowered(topic));
    fail("there is no help on '", topic, "'",
         !speaking.empty() ? ", but these sections speak of it: " + join(speaking, ", ") : "",
         !of_commands.empty() ? of_commands
         : !speaking.empty()  ? ""
         : !near.empty()      ? near
                              : "; `adjoint help` lists what there is");
  }
  if (as_json) {
    print_answer("help", {{"topic", topic}, {"text", text}});
  } else {
    std::cout << text << (text.ends_with('\n') ? "" : "\n");
  }
  return kDone;
}

}  // namespace

void add_help(CLI::App& app, Action& action) {
  auto words = std::make_shared<std::vector<std::string>>();
  auto as_json = std::make_shared<bool>(false);
  CLI::App* command = app.add_subcommand("help", "the notations and laws, explained by topic");
  command->add_option("topic", *words,
                      "a page, a section, an op, a functor or an optimizer; none: a list");
  command->add_flag("--json", *as_json, "as JSON");
  command->footer("Examples:\n  adjoint help\n  adjoint help attention\n  adjoint help lora");
  command->callback(
      [=, &app, &action] { action = [=, &app] { return run(app, *words, *as_json); }; });
}

}  // namespace adjoint
