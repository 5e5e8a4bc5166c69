// How a body is cut for generated code (body_jit.h): segments, each one loop along a row. A value
// that comes of a row's sum or largest element, read along the row, begins a new segment; so does
// whatever the interpreter has to make (random numbers, sines, odd rotations, rare dtypes). A value
// that a later segment reads is kept in a slot, or reloaded if it is a result, or recomputed if
// that takes one instruction on operands.
#pragma once
#include <cstdint>
#include <vector>

#include "scheme/type.h"

namespace adjoint {

struct Layout;

enum class Maker : uint8_t {
  kConstant,
  kLoaded,   // an operand that generated code reads along the row
  kCalled,   // by the interpreter, before its segment: a row in a slot, or one number
  kScalar,   // by generated code, once a row
  kVector,   // by generated code, along the row
  kReduced,  // at the end of a segment's loop
  kTurned,   // a rotation: read from where its operand lies, half a row further
};

struct Segment {
  std::vector<int> calls;       // what the interpreter makes first
  std::vector<int> scalars;     // computed before the loop, each after its operands
  std::vector<int> nodes;       // computed along the row, each after its operands
  std::vector<int> reductions;  // nodes that reduce something of this loop
  std::vector<int> outputs;     // stored by this loop
  std::vector<int> kept;        // nodes that this loop stores into slots
  bool loops() const { return !reductions.empty() || !outputs.empty() || !kept.empty(); }
};

struct TilePlan {
  std::vector<Segment> segments;
  std::vector<Maker> maker;    // per node
  std::vector<int> slot;       // per node: where it is kept, or -1
  std::vector<int> kept_in;    // per node: the output that later segments read it from, or -1
  std::vector<bool> exported;  // per node of one number a row: the interpreter reads it
  std::vector<bool> folded;    // per comparison: its one reader, a select, does it
  std::vector<bool> stored;    // per output: by generated code
  std::vector<int> home;       // per node of one number a row: its place as a vector; else -1
  int num_slots = 0, num_homes = 0;
  bool all_generated = false;  // nothing else runs, so that it may walk the rows itself
};

TilePlan cut_into_segments(const Layout& layout, const std::vector<Type>& in_types,
                           const std::vector<Type>& out_types);

}  // namespace adjoint
