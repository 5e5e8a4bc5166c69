// y = linear(x, W), rewritten by a stack to f(y, x)  ->  y = linear(x, W') in the plain model.
#pragma once
#include <filesystem>
#include <map>
#include <string>

namespace adjoint {

struct MergeResult {
  int64_t step = 0;                       // of the run that was merged
  std::map<std::string, int64_t> merged;  // number of linear maps, by their role
};

// Writes a run folder of the plain model, without stack and optimizer state, whose linear maps
// compute what the stack's rewritten ones did. Refuses a run with nothing to merge, a rewrite that
// is not linear, and a folder that holds a run; nothing is written then. Where `weights` names a
// state that follows parameters, `ema.average`, it is taken for them, and then there need not be
// anything else to merge.
MergeResult merge_run(const std::filesystem::path& run, const std::filesystem::path& out,
                      const std::string& weights = "");

}  // namespace adjoint
