#include "analysis/spread.h"

#include <algorithm>

#include "base/error.h"

namespace adjoint {

namespace {

bool has(const std::string& letters, char letter) {
  return letters.find(letter) != std::string::npos;
}

// A sum with an addend says that what it sums over is whole, because every piece would add the
// addend. Of an addend that is itself a term of the sum that is right.
bool is_summed_beside_addend(const OpDef& op, const IndexMap& map, char letter) {
  return has_addend(op, map.inputs.size()) && has(map.whole, letter) &&
         !has(map.outputs[0], letter);
}

}  // namespace

CallShares share_call(const OpCall& call, std::span<const Share> comes, size_t results) {
  const OpDef& op = op_named(call.op);
  const auto is_term = [](const Share& s) { return s.is_term(); };
  CallShares shares;
  shares.wants.assign(call.inputs.size(), kWhole);
  if (std::none_of(comes.begin(), comes.end(), [](const Share& s) { return s.is_piece(); })) {
    const bool terms = !comes.empty() && std::all_of(comes.begin(), comes.end(), is_term) &&
                       is_linear_together(call);
    if (terms) shares.wants.assign(comes.begin(), comes.end());
    shares.gives.assign(results, terms ? kTerm : kWhole);
    return shares;
  }
  const IndexMap map = index_map_of(call);
  const std::string uncut = map.uncut();
  for (size_t i = 0; i < comes.size() && !shares.letter; ++i) {
    if (!comes[i].is_piece()) continue;
    const char mine = map.inputs[i][comes[i].axis];
    if (!has(uncut, mine) || is_summed_beside_addend(op, map, mine)) shares.letter = mine;
  }
  if (!shares.letter) {
    shares.gives.assign(results, kWhole);
    return shares;
  }
  const bool summed = !has(map.outputs[0], shares.letter);
  for (size_t i = 0; i < comes.size(); ++i) {
    const size_t axis = map.inputs[i].find(shares.letter);
    if (static_cast<int>(i) == op.addend && summed) {
      shares.wants[i] = kTerm;
    } else if (axis != std::string::npos) {
      shares.wants[i] = piece_along(static_cast<int>(axis));
    }
  }
  for (const std::string& letters : map.outputs) {
    const size_t axis = letters.find(shares.letter);
    shares.gives.push_back(axis == std::string::npos ? kTerm : piece_along(static_cast<int>(axis)));
  }
  return shares;
}

void shrink_attrs(const OpCall& call, char letter, int64_t whole, int64_t size, Attrs& attrs) {
  if (const auto shape = attrs.find("shape"); shape != attrs.end()) {
    std::get<std::vector<int64_t>>(shape->second)[letter - 'a'] = size;
  }
  for (const LetterCount& counted : index_map_of(call).counts) {
    const auto attr = attrs.find(counted.attribute);
    if (attr == attrs.end() || !has(counted.letters, letter)) continue;
    auto& count = std::get<int64_t>(attr->second);
    CHECK(count % whole == 0, "an attribute counts what its letters count");
    count = count / whole * size;
  }
}

}  // namespace adjoint
