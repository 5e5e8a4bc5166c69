// Texts that tests read and the repository does not have: in the folder that ADJOINT_TEXTS names,
// or else in shared/data beside the checkout.
#pragma once
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>

namespace adjoint {

// Nothing where the text is not there: then the test is skipped, with `no_shared_text` as the
// reason.
inline std::optional<std::filesystem::path> shared_text(const std::string& name) {
  const char* const said = std::getenv("ADJOINT_TEXTS");
  const std::filesystem::path folder =
      said ? std::filesystem::path(said) : std::filesystem::path(SOURCE_DIR) / "../shared/data";
  const std::filesystem::path file = folder / name;
  std::error_code ignored;
  return std::filesystem::exists(file, ignored) ? std::optional(file) : std::nullopt;
}

inline std::string no_shared_text(const std::string& name) {
  return "there is no " + name + " in ../shared/data, nor in the folder that ADJOINT_TEXTS names";
}

}  // namespace adjoint
