// The parameters of a save as numbers, whatever they are held in.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "train/save.h"

namespace adjoint {

// Values by source; matrices that are held as codes, or as indices into a book, are decoded, by the
// evaluation scheme of the save's own stack, which it must fit.
using SavedValues = std::map<std::string, std::vector<double>>;
SavedValues saved_values(const SavedModel& saved, const Scheme& evaluation);

}  // namespace adjoint
