// The phases of a step that no stack names: reverse mode, the optimizer, and a realization for each
// attribute that functors say of objects.
#pragma once
#include <functional>
#include <string>
#include <string_view>

#include "functors/step_options.h"
#include "scheme/scheme.h"

namespace adjoint {

// Reverse mode: the gradient of the loss's sum by every parameter that is not frozen, as further
// outputs in the order of the parameters.
Scheme apply_adjoint(const Scheme& forward);
// Norm, clipping, one division, and the update of every parameter that has a gradient. A step
// returns its loss, its count of targets and the norm of its gradient; if it is guarded, whether it
// changed anything and the mean of the losses before; and the norms by role, if they are asked for.
Scheme apply_optimizer(const Scheme& with_gradients, const StepOptions& options);

// The realizations, one per attribute, in the order in which they run. Each inserts its transport
// once, gives every attribute to what it creates, and leaves a scheme without its attribute as it
// was.
// A frozen parameter of whose precision nobody said anything is held in 16 bits where that is how
// all its readers read it; where `beside` is given, which holds the same parameters, only where
// that does.
Scheme realize_precision(Scheme scheme, const Scheme* beside = nullptr);
Scheme realize_state(Scheme scheme);  // the precision of the optimizer's state, as a part of it
// What placement asks about the stack: who said an axis of the mesh, and whether somebody said
// where an object resides. `recompute_cheap` chooses and says nothing.
struct WhoSaid {
  std::function<std::string(std::string_view)> axis;
  std::function<bool(const Source&)> residence = [](const Source&) { return true; };
};
// Refuses in the name of who said the axis of the mesh.
Scheme realize_placement(Scheme scheme, const WhoSaid& who_said);
// Refuses in the name of `who`, the functor that said in how many parts the batch comes.
Scheme realize_time(const Scheme& scheme, std::string_view who);
Scheme realize_residence(Scheme scheme);
// The source of what is recomputed, of a copy's: copies are called after the epoch they are made
// in.
Source without_epochs(const Source& source);
Scheme realize_tier(Scheme scheme);

}  // namespace adjoint
