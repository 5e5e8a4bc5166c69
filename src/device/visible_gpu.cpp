#include "device/visible_gpu.h"

#include <cstdlib>
#include <sstream>
#include <vector>

#include "base/error.h"
#include "device/gpu.h"

namespace adjoint {

namespace {
constexpr const char* kVariable = "CUDA_VISIBLE_DEVICES";
}

std::optional<std::string> visible_gpu(const std::optional<std::string>& visible, int number,
                                       int processes) {
  CHECK(number >= 0 && number < processes, "a process of this machine");
  if (processes == 1) return std::nullopt;
  if (!visible) return std::to_string(number);
  std::vector<std::string> named;
  std::istringstream names(*visible);
  for (std::string name; std::getline(names, name, ',');) named.push_back(name);
  // A scheduler that gives every process a GPU shows it that one alone.
  if (named.size() <= 1) return std::nullopt;
  if (static_cast<int>(named.size()) < processes) {
    fail(kVariable, " names ", named.size(), " GPUs, and ", processes,
         " ranks run on this machine; each wants one of its own");
  }
  return named[number];
}

void take_gpu(int number, int processes) {
  const char* said = std::getenv(kVariable);
  const auto own =
      visible_gpu(said ? std::optional<std::string>(said) : std::nullopt, number, processes);
  if (own) ::setenv(kVariable, own->c_str(), /*overwrite=*/1);
  try {
    open_gpu();
  } catch (const Error& e) {
    if (!own) throw;
    fail(e.what(), " (", processes, " ranks run on this machine, and this one was to have GPU ",
         *own, ")");
  }
}

}  // namespace adjoint
