// Formats name weights by their paths (scheme/format.h), which change when a box is folded,
// unfolded or called otherwise. Here the modules of a text follow.
#pragma once
#include <vector>

#include "edit/same_scheme.h"
#include "edit/written.h"

namespace adjoint {

// Adds to the changes of an edit, which made `after`, those that let every module name the weights
// that it named before. Whether there are any. An Error where no module could say it.
bool follow_paths(const WrittenText& before, const Document& after, const ComparedPaths& paths,
                  std::vector<Change>& changes);

// An Error if a weight has another name in a format than it had.
void check_modules(const Document& before, const Document& after, const ComparedPaths& paths);

}  // namespace adjoint
