// vocab.json and merges.txt, with a line of --- between them, and ranks.
#include <cstdint>
#include <string>

#include "base/error.h"
#include "data/bpe_tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace adjoint;
  const std::string text(reinterpret_cast<const char*>(data), size);
  try {
    parts_of_ranks(text);
  } catch (const Error&) {
  }
  const size_t cut = text.find("\n---\n");
  if (cut == std::string::npos) return 0;
  try {
    const auto tokenizer = make_bpe_tokenizer(
        parts_of_vocab(text.substr(0, cut), text.substr(cut + 5), "", kGpt2Pattern, false));
    tokenizer->encode("Fuzz me \xFF\n");
  } catch (const Error&) {
  }
  return 0;
}
