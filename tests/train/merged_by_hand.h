// What a merge must give, in plain loops: W + scale B A.
#pragma once
#include <map>
#include <string>
#include <vector>

namespace adjoint {

using Tensors = std::map<std::string, std::vector<float>>;

// A parameter of a run with lora(rank=2, alpha=3), as it is without adapters.
inline std::vector<float> merged_by_hand(const Tensors& lora, const std::string& name) {
  std::vector<float> merged = lora.at(name);
  const std::string call = name.substr(0, name.rfind('.'));
  const auto a = lora.find(call + ".lora_a.weight"), b = lora.find(call + ".lora_b.weight");
  if (a == lora.end() || !name.ends_with(".weight")) return merged;
  const size_t outs = b->second.size() / 2, ins = a->second.size() / 2;
  for (size_t o = 0; o < outs; ++o) {
    for (size_t i = 0; i < ins; ++i) {
      const double sum = double{b->second[2 * o]} * a->second[i] +
                         double{b->second[2 * o + 1]} * a->second[ins + i];
      float& w = merged[o * ins + i];
      w = static_cast<float>(w + 1.5 * sum);
    }
  }
  return merged;
}

}  // namespace adjoint
