#include "data/corpus.h"

#include <utility>

#include "base/error.h"
#include "base/file.h"

namespace adjoint {

std::string load_text(const std::filesystem::path& path) {
  std::string text = read_file(path);
  if (text.empty()) fail(path.string(), ": this file is empty");
  return text;
}

Corpus split_corpus(std::vector<int32_t> tokens, double val_fraction) {
  if (!(val_fraction >= 0 && val_fraction < 1)) {
    fail("the validation fraction is ", val_fraction, ", but it must be at least 0 and below 1");
  }
  // Rounded down as nanoGPT does, so that both read the same split.
  const auto num_train =
      static_cast<size_t>(static_cast<double>(tokens.size()) * (1 - val_fraction));
  std::vector<int32_t> validation(tokens.begin() + static_cast<std::ptrdiff_t>(num_train),
                                  tokens.end());
  tokens.resize(num_train);
  return {.train = std::move(tokens), .validation = std::move(validation)};
}

}  // namespace adjoint
