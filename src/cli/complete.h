// What may follow on a command line, for the shells: `adjoint complete WORD...` with the words
// behind the program's name, the last of which is being typed. A shell's own script (cli/
// completions.cpp) only asks and shows, so that flags and names are known in one place, the parser.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "cli/values.h"

namespace adjoint {

struct Candidate {
  std::string word, summary;
};
struct Candidates {
  std::vector<Candidate> words = {};  // that begin with what was typed
  ValueKind::Paths paths = ValueKind::Paths::kNone;
  bool open = false;  // each of them wants more behind it, without a space
};
Candidates candidates(const CLI::App& app, std::span<const std::string> words);

// First a line that says `words`, `files` or `folders`, maybe with `open`, then a line for each
// word: the word, a tab and its summary.
void print_candidates(const Candidates& found);

}  // namespace adjoint
