// Which batches a run reads, as its folder keeps it: position.json, which is there once a batch was
// left out or batches changed their size.
#pragma once
#include "data/batches.h"
#include "train/store.h"

namespace adjoint {

// The plain order of batches where the folder has none. A file that is none is an Error.
DataPosition read_position(const SavePaths& paths);
// The plain order is not written where no other was.
void write_position(const SavePaths& paths, const DataPosition& position);

}  // namespace adjoint
