#include "ops/index_map.h"

#include <algorithm>
#include <cctype>

#include "base/text.h"

namespace adjoint {

const MergedAxis* IndexMap::merged_axis(char letter) const {
  for (const MergedAxis& axis : merged) {
    if (axis.letter == letter) return &axis;
  }
  return nullptr;
}

bool IndexMap::has(const std::string& letters, char letter) const {
  return std::any_of(letters.begin(), letters.end(), [&](char c) {
    const MergedAxis* axis = merged_axis(c);
    if (!axis) return c == letter;
    return std::any_of(axis->segments.begin(), axis->segments.end(), [&](const std::string& part) {
      return part.find(letter) != std::string::npos;
    });
  });
}

std::string IndexMap::uncut() const {
  std::string letters = whole + ".1";
  for (const MergedAxis& axis : merged) letters += axis.letter + join(axis.segments, "");
  return letters;
}

std::string to_string(const IndexMap& map) {
  const auto text = [&](const std::string& letters) {
    std::string out;
    for (const char c : letters) {
      const MergedAxis* axis = map.merged_axis(c);
      if (!axis) {
        out += c;
      } else if (axis->segments.size() == 1) {
        out += "(" + axis->segments[0] + ")";
      } else {
        out += "[" + join(axis->segments, "|") + "]";
      }
    }
    return out.empty() ? "()" : out;
  };
  std::vector<std::string> inputs, outputs;
  for (const std::string& letters : map.inputs) inputs.push_back(text(letters));
  for (const std::string& letters : map.outputs) outputs.push_back(text(letters));
  std::string summed;
  for (const char c : join(inputs, "")) {
    const auto has = [&](const std::string& letters) { return map.has(letters, c); };
    if (!std::isalpha(static_cast<unsigned char>(c)) || summed.find(c) != std::string::npos)
      continue;
    if (std::none_of(map.outputs.begin(), map.outputs.end(), has)) summed += c;
  }
  std::string out = join(inputs, ", ") + " -> " + join(outputs, ", ");
  if (!summed.empty()) out += "; summed " + summed;
  if (!map.whole.empty()) out += "; whole " + map.whole;
  return out;
}

}  // namespace adjoint
