// A .model file is refused, or encodes and decodes a text.
#include "data/sentencepiece.h"
#include "fuzz/fuzz_target.h"

namespace adjoint {

FUZZ_TARGET(sentencepiece) {
  const auto tokenizer = make_sentencepiece_tokenizer(std::string(input));
  tokenizer->decode(tokenizer->encode("the cat  sat \xC3\xA9\xFF\n"));
}

}  // namespace adjoint
