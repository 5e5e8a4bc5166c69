// Sets the residence of tensors by name: `kept` tensors are kept, `host` tensors are kept in the
// host tier, `again` tensors are recomputed. Everything else inside the chain's blocks, including
// the states between them, is recomputed, too, unless only `again` is given. `--fit` writes its
// choice for a model this way. A name is a source path in which a range may replace an index:
// "block[2..5].up".
#include <algorithm>

#include "analysis/structure.h"
#include "base/text.h"
#include "functors/functor.h"
#include "ops/op_def.h"

namespace adjoint {

namespace {

// The whole number that begins `text`, taken off it; -1 where there is none.
int64_t take_index(std::string_view& text) {
  int64_t index = -1;
  while (!text.empty() && text[0] >= '0' && text[0] <= '9' && index < (int64_t{1} << 40)) {
    index = std::max<int64_t>(index, 0) * 10 + (text[0] - '0');
    text.remove_prefix(1);
  }
  return index;
}

bool matches(std::string_view pattern, const Source& source) {
  std::string_view path = source.path;
  while (!path.empty()) {
    if (pattern.empty() || pattern[0] != path[0]) return false;
    const bool index = path[0] == '[';
    pattern.remove_prefix(1);
    path.remove_prefix(1);
    if (!index) continue;
    const int64_t first = take_index(pattern), here = take_index(path);
    int64_t last = first;
    if (pattern.starts_with("..")) {
      pattern.remove_prefix(2);
      last = take_index(pattern);
    }
    if (here < first || here > last) return false;
  }
  if (source.facet.empty()) return pattern.empty();
  return pattern.starts_with(":") && pattern.substr(1) == source.facet;
}

class Residing {
 public:
  Residing(Scheme scheme, Application& application)
      : scheme_(std::move(scheme)), application_(application) {
    made_forward_.assign(scheme_.objects.size(), false);
    named_ = made_forward_;
    for (const Morphism& m : scheme_.morphisms) {
      if (m.phase != Phase::kForward) continue;
      for (const Value out : m.outputs) made_forward_[out] = true;
    }
  }

  Scheme run() {
    say("kept", Residence::kKept, Tier::kDevice);
    say("host", Residence::kKept, Tier::kHost);
    say("again", Residence::kRecomputed, Tier::kDevice);
    // If only `again` is given, nothing else is recomputed.
    const bool only_again = names_in("kept") + names_in("host") == 0 && names_in("again") > 0;
    const Chain chain = only_again ? Chain{} : find_chain(scheme_);
    const std::vector<bool> from_data = depends_on_data(scheme_);
    for (Value v = 0; v < static_cast<Value>(scheme_.objects.size()); ++v) {
      const bool inside = chain.length() > 0 && chain.block_of[v] >= 0 && v != chain.states.back();
      if (inside && made_forward_[v] && from_data[v] && !named_[v]) {
        set(v, Residence::kRecomputed, Tier::kDevice);
      }
    }
    return std::move(scheme_);
  }

 private:
  size_t names_in(std::string_view list) const { return application_.args.list(list).size(); }

  void say(std::string_view list, Residence residence, Tier tier) {
    for (const Term& name : application_.args.list(list)) {
      bool found = false;
      for (Value v = 0; v < static_cast<Value>(scheme_.objects.size()); ++v) {
        if (!made_forward_[v] || !matches(name.word, scheme_[v].source)) continue;
        if (named_[v]) application_.refuse("'", to_string(scheme_[v].source), "' is named twice");
        found = named_[v] = true;
        set(v, residence, tier);
      }
      if (found || !application_.training) continue;
      application_.refuse("the forward pass makes no '", name.word,
                          "'; was this written for another model?",
                          did_you_mean(name.word, names()));
    }
  }

  std::vector<std::string> names() const {
    std::vector<std::string> all;
    for (size_t v = 0; v < made_forward_.size(); ++v) {
      if (made_forward_[v]) all.push_back(to_string(scheme_.objects[v].source));
    }
    return all;
  }

  void set(Value v, Residence residence, Tier tier) {
    const bool kept = residence == Residence::kKept;
    application_.say(scheme_, v, "residence", kept ? "kept" : "recomputed");
    scheme_[v].attributes.residence = residence;
    if (tier == Tier::kHost) {
      application_.say(scheme_, v, "tier", "host");
      --application_.matches;  // one object
      scheme_[v].attributes.tier = tier;
    }
    ++application_.counts[tier == Tier::kHost ? "host" : kept ? "kept" : "recomputed"];
  }

  Scheme scheme_;
  Application& application_;
  std::vector<bool> made_forward_, named_;
};

Scheme say_where(Scheme scheme, Application& application) {
  return Residing(std::move(scheme), application).run();
}

FunctorParam names_of(const char* name, const char* summary) {
  return {.name = name, .otherwise = "[]", .summary = summary, .list = true, .text = true};
}

}  // namespace

extern const Functor functor_reside = {
    .name = "reside",
    .summary =
        "keeps the named tensors, on the device or the host; recomputes the rest of the blocks",
    .law = Law::kExact,
    .params = {names_of("kept", "sources, such as \"block[2..5].up\""),
               names_of("host", "kept in the next tier of memory"),
               names_of("again", "outside the blocks: recomputed")},
    .rules = {{FunctorPhase::kStepRules, say_where}},
};

}  // namespace adjoint
