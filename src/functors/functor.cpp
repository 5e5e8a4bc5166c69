#include "functors/functor.h"

#include "functors/functor_text.h"

namespace adjoint {

std::string_view name(Law law) {
  constexpr std::string_view names[] = {"exact", "reassociating", "approximating"};
  return names[static_cast<size_t>(law)];
}

std::string_view name(FunctorPhase phase) {
  constexpr std::string_view names[] = {"morphisms", "adjoint", "step rules", "bit-changing",
                                        "realize",   "timed",   "exact"};
  return names[static_cast<size_t>(phase)];
}

#define FUNCTOR(name) extern const Functor functor_##name;
#include "functors/functors.inc"
#undef FUNCTOR

std::span<const Functor* const> all_functors() {
  static const std::vector<Functor> texts = [] {
    std::vector<Functor> parsed;
    for (const FunctorFile& file : functor_files()) {
      parsed.push_back(parse_functor(file.text, "functors/" + std::string(file.name)));
    }
    return parsed;
  }();
  static const std::vector<const Functor*> all = [] {
    std::vector<const Functor*> list;
    for (const Functor& f : texts) list.push_back(&f);
    const Functor* const written_in_cpp[] = {
#define FUNCTOR(name) &functor_##name,
#include "functors/functors.inc"
#undef FUNCTOR
    };
    list.insert(list.end(), std::begin(written_in_cpp), std::end(written_in_cpp));
    return list;
  }();
  return all;
}

}  // namespace adjoint
