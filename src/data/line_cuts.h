// How a long text is tokenized in pieces that end behind a line's end, "a\n" and "b", so that their
// tokens, one behind the other, are those of the whole. A tokenizer like SentencePiece's puts a
// mark before a text, which a piece in the middle must not have; and where it takes a line's end
// for a blank, the mark of the next word stands for it.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizer.h"

namespace adjoint {

class LineCuts {
 public:
  LineCuts() = default;  // pieces are encoded as they are
  // Finds out by trying. `tokens` are all that a text can become, as they stand in a normalized
  // text; one that goes on behind a line's end forbids every cut. So does a line's end that is
  // `unknown`, because what is unknown behind it would be joined with it.
  LineCuts(const Tokenizer& tokenizer, const std::vector<std::string>& tokens,
           std::optional<int32_t> unknown);
  static LineCuts never();

  bool may_cut() const { return way_ != Way::kNever; }
  std::vector<int32_t> encode(const Tokenizer& tokenizer, std::string_view piece,
                              PieceOfText where) const;

 private:
  enum class Way : uint8_t { kAsItIs, kBehindLine, kLineIsBlank, kNever };
  Way way_ = Way::kAsItIs;
  size_t dropped_ = 0;  // tokens of what is put before a piece
};

}  // namespace adjoint
