// The names of weights in a format of others (scheme/format.h), by the paths of ours.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "models/settings.h"

namespace adjoint {

// Where a parameter lies in the format.
struct StoredParameter {
  // One tensor, or one for every entry of the parameter's first axis.
  std::vector<std::string> names;
  std::vector<std::string> short_names;  // without what may be absent
  bool stacked = false;
  bool transposed = false;  // of a matrix: [in, out]
};

// Nothing where the format has no module for it. `entries` is the size of the parameter's first
// axis.
std::optional<StoredParameter> stored_parameter(const Format& format, std::string_view path,
                                                int64_t entries);

// Whether a tensor of this name says nothing in a model of these settings.
bool is_ignored_tensor(const Format& format, std::string_view name, std::string_view file,
                       const Settings& settings);

}  // namespace adjoint
