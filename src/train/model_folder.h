// The weights of a folder of Hugging Face's format as a model's parameters. Pages of the mapped
// files are read, converted, straight into the run's parameters. Everything is checked before the
// first parameter is written.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "data/weight_files.h"
#include "run/parameters.h"
#include "run/run.h"
#include "train/bound_model.h"

namespace adjoint {

// A parameter of a model and the tensors of the format that hold it.
struct StoredTensors {
  Source source;
  Type type;
  std::vector<std::string> names, short_names;  // one, or one per entry of the first axis
  bool transposed = false;
  std::vector<int64_t> shape = {};  // of each tensor
};
// Of every parameter, by the model's own format; one that the format does not name is an Error.
std::vector<StoredTensors> stored_tensors(const BoundModel& model);

// The same with its values, as the model has them: in the order of its own axes.
struct ParameterValues {
  StoredTensors stored;
  Dtype dtype = Dtype::kF32;  // of the tensors
  GiveValues give;
};

class ModelFolder {
 public:
  explicit ModelFolder(std::filesystem::path folder) : files_(std::move(folder)) {}

  const std::filesystem::path& path() const { return files_.folder(); }
  // nullptr when there is none.
  const SafetensorView* find(std::string_view name) const { return files_.find(name); }
  std::vector<std::string> names() const;  // in the order of the files

  // The model's parameters, whose values live as long as this folder does. The folder must have
  // every one in its shape, and no tensor that the model's format does not speak of.
  std::vector<ParameterValues> parameters(const BoundModel& model) const;
  // Gives them to the run.
  void load(const BoundModel& model, Run& run) const;

 private:
  WeightFiles files_;
};

// What the format's dtype is, if it is F32, F16 or BF16.
std::optional<Dtype> float_dtype(const SafetensorView& view);
// A piece of a tensor of such floats, from its number `first` on, widened.
void read_floats(const SafetensorView& view, int64_t first, std::span<float> piece);

}  // namespace adjoint
