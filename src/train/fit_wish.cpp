#include "train/fit_wish.h"

#include <cctype>

#include "base/error.h"
#include "base/text.h"

namespace adjoint {

namespace {

// "; did you mean '8GB'?" of 8G.
std::string did_you_mean_bytes(std::string text) {
  for (char& c : text) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  const auto bytes = parse_bytes(text + "B");
  return bytes && bytes->count > 0 ? "; did you mean '" + text + "B'?" : "";
}

// No step is so small; who leaves the unit off means a larger one.
constexpr int64_t kLeastBudget = 10'000;

// "; did you mean '8GB'?" of 8, and 8000MB of 8000.
std::string did_you_mean_unit(const std::string& text, Bytes bytes) {
  if (text.find_first_not_of("0123456789.") != text.npos) return "";
  return "; did you mean '" + text + (bytes.count < 1000 ? "GB" : "MB") + "'?";
}

}  // namespace

Bytes budget_of(const std::string& text) {
  const auto bytes = parse_bytes(text);
  const std::string unit = bytes && bytes->count > 0 && bytes->count < kLeastBudget
                               ? did_you_mean_unit(text, *bytes)
                               : "";
  if (!bytes || bytes->count == 0 || !unit.empty()) {
    fail("--fit: wanted a size above 0 such as 24GB, 512MiB or 1000000000 (bytes), found '", text,
         "'", unit.empty() ? did_you_mean_bytes(text) : unit);
  }
  return *bytes;
}

Bytes workspace_of(const std::string& text) {
  const auto bytes = parse_bytes(text);
  if (!bytes || bytes->count == 0) {
    fail("--workspace: wanted a size above 0 such as 64MiB or 1000000 (bytes), found '", text, "'",
         did_you_mean_bytes(text));
  }
  return *bytes;
}

}  // namespace adjoint
