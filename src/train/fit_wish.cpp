#include "train/fit_wish.h"

#include "base/error.h"
#include "base/text.h"

namespace adjoint {

Bytes budget_of(const std::string& text) {
  const auto bytes = parse_bytes(text);
  if (!bytes || bytes->count == 0) {
    fail("--fit: wanted a size above 0 such as 24GB, 512MiB or 1000000000 (bytes), found '", text,
         "'");
  }
  return *bytes;
}

Bytes workspace_of(const std::string& text) {
  const auto bytes = parse_bytes(text);
  if (!bytes || bytes->count == 0) {
    fail("--workspace: wanted a size above 0 such as 64MiB or 1000000 (bytes), found '", text, "'");
  }
  return *bytes;
}

}  // namespace adjoint
