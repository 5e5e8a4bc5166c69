// Finds added tokens in a text: the leftmost, and of those that begin at the same byte the longest.
#pragma once
#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace adjoint {

// A token that is found in a text before anything else is.
struct AddedToken {
  std::string content;
  int32_t id = 0;
  bool special = false;
  bool takes_blanks_before = false, takes_blanks_behind = false;
  bool in_normalized = false;  // looked for behind the normalizers, in their words
};

class AddedFinder {
 public:
  explicit AddedFinder(std::vector<AddedToken> tokens);

  // In order, the parts between tokens, without a token, and the tokens, without a text; `at` is
  // where each begins. Special tokens are left in the text unless they are wanted.
  using Visit = std::function<void(std::string_view part, size_t at, const AddedToken* token)>;
  void for_each_part(std::string_view text, bool with_specials, const Visit& visit) const;

 private:
  const AddedToken* token_at(std::string_view text, size_t at) const;

  std::vector<AddedToken> tokens_;
  std::array<std::vector<size_t>, 256> starts_;  // by the first byte, the longest first
  bool all_special_ = true;
};

}  // namespace adjoint
