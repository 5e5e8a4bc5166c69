// A forward scheme over a whole sequence, as one over a few positions of it: what generates text
// token by token. Keys, values and whatever else later positions ask of earlier ones are state.
#pragma once
#include "scheme/scheme.h"

namespace adjoint {

constexpr std::string_view kOrigin = "origin";  // the input that says where the positions begin
constexpr std::string_view kRow = "row";        // and the one that says which of them is returned

constexpr std::string_view kRing = "ring";  // the axis of state that only the last ones are in

// The scheme for `count` positions, beginning at the position that the input `origin`, i32[batch],
// says for each sample. Positions are axis 1 of the inputs; which axis of every other object they
// are follows from index maps. Ops for which a position is a row like any other are as they were;
// ops that know or mix positions follow their own rule (OpDef::carry), and one without a rule is
// refused by name. Outputs have one position: of several, the one that the input `row`, i32[batch],
// says; what only other positions need of the readout is not computed.
//
// Attention through a window keeps a ring of keys and values, with room for steps of up to `most`
// positions: all schemes that go on from the same state are made with the same `most`.
//
// Law: all positions in any number of steps, in order, give what the whole sequence gives, but for
// the order of sums where products have other shapes; in one step the same bits.
Scheme carry_positions(const Scheme& whole, int64_t count, int64_t most);

}  // namespace adjoint
