#include "functors/near_functor.h"

#include <algorithm>

#include "base/text.h"
#include "functors/functor_text.h"

namespace adjoint {

std::vector<std::string> stackable_functors() {
  std::vector<std::string> names;
  for (const Functor* f : all_functors()) {
    if (!f->of_forward) names.push_back(f->name);
  }
  return names;
}

std::string functor_called(std::string_view word) {
  std::string name = lowered(word);
  std::replace(name.begin(), name.end(), '-', '_');
  for (const Functor* f : all_functors()) {
    if (f->of_forward) continue;
    if (f->name == name) return f->name;
    if (f->text.empty()) continue;
    const std::vector<std::string> others = parse_functor_text(f->text, f->name).elsewhere;
    if (std::find(others.begin(), others.end(), name) != others.end()) return f->name;
  }
  return "";
}

std::string did_you_mean_functor(std::string_view word) {
  const std::string called = functor_called(word);
  if (!called.empty() && called != word) return "; did you mean '" + called + "'?";
  return did_you_mean(word, stackable_functors());
}

}  // namespace adjoint
