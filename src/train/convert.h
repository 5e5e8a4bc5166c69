// A model -> a folder of Hugging Face's format that transformers loads: config.json,
// model.safetensors (in several files with an index where it is large), generation_config.json and
// the tokenizer's files.
#pragma once
#include <filesystem>
#include <optional>
#include <string>

#include "base/bytes.h"
#include "scheme/type.h"

namespace adjoint {

struct ConvertOptions {
  // Of the weights; none: as they are, and those of a run that began with a folder as they are
  // there.
  std::optional<Dtype> dtype = {};
  Bytes shard{5'000'000'000};  // no file is larger, unless one tensor is
  std::string adapter = {};    // a folder of PEFT's layout, to be merged
  bool adapters_only = false;  // of a run with adapters: these alone, in PEFT's layout
};

struct ConvertResult {
  int64_t tensors = 0, files = 0;
  Bytes size = {};
};

// `in` is such a folder, or the folder of a training run whose model has this format; what its
// stack added to linear maps is merged. Refuses an `out` that is not empty; then nothing is
// written.
ConvertResult convert(const std::filesystem::path& in, const std::filesystem::path& out,
                      const ConvertOptions& options);

}  // namespace adjoint
