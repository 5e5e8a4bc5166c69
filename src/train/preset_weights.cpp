#include "train/preset_weights.h"

#include <algorithm>

#include "base/error.h"
#include "base/file_view.h"
#include "models/library.h"

namespace adjoint {

void check_no_preset(const std::filesystem::path& folder) {
  const std::vector<std::string> presets = known_presets();
  if (std::find(presets.begin(), presets.end(), folder.string()) == presets.end()) return;
  if (is_visible(folder)) return;
  fail(folder.string(),
       " is a preset and has no weights: train it first, or give the folder of a run or of a "
       "downloaded model");
}

}  // namespace adjoint
