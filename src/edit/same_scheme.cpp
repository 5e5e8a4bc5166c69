#include "edit/same_scheme.h"

#include <algorithm>

#include "base/error.h"
#include "models/elaborate.h"

namespace adjoint {

namespace {

// Objects are the same if they are made in the same place; numbers are given as they are met.
class Comparison {
 public:
  Comparison(const Scheme& a, const Scheme& b) : a_(a), b_(b) {}

  std::optional<std::string> run() {
    if (!same_values(a_.outputs, b_.outputs, true)) return "other results";
    if (a_.morphisms.size() != b_.morphisms.size()) {
      return std::to_string(a_.morphisms.size()) + " calls become " +
             std::to_string(b_.morphisms.size());
    }
    for (size_t i = 0; i < a_.morphisms.size(); ++i) {
      const Morphism &m = a_.morphisms[i], &n = b_.morphisms[i];
      const bool same = m.op.compare(n.op) == 0 && same_attrs(m.attrs, n.attrs) &&
                        same_values(m.inputs, n.inputs, false) &&
                        same_values(m.outputs, n.outputs, false);
      if (!same) return "call " + to_string(m.source) + " becomes " + to_string(n.source);
    }
    if (!same_values(a_.outputs, b_.outputs, false)) return "other results";
    if (!same_values(a_.inputs, b_.inputs, false)) return "other inputs";
    return std::nullopt;
  }

  // Of two that are the same: what every call and every parameter was called, and is.
  void collect_paths(ComparedPaths& paths) const {
    for (size_t i = 0; i < a_.morphisms.size(); ++i) {
      paths.calls.emplace(a_.morphisms[i].source.path, b_.morphisms[i].source.path);
    }
    for (const auto& [was, is] : met_) {
      if (a_[was].role != Role::kParameter) continue;
      paths.parameters.emplace(a_[was].source.path, b_[is].source.path);
    }
  }

 private:
  bool same_values(const std::vector<Value>& of_a, const std::vector<Value>& of_b, bool count) {
    if (of_a.size() != of_b.size()) return false;
    for (size_t i = 0; i < of_a.size() && !count; ++i) {
      const auto [met, fresh] = met_.emplace(of_a[i], of_b[i]);
      if (met->second != of_b[i]) return false;
      if (fresh && !taken_.emplace(of_b[i], of_a[i]).second) return false;
      if (fresh && !same_object(a_[of_a[i]], b_[of_b[i]])) return false;
    }
    return true;
  }

  static bool same_object(const Object& x, const Object& y) {
    return x.type.dtype == y.type.dtype && same_shape(x.type, y.type) && x.role == y.role &&
           x.frozen == y.frozen && x.init == y.init;
  }

  // `key` is a path, by which random numbers are drawn.
  static bool same_attrs(Attrs x, Attrs y) {
    x.erase("key");
    y.erase("key");
    return x == y;
  }

  const Scheme &a_, &b_;
  std::map<Value, Value> met_, taken_;
};

// Both texts as they stand (-1), or under the preset of this number.
class Variant {
 public:
  Variant(const Document& before, const Document& after, std::string_view file, int preset)
      : before_(before), after_(after), file_(file), preset_(preset) {}

  std::string under() const {
    const Preset* preset = preset_of(before_);
    return preset ? " under preset '" + preset->name + "'" : "";
  }

  // An Error where the two differ.
  void compare(Comparisons& done) const {
    // Whole, however deep: a box may do in a late repetition what it does in no early one.
    Scheme was;
    try {
      was = elaborate(before_, file_, settings_of(before_));
    } catch (const Error& e) {
      done.notes.push_back("not compared" + under() +
                           ": the text before gives no model: " + e.what());
      return;
    }
    Scheme is;
    try {
      is = elaborate(after_, file_, settings_of(after_));
    } catch (const Error& e) {
      fail("this edit would break the model", under(), ": ", e.what());
    }
    Comparison comparison(was, is);
    if (const auto difference = comparison.run()) {
      fail("this edit would change what the model computes", under(), ": ", *difference);
    }
    comparison.collect_paths(done.paths);
  }

 private:
  // By its number, for it may be called otherwise by now.
  const Preset* preset_of(const Document& document) const {
    return preset_ < 0 ? nullptr : &document.presets[static_cast<size_t>(preset_)];
  }
  ModelConfig settings_of(const Document& document) const {
    const Preset* preset = preset_of(document);
    return {.preset = preset ? preset->name : "", .settings = {}};
  }

  const Document &before_, &after_;
  std::string_view file_;
  int preset_;
};

}  // namespace

std::optional<std::string> first_difference(const Scheme& a, const Scheme& b) {
  return Comparison(a, b).run();
}

Comparisons check_same_meaning(const Document& before, const Document& after,
                               std::string_view file) {
  constexpr size_t kMostPresets = 16;
  Comparisons done;
  const size_t presets = before.presets.size();
  CHECK(after.presets.size() == presets, "an edit that keeps the meaning keeps the presets");
  for (int i = -1; i < static_cast<int>(std::min(presets, kMostPresets)); ++i) {
    Variant(before, after, file, i).compare(done);
  }
  if (presets > kMostPresets) {
    done.notes.push_back(
        join_parts("not compared under the presets behind the first ", kMostPresets));
  }
  return done;
}

}  // namespace adjoint
