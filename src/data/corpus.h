// What is trained and validated on: fields with one entry per token, by name. A text has its tokens
// alone; a .safetensors file has `tokens` and whatever a model's inputs ask for by their names.
#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/field.h"
#include "data/safetensors.h"

namespace adjoint {

// The whole file; an Error names one that is missing, empty or not a plain file.
std::string load_text(const std::filesystem::path& path);

// Whether data of this name are fields, not a text.
bool holds_fields(const std::filesystem::path& path);

// The first 1 - `val_fraction` of the tokens are for training, the rest for validation. They are
// not shuffled: crops overlap, so tokens of a shuffled validation part would have been trained on.
enum class Split : uint8_t { kTrain, kValidation };
int64_t tokens_to_train_on(int64_t tokens, double val_fraction);

// What an input of a model asks of the data.
struct FieldWish {
  std::string name;
  std::vector<int64_t> row = {};  // the shape of a token's entry
  bool floating = false;
};

class Corpus {
 public:
  Corpus() = default;
  // A text's tokens. `border` is the token that ends a document, if the tokenizer has one.
  Corpus(std::string name, std::vector<int32_t> tokens, double val_fraction,
         std::optional<int32_t> border = {});
  // A file of fields, which is mapped.
  Corpus(const std::filesystem::path& file, double val_fraction);

  int64_t size(Split split) const;  // in tokens
  // The field of this name: targets are the next token where there are none, and segments are
  // counted where a text has borders. An Error says what was wanted and what there is.
  Field field(const FieldWish& wish, Split split) const;
  // Refuses entries of the field, anywhere in the data, that are not whole numbers of [0, below) or
  // `also`; without `below`, that do not fit int32.
  void check_entries(const FieldWish& wish, std::optional<int64_t> below,
                     std::optional<int64_t> also) const;

  // Tells a file of fields from others. Of fields above a quarter of a gigabyte only pieces are
  // read.
  uint64_t hash() const;

 private:
  Field whole_field(const FieldWish& wish) const;

  std::string name_;
  std::vector<int32_t> tokens_;            // of a text
  std::unique_ptr<SafetensorsFile> file_;  // or the fields
  std::optional<int32_t> border_;
  int64_t num_tokens_ = 0, num_train_ = 0;
};

}  // namespace adjoint
