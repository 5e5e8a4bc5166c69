// A functor of a user's own that recomputes blocks but for the sums over ranks inside of them, as
// docs/rank_accounts.md shows it.
#pragma once
#include <string>

#include "base/file.h"
#include "functors/functor_text.h"
#include "functors/stack.h"

namespace adjoint {

inline Stack with_kept_sums(const std::string& rest) {
  const std::string page = read_file(std::string(SOURCE_DIR) + "/docs/rank_accounts.md");
  const size_t begin = page.find("functor keep_sums:\n"), end = page.find("```", begin);
  const Functor keeps = parse_functor(page.substr(begin, end - begin), "keep_sums.functor");
  Stack stack = parse_stack(rest);
  stack.functors.insert(stack.functors.begin(), {keeps, Arguments("keep_sums", {}, Term{}), false});
  return stack;
}

}  // namespace adjoint
