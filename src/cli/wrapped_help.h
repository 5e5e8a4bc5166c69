// Help whose lines end where a page does, each continued below its own beginning.
#pragma once
#include <sys/ioctl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <sstream>
#include <string>

namespace adjoint {

class WrappedHelp : public CLI::Formatter {
 public:
  std::string make_option_desc(const CLI::Option* option) const override {
    const size_t width = page() - get_column_width();
    std::istringstream words(CLI::Formatter::make_option_desc(option));
    std::string text;
    size_t column = 0;
    for (std::string word; words >> word; column += word.size()) {
      if (column > 0 && column + 1 + word.size() > width) {
        text += "\n";
        column = 0;
      } else if (column > 0) {
        text += " ";
        ++column;
      }
      text += word;
    }
    return text;
  }

 private:
  // In columns: those of the terminal, of which a wide one is not filled.
  static size_t page() {
    constexpr size_t kLeast = 60, kMost = 100;
    winsize size = {};
    const bool known = ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
    return known ? std::clamp<size_t>(size.ws_col, kLeast, kMost) : kMost;
  }
};

}  // namespace adjoint
