// adjoint edit: changes a model's or a functor's text as a drawing asks, and leaves the rest of it
// byte for byte as it was.
#include "edit/edit.h"

#include <iostream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "base/file_view.h"
#include "base/json.h"
#include "cli/command.h"

namespace adjoint {

namespace {

// A request holds one text; what is larger than any text was sent by mistake.
constexpr size_t kLargestRequest = size_t{64} << 20;

struct EditFlags {
  std::string request;
  bool write = false;
};

std::string request_text(const EditFlags& flags) {
  if (!flags.request.empty()) return read_file(flags.request);
  std::string text;
  char buffer[1 << 16];
  while (std::cin.read(buffer, sizeof buffer) || std::cin.gcount() > 0) {
    text.append(buffer, static_cast<size_t>(std::cin.gcount()));
    if (text.size() > kLargestRequest) fail("the request is larger than 64 MiB");
  }
  return text;
}

int run_edit(const EditFlags& flags) {
  const nlohmann::json request =
      parse_json(request_text(flags), flags.request.empty() ? "the request" : flags.request);
  const nlohmann::json answer = answer_edit(request);
  const std::string file = request["file"].get<std::string>();
  std::string printed;
  try {
    printed = answer.dump();
  } catch (const nlohmann::json::exception&) {
    fail(file, ": this text is not UTF-8, so JSON cannot hold it");
  }
  if (flags.write) {
    const auto sent = request.find("text");
    std::error_code error;
    if (sent != request.end() && std::filesystem::exists(file, error) &&
        *sent != nlohmann::json(read_file(file))) {
      fail(file, ": --write: the file is not the request's 'text', and would be lost");
    }
    // What a link leads to is written, and the link stays.
    write_file_atomically(followed(file).value_or(file), answer["text"].get<std::string>());
  }
  std::cout << printed << "\n";
  return kDone;
}

}  // namespace

void add_edit(CLI::App& app, Action& action) {
  CLI::App* command = app.add_subcommand(
      "edit", "change a model's or a functor's text as a drawing asks, and keep its layout");
  auto flags = std::make_shared<EditFlags>();
  command->add_option("--request", flags->request,
                      "a JSON file with the request; else it is read from standard input");
  command->add_flag("--write", flags->write, "write the new text to the request's file, too");
  command->footer(
      "Example:\n"
      "  echo '{\"file\": \"my.scheme\", \"edit\": {\"kind\": \"set\", \"axis\": \"hidden\", "
      "\"to\": \"512\"}}' | adjoint edit\n"
      "docs/edit.md lists the edits.");
  command->callback([flags, &action] { action = [flags] { return run_edit(*flags); }; });
}

}  // namespace adjoint
