#include "functors/application.h"

namespace adjoint {

bool Application::say(const Scheme& scheme, Value v, const std::string& attribute,
                      const std::string& value, bool yields) {
  ++matches;
  const std::string source = to_string(scheme[v].source);
  const Saying saying{value, functor, yields};
  const auto [found, fresh] = said->emplace(std::pair{source, attribute}, saying);
  Saying& earlier = found->second;
  const bool differs = !fresh && earlier.value != value;
  if (differs && !yields && !earlier.yields) {
    refuse("says ", attribute, " ", value, " of '", source, "', and ", earlier.by, " says ",
           earlier.value, "; leave one of them out");
  }
  if (differs && yields && (!earlier.yields || earlier.value == "trained")) return false;
  if (differs || (earlier.yields && !yields)) earlier = saying;
  if (branches.empty()) note(attribute + " " + value, source);
  for (const std::string& branch : branches) note(branch, source);
  return true;
}

}  // namespace adjoint
