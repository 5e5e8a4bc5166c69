// What a command line that cannot be read gets instead of the parser's own words: one sentence with
// the nearest right word.
#pragma once
#include <string>

#include "cli/command.h"

namespace adjoint {

std::string explained(const CLI::App& app, const CLI::ParseError& error, int argc,
                      const char* const* argv);

}  // namespace adjoint
