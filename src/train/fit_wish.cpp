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

}  // namespace

Bytes budget_of(const std::string& text) {
  const auto bytes = parse_bytes(text);
  if (!bytes || bytes->count == 0) {
    fail("--fit: wanted a size above 0 such as 24GB, 512MiB or 1000000000 (bytes), found '", text,
         "'", did_you_mean_bytes(text));
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
