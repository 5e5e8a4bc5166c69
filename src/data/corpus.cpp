#include "data/corpus.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/text.h"

namespace adjoint {

namespace {

std::string shown(const SafetensorView& tensor) {
  return tensor.dtype + nlohmann::json(tensor.shape).dump();
}

// The field as it should be: "whole numbers [1000]", "floating numbers [1000,65]".
std::string shown(const FieldWish& wish, int64_t tokens) {
  std::vector<int64_t> shape = wish.row;
  shape.insert(shape.begin(), tokens);
  return (wish.floating ? "floating numbers " : "whole numbers ") + nlohmann::json(shape).dump();
}

}  // namespace

std::string load_text(const std::filesystem::path& path) {
  std::string text = read_file(path);
  if (text.empty()) fail(path.string(), ": this file is empty");
  return text;
}

bool holds_fields(const std::filesystem::path& path) { return path.extension() == ".safetensors"; }

int64_t tokens_to_train_on(int64_t tokens, double val_fraction) {
  if (!(val_fraction >= 0 && val_fraction < 1)) {
    fail("the validation fraction is ", val_fraction, ", but it must be at least 0 and below 1");
  }
  // Rounded down as nanoGPT does, so that both read the same split.
  return static_cast<int64_t>(static_cast<double>(tokens) * (1 - val_fraction));
}

Corpus::Corpus(std::string name, std::vector<int32_t> tokens, double val_fraction,
               std::optional<int32_t> border)
    : name_(std::move(name)),
      tokens_(std::move(tokens)),
      border_(border),
      num_tokens_(static_cast<int64_t>(tokens_.size())),
      num_train_(tokens_to_train_on(num_tokens_, val_fraction)) {}

Corpus::Corpus(const std::filesystem::path& file, double val_fraction)
    : name_(file.string()), file_(std::make_unique<SafetensorsFile>(file)) {
  const SafetensorView* tokens = file_->find("tokens");
  if (!tokens) {
    std::vector<std::string> names;
    for (const SafetensorView& tensor : file_->tensors()) names.push_back(tensor.name);
    fail(name_, ": data of fields have a field 'tokens', found ",
         names.empty() ? "none at all" : join(names, ", "));
  }
  const auto element = element_named(tokens->dtype);
  if (tokens->shape.size() != 1 || !element || is_floating(*element)) {
    fail(name_, ": field 'tokens' is wanted as whole numbers with one axis, found ",
         shown(*tokens));
  }
  num_tokens_ = tokens->shape[0];
  num_train_ = tokens_to_train_on(num_tokens_, val_fraction);
}

int64_t Corpus::size(Split split) const {
  return split == Split::kTrain ? num_train_ : num_tokens_ - num_train_;
}

Field Corpus::whole_field(const FieldWish& wish) const {
  Field field{.name = wish.name};
  for (const int64_t size : wish.row) field.width *= size;
  const bool per_token = wish.row.empty() && !wish.floating;
  // The next token, where the data have no other targets.
  const bool next = wish.name == "targets" && per_token && !(file_ && file_->find("targets"));
  if (next) field.ahead = 1;
  if (!file_) {
    field.data = reinterpret_cast<const std::byte*>(tokens_.data());
    if (per_token && (next || wish.name == "tokens")) return field;
    if (wish.name != "segments") {
      fail(name_, ": '", wish.name, "' is given by nobody: a text has tokens and targets only; ",
           "a .safetensors file may have a field '", wish.name, "' beside its tokens");
    }
    if (!per_token) {
      fail(name_, ": 'segments' is wanted as ", shown(wish, num_tokens_),
           ", but segments of a text are one whole number a token");
    }
    if (!border_) {
      fail(name_,
           ": 'segments' cannot be told: the tokenizer has no token that ends a document; a "
           ".safetensors file may have a field 'segments' beside its tokens");
    }
    field.border = border_;
    return field;
  }
  const SafetensorView* tensor = file_->find(next ? "tokens" : wish.name);
  if (!tensor) {
    std::vector<std::string> names;
    for (const SafetensorView& there : file_->tensors()) names.push_back(there.name);
    fail(name_, ": there is no field '", wish.name, "', wanted as ", shown(wish, num_tokens_),
         "; there are ", join(names, ", "), did_you_mean(wish.name, names));
  }
  const auto element = element_named(tensor->dtype);
  std::vector<int64_t> wanted = wish.row;
  wanted.insert(wanted.begin(), num_tokens_);
  if (!element || is_floating(*element) != wish.floating || tensor->shape != wanted) {
    fail(name_, ": field '", wish.name, "' is wanted as ", shown(wish, num_tokens_), ", found ",
         shown(*tensor));
  }
  field.element = *element;
  field.data = static_cast<const std::byte*>(tensor->data);
  return field;
}

Field Corpus::field(const FieldWish& wish, Split split) const {
  Field field = whole_field(wish);
  if (split == Split::kValidation) {
    field.data += num_train_ * field.width * bytes_of(field.element);
  }
  return field;
}

void Corpus::check_entries(const FieldWish& wish, std::optional<int64_t> below,
                           std::optional<int64_t> also) const {
  const Field field = whole_field(wish);
  if (!file_ || is_floating(field.element)) return;  // a tokenizer's ids are its vocabulary's
  using Limits = std::numeric_limits<int32_t>;
  check_whole_numbers(name_, field, num_tokens_, below ? 0 : Limits::min(),
                      below.value_or(int64_t{Limits::max()} + 1), also);
}

uint64_t Corpus::hash() const {
  CHECK(file_, "a text is told from others by its bytes");
  constexpr int64_t kReadWhole = int64_t{1} << 28, kPieces = 1024, kPiece = int64_t{1} << 16;
  uint64_t hash = 0;
  for (const SafetensorView& tensor : file_->tensors()) {
    hash = hash_of(tensor.name + " " + shown(tensor), hash);
    const auto* data = static_cast<const std::byte*>(tensor.data);
    const int64_t size = tensor.size.count;
    if (size <= kReadWhole) {
      hash = hash_of(data, size, hash);
      continue;
    }
    for (int64_t i = 0; i < kPieces; ++i) {
      hash = hash_of(data + (size - kPiece) / (kPieces - 1) * i, kPiece, hash);
    }
  }
  return hash;
}

}  // namespace adjoint
