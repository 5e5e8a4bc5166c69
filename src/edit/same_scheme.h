// Whether two texts say the same model up to names: paths, labels of axes and the keys of random
// numbers may differ, ops, sizes, constants and who reads what may not.
#pragma once
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "scheme/document.h"
#include "scheme/scheme.h"

namespace adjoint {

// What differs first; nothing if the two are the same up to names.
std::optional<std::string> first_difference(const Scheme& a, const Scheme& b);

// What calls and parameters were called before, and after.
struct ComparedPaths {
  std::set<std::pair<std::string, std::string>> calls, parameters;
};
struct Comparisons {
  ComparedPaths paths = {};
  std::vector<std::string> notes = {};  // where the two texts could not be compared, and why
};

// An Error if the model that `before` says cannot be made of `after`, or computes something else,
// as the texts stand or under one of the presets. A text that gives no model may be edited all the
// same.
Comparisons check_same_meaning(const Document& before, const Document& after,
                               std::string_view file);

}  // namespace adjoint
