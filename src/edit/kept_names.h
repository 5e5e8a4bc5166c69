// A call without a name is called by its number, layer_norm#2, which changes where a call before it
// comes or goes. Formats and saves know weights by that name, so here an edit says it where it must
// be said: name="layer_norm#2".
#pragma once
#include "edit/written.h"

namespace adjoint {

// The edit with the names that calls with weights had before it. `breaks` says what no name can
// mend: modules of formats that name nothing any more, and weights that no module names.
Edited keep_names(const WrittenText& before, Edited edited);

}  // namespace adjoint
