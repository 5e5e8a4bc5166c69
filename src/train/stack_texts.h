// The files that a stack names, functors and schedules, as a run's folder keeps them: a copy of
// each in the folder, which the saved stack names instead, so that the run goes on without the
// originals.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "base/json.h"
#include "train/store.h"

namespace adjoint {

class StackTexts {
 public:
  struct File {
    std::string text;
    std::string origin = {};  // where it was read first; "": not known
  };

  StackTexts() = default;
  explicit StackTexts(const SavePaths& resumed);  // knows the origins of that folder's copies

  // The stack with copies for files. Reads these; refuses a functor that names a file of its own.
  std::string localized(const std::string& stack);
  // One sentence for each copy that is another text from now on, and for each original that is no
  // longer what its copy is.
  std::vector<std::string> changed() const;
  void write(const SavePaths& paths) const;
  nlohmann::json origins() const;  // by name

  const std::map<std::string, File>& files() const { return files_; }  // by name in the folder

 private:
  std::map<std::string, File> files_;
  std::map<std::string, std::string> known_, before_;  // origins and texts of the folder, by name
  std::string folder_;
};

// A saved stack's files are in its folder.
std::string stack_in(const SavePaths& paths, const std::string& saved);

}  // namespace adjoint
