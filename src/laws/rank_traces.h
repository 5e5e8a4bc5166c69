// What the ranks of a mesh traced, put together as one rank alone would have traced it.
#pragma once
#include "laws/trace.h"
#include "scheme/shards.h"

namespace adjoint {

// Where the choices of a rank's samples begin among those of the whole batch.
int64_t first_choice(const Object& object, const std::vector<MeshAxis>& mesh,
                     const Coordinates& at);

// One object of what every rank has of it, in the order of the ranks: pieces are joined, and of
// what all ranks have any is as good. Ranks that disagree about what is to be the same on all of
// them are an Error that names `what`, where it has a name. What the parts of a batch made one
// after another is a longer piece along the samples.
Numbers assembled(const Object& object, const std::vector<MeshAxis>& mesh,
                  const std::vector<const Numbers*>& of_ranks, const std::string& what);

}  // namespace adjoint
