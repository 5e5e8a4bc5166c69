// y = linear(x, W), rewritten by a stack to f(y, x)  ->  y = linear(x, W') in the plain model.
#pragma once
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "functors/pipeline.h"
#include "train/bound_model.h"
#include "train/saved_parameters.h"

namespace adjoint {

struct MergeResult {
  int64_t step = 0;                       // of the run that was merged
  std::map<std::string, int64_t> merged;  // number of linear maps, by their role
};

// The plain model of a run whose stack rewrites linear maps, with the parameters that compute the
// same. Refuses a run with nothing to merge, and a rewrite that is not linear. Where `weights`
// names a state that follows parameters, `ema.average`, it is taken for them, and then there need
// not be anything else to merge.
struct MergedModel {
  BoundModel model;
  Scheme plain;
  SavedValues parameters;
  MergeResult result;
};
MergedModel merged_model(const std::filesystem::path& run, const std::string& weights = "");

// What a stack adds to one linear map where that is scale * b (a x).
struct ThinPair {
  Source weight;  // of the map
  Source a, b;    // [rank, in], [out, rank]
  int64_t rank = 0;
  double scale = 1;
  std::vector<double> a_values = {}, b_values = {};  // of a run
};
// One for every linear map that the stack rewrites; a rewrite that is no such pair is an Error.
std::vector<ThinPair> thin_pairs(const Scheme& forward, const Stack& stack,
                                 const StepOptions& step);
// The same of a run, with values.
struct ThinPairs {
  BoundModel model;
  std::vector<ThinPair> pairs;
};
ThinPairs thin_pairs(const std::filesystem::path& run);

// Whether the run's stack rewrites linear maps.
bool has_adapters(const std::filesystem::path& run);

// The path of a linear map that the run's stack makes something else of than the plain model's map
// with these parameters; none where leaving out the stack changes no map. A stack that rounds
// matrices leaves those alone that are rounded already.
std::optional<std::string> map_changed_by_stack(const std::filesystem::path& run,
                                                const SavedValues& parameters);

// Writes a run folder of the plain model, without stack and optimizer state, whose linear maps
// compute what the stack's rewritten ones did. Refuses a run with nothing to merge, a rewrite that
// is not linear, and a folder that holds a run; nothing is written then.
MergeResult merge_run(const std::filesystem::path& run, const std::filesystem::path& out,
                      const std::string& weights = "");

}  // namespace adjoint
