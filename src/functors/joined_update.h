// A small scheme, the piece, set into a step. What works on elements is joined into bodies: one
// `map` for each shape that is carried, and one for each operand that another op wants (a mean, a
// product).
#pragma once
#include "ops/builder.h"

namespace adjoint {

struct JoinedUpdate {
  struct Carried {
    Value before, after;  // of the step, of the piece
  };

  const Scheme& piece;
  std::vector<Value> given = {};      // the step's objects that the piece's inputs are
  std::vector<Carried> carried = {};  // from step to step
  std::string path, prefix = {};      // what is made has the source path:prefix.name
  Value ok = 0;                       // where this is 0, what is carried stays what it was
};
void emit_joined(Builder& builder, const JoinedUpdate& update);

}  // namespace adjoint
