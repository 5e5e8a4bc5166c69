// What an op with a body leaves out, derived from the body.
#include "ops/body_facts.h"

#include <algorithm>

#include "body/facts.h"

namespace adjoint {

IndexMap body_index_map(const OpCall& call) {
  const Body body = body_of(call);
  const std::vector<Axis> space = space_of(call);
  const size_t rank = space.size();
  const auto letter = [](size_t i) { return static_cast<char>('a' + i); };
  IndexMap map;
  for (const Type& t : call.inputs) {
    std::string letters;
    for (size_t i = 0; i < t.axes.size(); ++i) {
      const size_t at = rank - t.axes.size() + i;
      const bool counter = t.dtype == Dtype::kI64;
      const bool stretched = !counter && t.axes[i].size == 1 && space[at].size != 1;
      letters += counter ? '.' : stretched ? '1' : letter(at);
    }
    map.inputs.push_back(letters);
  }
  const std::vector<Type> outputs = output_types(body, space, call.inputs);
  for (size_t k = 0; k < outputs.size(); ++k) {
    std::string letters;
    for (int i = 0; i < outputs[k].rank(); ++i) {
      const size_t at = body.outputs[k].summed_axes + i;
      const bool one = at + 1 == rank && body.outputs[k].row == BodyOutput::Row::kOne;
      letters += one ? '1' : letter(at);
    }
    map.outputs.push_back(letters);
  }
  // A sum of all elements is the sum of the sums of pieces.
  if (rank > 0 && body.needs_whole_rows() && !adds_elements(body)) map.whole += letter(rank - 1);
  // A position is not the same in a slice, so no axis of a body that asks for positions is split.
  if (body.uses_index()) {
    for (const ExprNode& n : body.nodes) {
      if (n.kind != ExprKind::kIndex) continue;
      const char c = letter(rank - 1 - n.index);
      if (map.whole.find(c) == std::string::npos) map.whole += c;
    }
  }
  // Random numbers are counted over the whole object, and only the sample's offset is known to it.
  const bool random = std::any_of(body.nodes.begin(), body.nodes.end(),
                                  [](const ExprNode& n) { return n.kind == ExprKind::kRandom; });
  for (size_t i = 1; random && i < rank; ++i) {
    if (map.whole.find(letter(i)) == std::string::npos) map.whole += letter(i);
  }
  return map;
}

std::vector<std::pair<int, int>> body_may_overwrite(const OpCall& call) {
  // Rows are read whole before they are written, so an output may take the place of an operand of
  // its own shape and dtype.
  const Body body = body_of(call);
  const std::vector<Axis> space = space_of(call);
  const std::vector<Type> outputs = output_types(body, space, call.inputs);
  std::vector<std::pair<int, int>> pairs;
  for (size_t o = 0; o < outputs.size(); ++o) {
    const BodyOutput& out = body.outputs[o];
    if (out.summed_axes || out.row != BodyOutput::Row::kWhole) continue;
    for (size_t i = 0; i < call.inputs.size(); ++i) {
      if (call.inputs[i] == outputs[o]) pairs.emplace_back(o, i);
    }
  }
  return pairs;
}

}  // namespace adjoint
