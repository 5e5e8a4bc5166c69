// The parameters of a save as numbers, whatever they are held in.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "functors/step_options.h"
#include "train/save.h"

namespace adjoint {

// Values by source; matrices that are held as codes, or as indices into a book, are decoded, by the
// evaluation scheme of the save's own stack, which it must fit.
using SavedValues = std::map<std::string, std::vector<double>>;
SavedValues saved_values(const SavedModel& saved, const Scheme& evaluation);

// The scheme whose parameters a save has: the model's own, or, where matrices are codes, what the
// save's stack makes of the model. Refuses a save that has others. `forward` is of one sample.
Scheme held_by(const SavedModel& saved, const Scheme& forward, const StepOptions& step);
// Gives a run, whatever its stack, the model's own parameters: codes as they are where the run
// holds the matrix in the same format, and what they stand for elsewhere. `held` is what the save
// was found to hold; parameters beside the model's own are refused by name.
void give_parameters(const SavedModel& saved, const Scheme& held, const Scheme& plain, Run& run);
// The same, whatever the save has beside them.
void take_parameters(const SavedModel& saved, const Scheme& held, const Scheme& plain, Run& run);

}  // namespace adjoint
