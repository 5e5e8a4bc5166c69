// y = linear(x, W), rewritten by a stack to f(y, x)  ->  y = linear(x, W') in the plain model.
#pragma once
#include <filesystem>
#include <map>
#include <string>

namespace adjoint {

struct MergeResult {
  int64_t step = 0;                       // of the run that was merged
  std::map<std::string, int64_t> merged;  // linear maps, by what they are used as
};

// Writes a run's folder of the plain model, without a stack and without an optimizer's state, whose
// linear maps compute what the stack's rewritten ones did. Refuses a run with nothing to merge, a
// piece that is not linear, and a folder that holds a run. Nothing is written unless all fits.
MergeResult merge_run(const std::filesystem::path& run, const std::filesystem::path& out);

}  // namespace adjoint
