// The tensors of a folder in Hugging Face's layout: one model.safetensors, or several files with an
// index that says which tensor is where. Files are mapped, and what they say is checked.
#pragma once
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "data/safetensors.h"

namespace adjoint {

class WeightFiles {
 public:
  // Refuses a folder without weights, an index that does not say what its files hold, and a tensor
  // that is in two files.
  explicit WeightFiles(std::filesystem::path folder);

  const std::filesystem::path& folder() const { return folder_; }
  // nullptr when there is none.
  const SafetensorView* find(std::string_view name) const;
  // In the order of the files, and in each of its data.
  std::vector<const SafetensorView*> tensors() const;

 private:
  std::filesystem::path folder_;
  std::vector<std::unique_ptr<SafetensorsFile>> files_;
  std::unordered_map<std::string_view, const SafetensorView*> tensors_;  // names of files_
};

}  // namespace adjoint
