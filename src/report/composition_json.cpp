#include "report/composition_json.h"

namespace adjoint {

namespace {

nlohmann::json checked_json(const Composed& stack) {
  return {{"stack", stack.stack},    {"law", name(stack.law)},   {"against", stack.against},
          {"models", stack.checked}, {"refused", stack.refused}, {"broken", stack.broken}};
}

}  // namespace

nlohmann::json composition_json(const Composition& composition) {
  nlohmann::json pairs = nlohmann::json::array(), stacks = pairs;
  for (const std::vector<Composed>& row : composition.pairs) {
    for (const Composed& pair : row) pairs.push_back(checked_json(pair));
  }
  for (const Composed& stack : composition.stacks) stacks.push_back(checked_json(stack));
  return {{"ok", composition.ok()},
          {"items", composition.items},
          {"pairs", std::move(pairs)},
          {"stacks", std::move(stacks)}};
}

}  // namespace adjoint
