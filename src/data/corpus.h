// What is trained and validated on: fields with one entry per token, by name. A text has its tokens
// and their documents; a .safetensors file has `tokens` and whatever a model's inputs ask for by
// their names.
#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/batches.h"
#include "data/field.h"
#include "data/safetensors.h"
#include "data/text_rows.h"
#include "data/token_stream.h"

namespace adjoint {

// The whole file; an Error names one that is missing, empty or not a plain file.
std::string load_text(const std::filesystem::path& path);

// The first 1 - `val_fraction` of the tokens are for training, the rest for validation. They are
// not shuffled: crops overlap, so tokens of a shuffled validation part would have been trained on.
enum class Split : uint8_t { kTrain, kValidation };
int64_t tokens_to_train_on(int64_t tokens, double val_fraction);

// What an input of a model asks of the data.
struct FieldWish {
  std::string name;
  std::vector<int64_t> row = {};  // the shape of a token's entry
  bool floating = false;
  bool computed_with = false;  // the model computes with its whole numbers, in float32
  bool masks = false;          // -inf is a number like others: it leaves something out of a softmax
};

// How samples are made of the data.
struct Sampling {
  int64_t batch = 1, context = 1;
  uint64_t seed = 0;
  Packing packing = Packing::kCrops;
  bool apart = false;                   // documents are kept apart
  std::optional<int32_t> ignored = {};  // the target that counts for nothing, if the model has one
};

// What there is to learn in the training part, and in which of its documents there is nothing.
struct TrainingPart {
  int64_t tokens = 0;
  bool learned = true;  // some token is a target
  int64_t documents = 0;
  int64_t silent = 0;  // documents in which no token is a target
  struct Place {
    size_t source = 0;
    int64_t token = 0;  // of the source
  };
  std::vector<Place> first_silent = {};  // a few of them, in order
  // Where samples are made of whole documents: those that are longer than a sample, and how many of
  // their tokens are beyond the first sample's.
  int64_t longer = 0, beyond = 0;
};

class Corpus {
 public:
  Corpus() = default;
  virtual ~Corpus() = default;
  Corpus(const Corpus&) = delete;
  Corpus& operator=(const Corpus&) = delete;

  virtual int64_t size(Split split) const = 0;  // in tokens
  // A part of the data, in batches with a field for each wish. An Error says what was wanted and
  // what there is. Batches use the corpus.
  virtual Batches batches(std::span<const FieldWish> wishes, Split split,
                          const Sampling& sampling) const = 0;
  // Refuses entries of the field, anywhere in the data, that are not whole numbers of [0, below) or
  // `also`; without `below`, that do not fit int32, or float32 where it is computed with. Of a
  // floating field it refuses what is not finite in float32; -inf is right where it masks.
  virtual void check_entries(const FieldWish& wish, std::optional<int64_t> below,
                             std::optional<int64_t> also) const = 0;
  // Of a sample's tokens, the first one of each document that it has some of.
  virtual std::vector<int64_t> documents_in(size_t source, const Samples::Tokens& tokens) const = 0;
  // Reads all tokens once where some of them are not trained, and else only where documents end.
  virtual TrainingPart training_part(const Sampling& sampling) const = 0;
};

// Fields of a file, which is mapped.
class FieldsCorpus : public Corpus {
 public:
  FieldsCorpus(const std::filesystem::path& file, double val_fraction);

  int64_t size(Split split) const override;
  Batches batches(std::span<const FieldWish> wishes, Split split,
                  const Sampling& sampling) const override;
  void check_entries(const FieldWish& wish, std::optional<int64_t> below,
                     std::optional<int64_t> also) const override;
  std::vector<int64_t> documents_in(size_t source, const Samples::Tokens& tokens) const override;
  TrainingPart training_part(const Sampling& sampling) const override;

  // The field of this name: targets are the next token where there are none.
  Field field(const FieldWish& wish, Split split) const;
  // Tells the file from others. Of fields above a quarter of a gigabyte only pieces are read.
  uint64_t hash() const;

 private:
  Field whole_field(const FieldWish& wish) const;

  std::string name_;
  std::unique_ptr<SafetensorsFile> file_;
  int64_t num_tokens_ = 0, num_train_ = 0;
};

// Tokens of texts, by source. Of each the first part is for training.
class TextCorpus : public Corpus {
 public:
  struct Part {
    std::string name;
    TokenStream tokens;
    double weight = 1;
  };
  TextCorpus(std::vector<Part> parts, double val_fraction);

  int64_t size(Split split) const override;
  Batches batches(std::span<const FieldWish> wishes, Split split,
                  const Sampling& sampling) const override;
  void check_entries(const FieldWish& wish, std::optional<int64_t> below,
                     std::optional<int64_t> also) const override;
  std::vector<int64_t> documents_in(size_t source, const Samples::Tokens& tokens) const override;
  TrainingPart training_part(const Sampling& sampling) const override;

 private:
  // Where the training part of a source ends; whole documents are not cut in two.
  int64_t middle_of(const Part& part, bool documents) const;

  std::vector<Part> parts_;
  double val_fraction_;
};

}  // namespace adjoint
