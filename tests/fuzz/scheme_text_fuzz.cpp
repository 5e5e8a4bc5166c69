// A model's text is refused, or becomes a scheme that prints, reads itself and is the same.
#include <algorithm>
#include <cctype>

#include "fuzz/fuzz_target.h"
#include "models/elaborate.h"
#include "scheme/scheme.h"

namespace adjoint {

// A text may ask for 2^18 calls, which takes seconds: not what is looked for.
static bool says_large_numbers(std::string_view text) {
  size_t digits = 0;
  for (const char c : text) {
    digits = std::isdigit(static_cast<unsigned char>(c)) ? digits + 1 : 0;
    if (digits > 2) return true;
  }
  return false;
}

FUZZ_TARGET(scheme_text) {
  refuse_or([&] { parse_scheme(input); });
  const Document document = parse_document(input, "my.scheme");
  if (says_large_numbers(input)) return;
  const Scheme scheme = elaborate(document, "my.scheme", {});
  const std::string printed = print(scheme);
  CHECK(print(parse_scheme(printed)) == printed, "what is printed reads the same");
}

}  // namespace adjoint
