// What the flags of commands are told: the word that --help shows behind a flag, and the names and
// paths that a shell offers there. One table for all commands, because a flag of one name means the
// same thing nearly everywhere.
#pragma once
#include <string>
#include <vector>

#include "cli/command.h"

namespace adjoint {

struct ValueKind {
  std::string word;  // MODEL
  // Names that Adjoint knows. With no paths beside them, there is no other value.
  std::vector<std::string> (*names)() = nullptr;
  enum class Paths : uint8_t { kNone, kFiles, kFolders } paths = Paths::kNone;
  std::vector<std::string> choices = {};  // names that are written here
};

// "tokenizer train", of the command itself ""; without the program's name.
std::string path_of(const CLI::App& command);

// What the value of a flag, or of a positional, is; nullptr for a number or for any text.
const ValueKind* value_kind(const CLI::App& command, const CLI::Option& option);

// The subcommand or the flag (--out) of a command that other programs call so; "": none.
std::string called_elsewhere(const CLI::App& command, std::string_view word);
// How a command with --stack is told what this flag tells other programs: "; did you mean ...?", or
// nothing.
std::string flag_said_instead(const CLI::App& command, std::string_view flag,
                              const std::string& value);

// The words that a row of the table lists: "quantize --format", "--device". What refuses other
// words asks here.
const std::vector<std::string>& choices_of(const std::string& key);

// Gives all options of all commands the words of their kinds, in place of TEXT.
void name_values(CLI::App& app);

}  // namespace adjoint
