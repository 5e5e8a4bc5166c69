// A .model file is refused with an Error, or encodes and decodes a text.
#include <cstdint>

#include "base/error.h"
#include "data/sentencepiece.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace adjoint;
  try {
    const auto tokenizer =
        make_sentencepiece_tokenizer({reinterpret_cast<const char*>(data), size});
    tokenizer->decode(tokenizer->encode("the cat  sat \xC3\xA9\xFF\n"));
  } catch (const Error&) {
  }
  return 0;
}
