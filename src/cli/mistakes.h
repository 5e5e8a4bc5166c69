// What a command line that cannot be read gets instead of the parser's own words: one sentence with
// the nearest right word.
#pragma once
#include <string>

#include "cli/command.h"

namespace adjoint {

std::string explained(const CLI::App& app, const CLI::ParseError& error, int argc,
                      const char* const* argv);

// A flag that stands where another one's value should: the parser would take `--out --resume` as a
// folder of that name. "" where there is none. A value that begins so is said as --out=--x.
std::string missing_value(const CLI::App& app, int argc, const char* const* argv);

}  // namespace adjoint
