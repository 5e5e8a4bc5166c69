#include "functors/functor.h"

#include <algorithm>

#include "base/text.h"
#include "functors/functor_text.h"
#include "models/settings.h"

namespace adjoint {

std::string_view name(Law law) {
  constexpr std::string_view names[] = {"exact", "reassociating", "approximating"};
  return names[static_cast<size_t>(law)];
}

std::string_view name(FunctorPhase phase) {
  constexpr std::string_view names[] = {"morphisms",  "adjoint",      "states",
                                        "step rules", "bit-changing", "realize",
                                        "positions",  "timed",        "exact"};
  return names[static_cast<size_t>(phase)];
}

const Functor* find_functor(std::span<const Functor* const> known, std::string_view name) {
  const auto found =
      std::find_if(known.begin(), known.end(), [&](const Functor* f) { return f->name == name; });
  return found == known.end() ? nullptr : *found;
}

namespace {

Law weakest_law(const Functor& functor, std::span<const Functor* const> known,
                std::vector<std::string> within) {
  if (functor.parts.empty()) return functor.law;
  within.push_back(functor.name);
  Law weakest = Law::kExact;
  for (const StackPart& part : functor.parts) {
    if (part.off) continue;
    const Functor* found = find_functor(known, part.name);
    if (!found) {
      std::vector<std::string> names;
      for (const Functor* f : known) names.push_back(f->name);
      const std::string near = did_you_mean(part.name, names);
      fail_at(part.file, part.at, functor.name, ": there is no functor '", part.name, "'",
              near.empty() ? "; adjoint functors lists them" : near);
    }
    if (std::find(within.begin(), within.end(), part.name) != within.end()) {
      fail_at(part.file, part.at, functor.name, ": '", part.name, "' has itself in its stack");
    }
    weakest = std::max(weakest, weakest_law(*found, known, within));
  }
  return weakest;
}

}  // namespace

void settle_law(Functor& functor, std::span<const Functor* const> known) {
  if (functor.parts.empty()) return;
  const Law weakest = weakest_law(functor, known, {});
  if (functor.says_law && functor.law < weakest) {
    fail_at(functor.parts[0].file, functor.parts[0].at, functor.name, ": says that it is ",
            name(functor.law), ", and its parts are ", name(weakest));
  }
  if (!functor.says_law) functor.law = weakest;
}

#define FUNCTOR(name) extern const Functor functor_##name;
#include "functors/functors.inc"
#undef FUNCTOR

std::span<const Functor* const> all_functors() {
  static std::vector<Functor> texts = [] {
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
    for (Functor& f : texts) settle_law(f, list);
    return list;
  }();
  return all;
}

}  // namespace adjoint
