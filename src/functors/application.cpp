#include "functors/application.h"

namespace adjoint {

void Application::say(const Scheme& scheme, Value v, const std::string& attribute,
                      const std::string& value) {
  ++matches;
  const std::string source = to_string(scheme[v].source);
  if (branches.empty()) note(attribute + " " + value, source);
  for (const std::string& branch : branches) note(branch, source);
  const auto [found, fresh] =
      said->emplace(std::pair{source, attribute}, std::pair{value, functor});
  const auto& [earlier, by] = found->second;
  if (fresh || earlier == value) return;
  refuse("says ", attribute, " ", value, " of '", source, "', and ", by, " says ", earlier,
         "; leave one of them out");
}

}  // namespace adjoint
