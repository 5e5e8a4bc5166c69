// The flags with which a command shows whose a step's memory is and draws it over time.
#pragma once
#include <CLI/CLI.hpp>
#include <optional>
#include <string>

#include "plan/plan.h"
#include "report/memory_chart.h"
#include "report/owner_table.h"

namespace adjoint {

struct PictureFlags {
  std::string by = "category";
  std::optional<int64_t> top;
  std::string chart, trace;            // files to write; "": none
  std::optional<std::string> compare;  // a second stack

  void add_to(CLI::App& command);
  // What can be refused without planning anything: words, and files that cannot be written.
  void check() const;
  int64_t rows() const { return top.value_or(20); }
};

// The stack as a title: "plain" for none.
std::string stack_title(const std::string& stack);

// Writes the files that the flags name. The first step is the one that is traced.
void write_pictures(const PictureFlags& flags, const std::string& title,
                    const std::string& subtitle, const std::vector<ChartedStep>& steps);

}  // namespace adjoint
