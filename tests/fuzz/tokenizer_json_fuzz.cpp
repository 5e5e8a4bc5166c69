// A tokenizer.json, of others or of ours, is refused, or is a tokenizer that takes any text.
#include <nlohmann/json.hpp>

#include "data/bpe_tokenizer.h"
#include "fuzz/fuzz_target.h"

namespace adjoint {

FUZZ_TARGET(tokenizer_json) {
  const std::filesystem::path file = fuzz_folder() / "tokenizer.json";
  put_file(file, input);
  const auto tokenizer = load_tokenizer(file);
  for (const char* text : {"Fuzz  me \xC3\xA9\xFF\n12 <s>", ""}) {
    refuse_or([&] { tokenizer->decode(tokenizer->encode(text)); });
    refuse_or([&] { tokenizer->decode(tokenizer->encode_with_specials(text)); });
  }
  tokenizer->to_json();
}

}  // namespace adjoint
