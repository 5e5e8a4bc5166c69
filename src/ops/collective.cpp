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

Bytes bytes_that_travel(const OpCall& call, std::span<const Type> results) {
  const auto sum = [](std::span<const Type> types) {
    Bytes all{0};
    for (const Type& type : types) all += type.bytes();
    return all;
  };
  switch (collective_of(call)) {
    case Collective::kAllGather:
    case Collective::kGather:
      return ranks_of(call) * sum(call.inputs);
    case Collective::kReduceScatter:
    case Collective::kScatter:
      return ranks_of(call) * sum(results);
    default:
      return sum(call.inputs);
  }
}

void check_collective(const OpCall& call) {
  if (call.inputs.size() != 1) {
    fail(call.op, ": wants one operand, found ", call.inputs.size());
  }
  if (call.text("mesh").empty()) fail(call.op, ": wants an axis of the mesh, 'mesh'");
  if (ranks_of(call) < 1) fail(call.op, ": wants at least 1 rank, found ", ranks_of(call));
  const int64_t axis = call.integer("axis", 0);
  if (axis < 0 || (axis > 0 && axis >= call.inputs[0].rank())) {
    fail(call.op, ": there is no axis ", axis, " in ", to_string(call.inputs[0]));
  }
}

IndexMap letters_beside_pieces(const OpCall& call) {
  const std::string letters = letters_but(call.inputs[0], piece_axis(call));
  return {{letters}, {letters}};
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
