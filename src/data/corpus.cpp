#include "data/corpus.h"

#include <algorithm>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/activity.h"
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

// Of a larger field, which may be more than memory holds, pieces are hashed.
constexpr int64_t kHashedWhole = int64_t{1} << 28;

}  // namespace

std::string load_text(const std::filesystem::path& path) {
  std::string text = read_file(path);
  if (text.empty()) fail(path.string(), ": this file is empty");
  return text;
}

int64_t tokens_to_train_on(int64_t tokens, double val_fraction) {
  if (!(val_fraction >= 0 && val_fraction < 1)) {
    fail("the validation fraction is ", val_fraction, ", but it must be at least 0 and below 1");
  }
  // Rounded down as nanoGPT does, so that both read the same split.
  return static_cast<int64_t>(static_cast<double>(tokens) * (1 - val_fraction));
}

FieldsCorpus::FieldsCorpus(const std::filesystem::path& file, double val_fraction)
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

int64_t FieldsCorpus::size(Split split) const {
  return split == Split::kTrain ? num_train_ : num_tokens_ - num_train_;
}

Field FieldsCorpus::whole_field(const FieldWish& wish) const {
  Field field{.name = wish.name};
  for (const int64_t size : wish.row) field.width *= size;
  // The next token, where the data have no other targets.
  const bool next =
      wish.name == "targets" && wish.row.empty() && !wish.floating && !file_->find("targets");
  if (next) field.ahead = 1;
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

Field FieldsCorpus::field(const FieldWish& wish, Split split) const {
  Field field = whole_field(wish);
  if (split == Split::kValidation) {
    field.data += num_train_ * field.width * bytes_of(field.element);
  }
  return field;
}

void FieldsCorpus::check_entries(const FieldWish& wish, std::optional<int64_t> below,
                                 std::optional<int64_t> also) const {
  const Field field = whole_field(wish);
  if (is_floating(field.element)) {
    const Activity activity("reading field '" + wish.name + "'");
    check_floating_numbers(name_, field, num_tokens_, wish.masks);
    return;
  }
  using Limits = std::numeric_limits<int32_t>;
  constexpr int64_t kExact = int64_t{1} << std::numeric_limits<float>::digits;
  const bool rounded = wish.computed_with && below.value_or(kExact + 2) > kExact + 1;
  const int64_t least = below ? 0 : rounded ? -kExact : Limits::min();
  const int64_t end = rounded ? kExact + 1 : below.value_or(int64_t{Limits::max()} + 1);
  check_whole_numbers(
      name_, field, num_tokens_, least, end, also,
      rounded ? ": the model computes with it in float32, which has no others" : "");
}

uint64_t FieldsCorpus::hash() const {
  constexpr int64_t kPieces = 1024, kPiece = int64_t{1} << 16;
  uint64_t hash = 0;
  for (const SafetensorView& tensor : file_->tensors()) {
    hash = hash_of(tensor.name + " " + shown(tensor), hash);
    const auto* data = static_cast<const std::byte*>(tensor.data);
    const int64_t size = tensor.size.count;
    if (size <= kHashedWhole) {
      hash = hash_of(data, size, hash);
      continue;
    }
    for (int64_t i = 0; i < kPieces; ++i) {
      hash = hash_of(data + (size - kPiece) / (kPieces - 1) * i, kPiece, hash);
    }
  }
  return hash;
}

Batches FieldsCorpus::batches(std::span<const FieldWish> wishes, Split split,
                              const Sampling& sampling) const {
  if (sampling.packing != Packing::kCrops) {
    fail(name_, ": fields are read in crops, so --packing has no meaning here");
  }
  std::vector<Field> fields;
  for (const FieldWish& wish : wishes) fields.push_back(field(wish, split));
  return {std::move(fields), size(split),   sampling.batch,
          sampling.context,  sampling.seed, split == Split::kTrain ? "train" : "validation"};
}

TrainingPart FieldsCorpus::training_part(const Sampling& sampling) const {
  TrainingPart part{.tokens = num_train_};
  if (!sampling.ignored || !file_->find("targets")) return part;
  const Field targets = field({.name = "targets"}, Split::kTrain);
  std::vector<int32_t> entries(std::min<int64_t>(num_train_, 1 << 16));
  part.learned = false;
  for (int64_t at = 0; at < num_train_ && !part.learned;) {
    const auto count = std::min<int64_t>(std::ssize(entries), num_train_ - at);
    copy_crop(targets, at, count, reinterpret_cast<std::byte*>(entries.data()));
    part.learned = std::any_of(entries.begin(), entries.begin() + count,
                               [&](int32_t id) { return id != *sampling.ignored; });
    at += count;
  }
  return part;
}

std::vector<int64_t> FieldsCorpus::documents_in(size_t /*source*/,
                                                const Samples::Tokens& tokens) const {
  return {tokens.first};
}

TextCorpus::TextCorpus(std::vector<Part> parts, double val_fraction)
    : parts_(std::move(parts)), val_fraction_(val_fraction) {
  tokens_to_train_on(0, val_fraction);  // refuses what is no fraction
}

int64_t TextCorpus::size(Split split) const {
  int64_t sum = 0;
  for (const Part& part : parts_) {
    const int64_t train = tokens_to_train_on(part.tokens.size(), val_fraction_);
    sum += split == Split::kTrain ? train : part.tokens.size() - train;
  }
  return sum;
}

int64_t TextCorpus::middle_of(const Part& part, bool documents) const {
  const int64_t middle = tokens_to_train_on(part.tokens.size(), val_fraction_);
  if (!documents) return middle;
  int64_t end = 0;  // the last one up to the middle
  for (int64_t next = part.tokens.end_behind(0); next <= middle;
       next = part.tokens.end_behind(end)) {
    end = next;
    if (end == part.tokens.size()) break;
  }
  return end;
}

Batches TextCorpus::batches(std::span<const FieldWish> wishes, Split split,
                            const Sampling& sampling) const {
  const std::string_view split_name = split == Split::kTrain ? "train" : "validation";
  const std::string_view part_name = split == Split::kTrain ? "training" : "validation";
  using Entry = TextRows::Entry;
  const std::map<std::string_view, Entry> known = {{"tokens", Entry::kTokens},
                                                   {"targets", Entry::kTargets},
                                                   {"segments", Entry::kSegments},
                                                   {"positions", Entry::kPositions}};
  std::vector<Field> fields;
  std::vector<Entry> entries;
  bool borders = false;  // some field says where documents end
  for (const FieldWish& wish : wishes) {
    const auto entry = known.find(wish.name);
    if (entry == known.end()) {
      fail(parts_[0].name, ": '", wish.name, "' is given by nobody: a text has tokens, targets, ",
           "segments and positions only; a .safetensors file may have a field '", wish.name,
           "' beside its tokens");
    }
    if (!wish.row.empty() || wish.floating) {
      fail(parts_[0].name, ": '", wish.name, "' is wanted as ",
           shown(wish, size(Split::kTrain) + size(Split::kValidation)), ", but '", wish.name,
           "' of a text are one whole number a token");
    }
    fields.push_back({.name = wish.name});
    entries.push_back(entry->second);
    borders |= entry->second == Entry::kSegments || entry->second == Entry::kPositions;
  }
  std::vector<WeightedSamples> sources;
  for (const Part& part : parts_) {
    const bool documents = packs_documents(sampling.packing);
    if ((documents || borders || sampling.apart) && !part.tokens.tells_documents()) {
      fail(part.name, ": it is not known where its documents end: say --end-of-text ID, the token ",
           "behind each");
    }
    if ((documents || sampling.apart || part.tokens.marked()) && !sampling.ignored) {
      fail(part.name, ": some of its tokens are not to be trained, but the model's loss has no ",
           "target that it ignores");
    }
    const int64_t middle = middle_of(part, documents);
    const bool train = split == Split::kTrain;
    const TextRowsOptions options = {.packing = sampling.packing,
                                     .begin = train ? 0 : middle,
                                     .end = train ? middle : part.tokens.size(),
                                     .context = sampling.context,
                                     .ignored = sampling.ignored.value_or(-1),
                                     .apart = sampling.apart};
    auto rows = std::make_shared<TextRows>(part.tokens, options, entries);
    if (rows->count() < 1) {
      const std::string of = parts_.size() > 1 ? " of " + part.name : "";
      if (documents) {
        fail("the ", part_name, " part of the data", of, " has no whole document: there are ",
             part.tokens.num_documents(), " documents in all");
      }
      fail("the ", part_name, " part of the data", of, " has ", options.end - options.begin,
           " tokens, but a context of ", sampling.context, " needs at least ",
           static_cast<uint64_t>(sampling.context) + 1, advice_on_length(train));
    }
    sources.push_back({std::move(rows), part.weight});
  }
  const auto draw =
      sampling.packing == Packing::kCrops ? Batches::Draw::kAtRandom : Batches::Draw::kShuffled;
  return {std::move(fields), std::move(sources), draw,      sampling.batch,
          sampling.context,  sampling.seed,      split_name};
}

TrainingPart TextCorpus::training_part(const Sampling& sampling) const {
  constexpr size_t kMostPlaces = 3;
  constexpr int64_t kPiece = int64_t{1} << 16;
  const bool documents = packs_documents(sampling.packing);
  TrainingPart all{.learned = false};
  std::vector<uint32_t> piece;
  for (size_t source = 0; source < parts_.size(); ++source) {
    const TokenStream& stream = parts_[source].tokens;
    const int64_t middle = middle_of(parts_[source], documents);
    const bool marked = stream.marked();
    all.tokens += middle;
    if (!marked && !documents) {
      all.learned |= middle > 1;
      continue;
    }
    for (int64_t begin = 0; begin < middle;) {
      const int64_t end = std::min(stream.end_behind(begin), middle);
      // Nothing stands before a document's first token where it is kept apart.
      const int64_t first = begin + (documents || sampling.apart || begin == 0 ? 1 : 0);
      bool learned = !marked && first < end;
      for (int64_t at = first; marked && !learned && at < end;) {
        const int64_t count = std::min(kPiece, end - at);
        piece.resize(count);
        stream.copy(at, count, piece.data());
        learned = std::any_of(piece.begin(), piece.end(),
                              [](uint32_t token) { return (token & kNotTrained) == 0; });
        at += count;
      }
      ++all.documents;
      all.learned |= learned;
      if (!learned) {
        ++all.silent;
        if (all.first_silent.size() < kMostPlaces) all.first_silent.push_back({source, begin});
      }
      if (documents && end - begin > sampling.context) {
        ++all.longer;
        all.beyond += end - begin - sampling.context;
      }
      begin = end;
    }
  }
  return all;
}

void TextCorpus::check_entries(const FieldWish& wish, std::optional<int64_t> below,
                               std::optional<int64_t> /*also*/) const {
  // Segments and positions are counted within a row, which is no longer than the model's context.
  if (wish.name == "segments" || wish.name == "positions" || !below) return;
  for (const Part& part : parts_) {
    if (part.tokens.largest() < *below) continue;
    fail(part.name, ": it holds the token ", part.tokens.largest(), ", wanted 0 to ", *below - 1);
  }
}

std::vector<int64_t> TextCorpus::documents_in(size_t source, const Samples::Tokens& tokens) const {
  const TokenStream& stream = parts_[source].tokens;
  std::vector<int64_t> begins;
  for (int64_t at = tokens.first; at < tokens.first + tokens.size; at = stream.end_behind(at)) {
    begins.push_back(at);
  }
  return begins;
}

}  // namespace adjoint
