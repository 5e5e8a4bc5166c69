#include "laws/coverage.h"

#include <algorithm>
#include <map>
#include <set>

#include "base/text.h"
#include "functors/pipeline.h"

namespace adjoint {

namespace {

// A source without its indices: block[3].up is block[*].up, in block 3 of "block".
struct Place {
  std::string kind, box = {};
  int64_t index = -1;
};

Place place_of(const std::string& source) {
  Place place{.kind = {}};
  for (size_t i = 0; i < source.size(); ++i) {
    place.kind += source[i];
    if (source[i] != '[') continue;
    const size_t close = source.find_first_not_of("0123456789", i + 1);
    if (close == std::string::npos || source[close] != ']' || close == i + 1) continue;
    if (place.index < 0) {
      place.box = source.substr(0, i);
      place.index = std::stoll(source.substr(i + 1, close - i - 1));
    }
    place.kind += "*]";
    i = close;
  }
  return place;
}

// "in 4 parts" and "in 8 parts" count as the same deed.
std::string without_numbers(const std::string& text) {
  std::string out;
  for (const char c : text) {
    const bool digit = c >= '0' && c <= '9';
    if (!digit)
      out += c;
    else if (out.empty() || out.back() != '#')
      out += '#';
  }
  return out;
}

// What a call is beside its op: constants that are 0 or 1, with which it does nothing or all.
std::string call_kind(const Morphism& m) {
  std::string kind = kind_of(to_string(m.source)) + "|" + m.op;
  for (const auto& [name, value] : m.attrs) {
    const auto* const number = std::get_if<double>(&value);
    if (number && (*number == 0 || *number == 1)) kind += join_parts("|", name, "=", *number);
  }
  return kind;
}

class Collector {
 public:
  explicit Collector(const Scheme& scheme) {
    for (const Object& o : scheme.objects) {
      const Place place = place_of(o.source.path);
      if (place.index >= 0) {
        int64_t& blocks = blocks_[place.box];
        blocks = std::max(blocks, place.index + 1);
      }
    }
  }

  void take(const Firing& f) {
    const Place place = place_of(f.source);
    const std::string who = std::to_string(f.functor) + "|" + f.branch;
    add(who, f.functor, f.branch, f.source);
    add(who + "|" + place.kind + "|" + where(place), f.functor, f.branch, f.source);
    if (place.index < 0) return;
    Box& box = done_[{f.functor, place.box}];
    box.blocks.resize(std::max(blocks_[place.box], place.index + 1));
    box.blocks[place.index].insert(f.branch + "|" + place.kind);
  }

  void add(const std::string& key, size_t functor, const std::string& branch,
           const std::string& at) {
    const auto [found, fresh] = deeds_.try_emplace(key, Deed{key, functor, branch, at});
    ++found->second.count;
  }

  std::vector<Deed> deeds() {
    for (const auto& [whose, box] : done_) add_neighbours(whose.first, whose.second, box);
    std::vector<Deed> list;
    for (auto& [key, deed] : deeds_) list.push_back(std::move(deed));
    return list;
  }

 private:
  struct Box {
    std::vector<std::set<std::string>> blocks = {};  // what a functor does in each
  };

  std::string where(const Place& place) {
    if (place.index < 0) return "outside";
    if (place.index == 0) return "first";
    return place.index + 1 == blocks_[place.box] ? "last" : "inner";
  }

  void add_neighbours(size_t functor, const std::string& name, const Box& box) {
    for (size_t i = 0; i + 1 < box.blocks.size(); ++i) {
      std::string key = std::to_string(functor) + "|" + name;
      for (const size_t k : {i, i + 1}) {
        key += " :";
        for (const std::string& deed : box.blocks[k]) key += " " + deed;
      }
      const auto block = [&](size_t k) { return name + "[" + std::to_string(k) + "]"; };
      add(key, functor, "", block(i) + " beside " + block(i + 1));
    }
  }

  std::map<std::string, int64_t> blocks_;  // of each repeated box
  std::map<std::pair<size_t, std::string>, Box> done_;
  std::map<std::string, Deed> deeds_;
};

}  // namespace

std::string kind_of(const std::string& source) { return place_of(source).kind; }

Coverage coverage_of(const Scheme& forward, const Stack& stack, const StepOptions& options) {
  std::vector<Firing> firings;
  const BuiltStep built = build_step(forward, stack, options, &firings);
  Collector collector(forward);
  for (const Firing& f : firings) collector.take(f);
  Coverage coverage;
  for (size_t i = 0; i < built.applied.size(); ++i) {
    const Applied& applied = built.applied[i];
    coverage.functors.push_back(applied.name);
    if (applied.matches == 0) continue;
    collector.add(std::to_string(i), i, "", "");
    // For functors that do not report where they acted: what they counted.
    const auto is_its = [&](const Firing& f) { return f.functor == i; };
    if (std::any_of(firings.begin(), firings.end(), is_its)) continue;
    for (const auto& [what, count] : applied.counts) {
      collector.add(std::to_string(i) + "|" + without_numbers(what), i, what, "");
    }
  }
  coverage.functors.emplace_back("the model with the stack");
  for (const Morphism& m : said_step(forward, stack, options).morphisms) {
    if (m.phase != Phase::kForward) continue;
    collector.add("call|" + call_kind(m), built.applied.size(), m.op, to_string(m.source));
  }
  coverage.deeds = collector.deeds();
  return coverage;
}

std::vector<Deed> missing(const Coverage& model, const Coverage& copy) {
  std::set<std::string> there;
  for (const Deed& deed : copy.deeds) there.insert(deed.key);
  std::vector<Deed> list;
  for (const Deed& deed : model.deeds) {
    if (!there.count(deed.key)) list.push_back(deed);
  }
  return list;
}

std::vector<Unseen> describe(const Coverage& model, const std::vector<Deed>& missing) {
  // Takes the first deed of each functor and branch, which is the most general: keys are sorted,
  // and more specific keys are longer. Neighbours are named only if nothing else of their functor
  // is missing.
  std::map<std::pair<size_t, std::string>, const Deed*> first;
  std::set<size_t> told;
  for (const Deed& deed : missing) {
    const bool neighbours = deed.branch.empty() && !deed.at.empty();
    if (!neighbours) told.insert(deed.functor);
    first.try_emplace({deed.functor, deed.branch}, &deed);
  }
  std::vector<Unseen> list;
  for (const auto& [whose, deed] : first) {
    const auto& [functor, branch] = whose;
    if (branch.empty() && told.count(functor) && !deed->at.empty()) continue;
    std::string what = model.functors[functor];
    if (!branch.empty()) what += ", " + branch;
    if (!deed->at.empty()) {
      what += branch.empty() ? ": what it does in " + deed->at : ": at " + deed->at;
      if (deed->count > 1) what += join_parts(" and in ", deed->count - 1, " more places");
    } else if (branch.empty()) {
      what += ": acts nowhere in the copy";
    }
    list.push_back({functor, what});
  }
  return list;
}

}  // namespace adjoint
