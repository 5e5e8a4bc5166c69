// A save that is taken over by a run of the same model under another stack, optimizer or device.
// Parameters of the model go over whatever they are held in: floats of any width, codes, books.
// What the stack added, and the optimizer's state, go over where both have it by name and shape;
// what else there is is dropped or begins anew, and the notes say so.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "run/run.h"
#include "train/save.h"

namespace adjoint {

struct TakenOver {
  int64_t step = 0;
  std::vector<std::string> notes = {};  // whole sentences
};
// All of a save, with the optimizer's state. The run was initialized; `model` identifies the scheme
// (see fingerprint). A save of another model, and a damaged one, are refused.
TakenOver take_over(const SavePaths& paths, Run& run, const Scheme& held, const Scheme& plain,
                    const std::string& model);

}  // namespace adjoint
