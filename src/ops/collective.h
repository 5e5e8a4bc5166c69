// What the ops that speak to other ranks have in common. Their attributes: `mesh`, the axis of the
// mesh along which they speak; `ranks`, how many there are; and of those that cut or join pieces
// `axis`, along which. All ranks run the same call. Sums over ranks are in the order of the ranks,
// in float32, rounded once. With one rank each is a copy. Several operands of one dtype travel
// together, each to its own result with the bits that it has alone (the functor bucket joins them).
#pragma once
#include <span>

#include "comm/route.h"
#include "ops/op_def.h"

namespace adjoint {

int64_t ranks_of(const OpCall& call);
// The axis whose pieces the ranks have.
int piece_axis(const OpCall& call);

// Which one it is, as the communicator names it.
Collective collective_of(const OpCall& call);
// All ranks' pieces together as they travel (the S of comm/route.h), and how much of it a rank has;
// 0 where nothing is cut. Rows of a first axis travel as they lie, and the last pieces may be
// short. Pieces along other axes are packed, and what pads them travels, too; so are those of
// several operands.
struct Travelling {
  Bytes whole = {0}, segment = {0};
};
Travelling that_travels(const OpCall& call, std::span<const Type> results);

// Refuses a call without operands, mesh or ranks. Every collective's `infer` begins with it.
void check_collective(const OpCall& call);

// These letters for the axes of a single operand, and none where there are several.
IndexMap letters_of_one(const OpCall& call, const std::string& letters);
// Letters for all axes but that of the pieces, which no other split may touch.
IndexMap letters_beside_pieces(const OpCall& call);
// A sum over ranks is added up once, of the sums over all parts of a batch, unless `each_part` says
// that every part's sum is added up by itself.
Linear linear_by_parts(const OpCall& call);

Attrs collective_attrs(std::string mesh, int64_t ranks);
std::vector<Sample> pieces_samples();

}  // namespace adjoint
