// A text file as tokens to train on and tokens to validate on.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace adjoint {

// The whole file; an Error names one that is missing, empty or not a plain file.
std::string load_text(const std::filesystem::path& path);

struct Corpus {
  std::vector<int32_t> train, validation;
};

// The first 1 - `val_fraction` of the tokens are for training, the rest for validation. They are
// not shuffled: crops overlap, so tokens of a shuffled validation part would have been trained on.
Corpus split_corpus(std::vector<int32_t> tokens, double val_fraction);

}  // namespace adjoint
