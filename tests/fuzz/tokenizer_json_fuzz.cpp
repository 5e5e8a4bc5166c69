// A tokenizer.json is refused with an Error, or is a tokenizer that takes any text.
#include <cstdint>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "data/bpe_tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace adjoint;
  try {
    const auto tokenizer =
        make_bpe_tokenizer(parts_of_json({reinterpret_cast<const char*>(data), size}));
    for (const char* text : {"Fuzz  me \xC3\xA9\xFF\n12 <s>", ""}) {
      tokenizer->decode(tokenizer->encode(text));
      tokenizer->decode(tokenizer->encode_with_specials(text));
    }
    tokenizer->to_json();
  } catch (const Error&) {
  }
  return 0;
}
