#include "cli/pictures.h"

#include "base/error.h"
#include "base/file.h"
#include "base/file_view.h"
#include "report/trace.h"

namespace adjoint {

namespace fs = std::filesystem;

namespace {

// A name that ends as it should, in a folder that takes files.
void check_file(std::string_view flag, const std::string& file, std::string_view ending) {
  if (file.empty()) return;
  const fs::path path(file);
  if (path.extension() != ending) {
    fail(flag, ": wanted a file that ends in ", ending, ", found '", file, "'");
  }
  checked_output(path);  // of what is outside nothing is said
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) fail(flag, ": '", file, "' is a folder");
  const fs::path folder = path.has_parent_path() ? path.parent_path() : fs::path(".");
  if (!fs::is_directory(folder, ignored)) {
    fail(flag, ": '", file, "' cannot be written: there is no folder '", folder.string(), "'");
  }
  AtomicFile probe(path);  // gone again when this returns; fails with the system's reason
}

}  // namespace

void PictureFlags::add_to(CLI::App& command) {
  command.add_option("--by", by, "whose the bytes at the peak are: by category, block or tensor")
      ->capture_default_str();
  command.add_option("--top", top, "rows of --by tensor; 0: all (default 20)");
  command.add_option(
      "--chart", chart,
      "draw the memory over the step, or the schedule of a pipeline, into this .svg file");
  command.add_option("--compare", compare,
                     "a second stack, side by side with the first; \"\" is none");
  command.add_option("--trace", trace,
                     "write the step into this .json file, for Perfetto or chrome://tracing");
}

void PictureFlags::check() const {
  const By asked = by_named(by);
  if (top && *top < 0) fail("--top: wanted 0 (all) or more, found ", *top);
  if (top && asked != By::kTensor) {
    fail("--top: goes with --by tensor, found --by ", by, " which has no rows to leave out");
  }
  check_file("--chart", chart, ".svg");
  check_file("--trace", trace, ".json");
}

std::string stack_title(const std::string& stack) {
  return stack.find_first_not_of(' ') == std::string::npos ? "plain" : stack;
}

void write_pictures(const PictureFlags& flags, const std::string& title,
                    const std::string& subtitle, const std::vector<ChartedStep>& steps) {
  if (!flags.chart.empty()) {
    write_file_atomically(flags.chart, memory_chart(chart_of(title, subtitle, steps)));
  }
  if (!flags.trace.empty()) {
    const ChartedStep& s = steps[0];
    write_file_atomically(
        flags.trace,
        chrome_trace(s.scheme, s.plan, {.title = title + ", " + s.title, .seconds = s.seconds}));
  }
}

}  // namespace adjoint
