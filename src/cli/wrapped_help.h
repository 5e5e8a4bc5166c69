// Help whose lines end where a page does, each continued below its own beginning.
#pragma once
#include <CLI/CLI.hpp>
#include <sstream>
#include <string>

namespace adjoint {

class WrappedHelp : public CLI::Formatter {
 public:
  std::string make_option_desc(const CLI::Option* option) const override {
    constexpr size_t kPage = 100;  // columns
    const size_t width = kPage - get_column_width();
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
};

}  // namespace adjoint
