// vocab.json, merges.txt and added_tokens.json; and ranks.
#include "data/bpe_tokenizer.h"
#include "fuzz/fuzz_target.h"

namespace adjoint {

FUZZ_TARGET(vocab_files) {
  refuse_or([&] { parts_of_ranks(std::string(input)); });
  const auto tokenizer = make_bpe_tokenizer(
      parts_of_vocab(std::string(part_of(input, 0)), std::string(part_of(input, 1)),
                     std::string(part_of(input, 2)), kGpt2Pattern, false));
  tokenizer->encode("Fuzz me \xFF\n");
}

}  // namespace adjoint
