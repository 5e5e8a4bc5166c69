// The calls that a gang consists of.
#pragma once
#include "ops/op_def.h"

namespace adjoint {

// How the operands of the gang are those of its calls.
struct GangMembers {
  const OpDef* op = nullptr;
  Attrs attrs = {};
  int64_t calls = 0, own = 0, shared = 0;  // own: operands of one call that are not shared

  size_t operand(int64_t call, int64_t k) const {
    return static_cast<size_t>(k < own ? call * own + k : calls * own + k - own);
  }
  template <class T>
  std::vector<T> operands(const std::vector<T>& all, int64_t call) const {
    std::vector<T> mine;
    for (int64_t k = 0; k < own + shared; ++k) mine.push_back(all[operand(call, k)]);
    return mine;
  }
  template <class T>
  std::vector<T> results(const std::vector<T>& all, int64_t call) const {
    const int64_t each = static_cast<int64_t>(all.size()) / calls;
    return {all.begin() + call * each, all.begin() + (call + 1) * each};
  }
  OpCall call(const OpCall& gang, int64_t i) const {
    return {.op = op->name, .inputs = operands(gang.inputs, i), .attrs = attrs};
  }
};

GangMembers gang_members(const OpCall& gang);              // Error
std::optional<std::string> op_of_gang(const Morphism& m);  // nothing: it is no gang
bool is_gang_of_sums(const OpCall& gang, const GangMembers& m);

}  // namespace adjoint
