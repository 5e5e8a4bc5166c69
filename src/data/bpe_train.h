// Learns byte-level byte pairs from texts (Sennrich et al., 2016): the pair of neighbours that
// occurs most often inside pieces becomes a token, again and again. Of pairs that occur as often
// the one of lower ids is first, and special tokens and bytes have the first ids, all as the
// tokenizers library has it, so that both learn the same.
#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/bpe_tokenizer.h"

namespace adjoint {

struct BpeTraining {
  int64_t vocab = 32000;  // tokens wanted, special ones and 256 bytes among them
  std::string pattern = kGpt2Pattern;
  std::vector<std::string> specials = {"<|endoftext|>"};
  int64_t least_count = 2;  // a pair that occurs less often is not merged
  int threads = 1;
  // Told after each hundred merges, of so many.
  std::function<void(int64_t merges, int64_t wanted)> told = {};
};

// A texts' names of special tokens are not learned from. The file has fewer tokens than were wanted
// where no pair is left that occurs often enough.
ByteLevelFile train_bpe(std::span<const std::string_view> texts, const BpeTraining& options);

}  // namespace adjoint
