// The data of a run: what --data names becomes a corpus, and the tokenizer is learned or found.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "data/corpus.h"
#include "data/tokenizer.h"
#include "train/config.h"
#include "train/store.h"

namespace adjoint {

struct RunData {
  // None: the data were tokens, and nobody knows whose.
  std::unique_ptr<Tokenizer> tokenizer = nullptr;
  std::unique_ptr<Corpus> corpus = nullptr;
  std::string print = {};  // tells the data from others
  Packing packing = Packing::kCrops;
  bool fields = false;  // they are a file's, and not a text's
  // What can hardly be meant, a sentence each.
  std::vector<std::string> doubts = {};
  // The documents that hold tokens of a source of the corpus, in order. Of fields nobody knows.
  std::function<std::vector<DocumentPlace>(size_t source, std::span<const int64_t> tokens)>
      documents = nullptr;
};

// Whether a text is tokenized by everyone who reads it, unless it is long, or once, so that the
// other ranks of a job find what the first one made.
enum class Tokenized : uint8_t { kWhenever, kOnce };

// `trained_before` is the run whose parameters are taken over, if there is one: its ids are its
// tokenizer's. `weights` is the folder of a model in a format of others, or "", and has the
// tokenizer where no run does. Data of another print than `wanted_print` are refused.
RunData read_data(const TrainConfig& config, const std::optional<SavePaths>& trained_before,
                  const std::string& weights, const std::optional<std::string>& wanted_print,
                  Tokenized tokenized = Tokenized::kWhenever);

}  // namespace adjoint
