#include "ops/collective.h"

#include "base/error.h"
#include "ops/axes.h"
#include "ops/samples.h"

namespace adjoint {

int64_t ranks_of(const OpCall& call) { return call.integer("ranks"); }
int piece_axis(const OpCall& call) { return static_cast<int>(call.integer("axis", 0)); }

Collective collective_of(const OpCall& call) {
  for (int i = 0; i < kNumCollectives; ++i) {
    const auto collective = static_cast<Collective>(i);
    if (name(collective) == call.op) return collective;
  }
  CHECK(false, "an op that speaks to other ranks has a collective's name: " + std::string(call.op));
}

Travelling that_travels(const OpCall& call, std::span<const Type> results) {
  const auto sum = [](std::span<const Type> types) {
    Bytes all{0};
    for (const Type& type : types) all += type.bytes();
    return all;
  };
  const Collective collective = collective_of(call);
  const bool joins = collective == Collective::kAllGather;
  if (!joins && collective != Collective::kReduceScatter) return {.whole = sum(call.inputs)};
  const Type& whole = joins ? results[0] : call.inputs[0];
  const Type& piece = joins ? call.inputs[0] : results[0];
  const int axis = piece_axis(call);
  int64_t outer = 1;
  for (int a = 0; a < axis; ++a) outer *= whole.axes[a].physical();
  if (outer > 1 || results.size() > 1) {
    const Bytes pieces = joins ? sum(call.inputs) : sum(results);
    return {.whole = ranks_of(call) * pieces, .segment = pieces};
  }
  const int64_t row = whole.bytes().count / whole.axes[axis].physical();
  return {.whole = {whole.dim(axis) * row}, .segment = {piece.dim(axis) * row}};
}

void check_collective(const OpCall& call) {
  if (call.inputs.empty()) fail(call.op, ": wants an operand, found none");
  if (call.text("mesh").empty()) fail(call.op, ": wants an axis of the mesh, 'mesh'");
  if (ranks_of(call) < 1) fail(call.op, ": wants at least 1 rank, found ", ranks_of(call));
  const int64_t axis = call.integer("axis", 0);
  for (const Type& operand : call.inputs) {
    if (axis < 0 || (axis > 0 && axis >= operand.rank())) {
      fail(call.op, ": there is no axis ", axis, " in ", to_string(operand));
    }
    if (operand.dtype != call.inputs[0].dtype) {
      fail(call.op, ": operands that travel together have one dtype, found ",
           name(call.inputs[0].dtype), " and ", name(operand.dtype));
    }
  }
}

IndexMap letters_of_one(const OpCall& call, const std::string& letters) {
  if (call.inputs.size() == 1) return {{letters}, {letters}};
  // Several operands have no axis in common.
  IndexMap none;
  for (const Type& operand : call.inputs) none.inputs.emplace_back(operand.rank(), '.');
  none.outputs = none.inputs;
  return none;
}

IndexMap letters_beside_pieces(const OpCall& call) {
  return letters_of_one(call, letters_but(call.inputs[0], piece_axis(call)));
}

Linear linear_by_parts(const OpCall& call) {
  return call.integer("each_part", 0) ? Linear::kTogether : Linear::kNo;
}

Attrs collective_attrs(std::string mesh, int64_t ranks) {
  return {{"mesh", std::move(mesh)}, {"ranks", ranks}};
}

std::vector<Sample> pieces_samples() {
  const auto at = [](Type x, int64_t axis) {
    Attrs attrs = collective_attrs("data", 1);
    attrs["axis"] = axis;
    return Sample{.inputs = {std::move(x)}, .attrs = std::move(attrs)};
  };
  return {at(of({6, 5}), 0), at(of({6, 3, 2}), 1), at(of({6}), 0)};
}

}  // namespace adjoint
