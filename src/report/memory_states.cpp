#include "report/memory_states.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <tuple>

#include "analysis/structure.h"
#include "base/error.h"
#include "base/text.h"
#include "functors/stage_schedule.h"
#include "functors/stage_step.h"
#include "ops/op_def.h"

namespace adjoint {

Bytes total(const Factors& factors) {
  Bytes sum{0};
  for (const Factor& f : factors) sum += f.bytes;
  return sum;
}

namespace {

// What paths are in a step. No functor changes a path, so what a functor made of an object is where
// the object was.
struct Paths {
  Paths(const Scheme& said, const Scheme& whole) {
    const Chain chain = find_chain(said);
    length = chain.length();
    for (size_t v = 0; v < said.objects.size(); ++v) {
      if (chain.block_of[v] >= 0) block_of.emplace(said.objects[v].source.path, chain.block_of[v]);
    }
    for (size_t l = 0; l < chain.states.size(); ++l) {
      state_of.emplace(said[chain.states[l]].source.path, static_cast<int>(l));
    }
    const std::vector<bool> from_data = depends_on_data(whole);
    for (size_t v = 0; v < whole.objects.size(); ++v) {
      const Object& o = whole.objects[v];
      const bool is_value = o.role == Role::kParameter || o.role == Role::kActivation;
      if (is_value && !from_data[v]) of_no_sample.insert(o.source.path);
    }
  }

  int length = 0;
  std::map<std::string, int, std::less<>> block_of, state_of;
  std::set<std::string> of_no_sample;  // parameters, and what is made of them alone
};

// Activations and their gradients, by the block of the chain and the part of the batch that they
// belong to.
class LiveObjects {
 public:
  LiveObjects(Paths paths, const Scheme& step, const Plan& plan, const std::vector<Slot>& list = {})
      : paths_(std::move(paths)),
        length_(paths_.length),
        step_(step),
        plan_(plan),
        made_at_(step.objects.size(), -1) {
    first_read_.assign(step.objects.size(), static_cast<int>(plan.calls.size()));
    for (size_t at = 0; at < plan.calls.size(); ++at) {
      const Morphism& m = morphism(at);
      for (const Value out : m.outputs) made_at_[out] = static_cast<int>(at);
      for (const Value in : m.inputs) {
        first_read_[in] = std::min(first_read_[in], static_cast<int>(at));
      }
    }
    find_parts(list);
    find_ends();
  }

  // What a row stands for: pass, epoch of recomputation and block, from 0; -1 is before the chain.
  using Work = std::tuple<Pass, int, int>;
  // The last call of each.
  std::map<Work, int> ends_of(int part) const {
    std::map<Work, int> found;
    for (const auto& [key, at] : ends_) {
      if (key.second == part) found[key.first] = at;
    }
    return found;
  }

  // Between the call at `place` and the one after it.
  Factors after(int place, int part) const {
    std::vector<std::pair<Value, Bytes>> alive;
    for (const Storage& s : plan_.storages) {
      if (s.tier != Tier::kDevice || s.first > place || s.last <= place) continue;
      for (const Tenant& t : s.tenants) {
        if (t.from <= place && t.to >= place && counts(t) && part_of_[t.object] == part) {
          alive.emplace_back(t.object, t.size);
        }
      }
    }
    return grouped(alive, place);
  }

  // The most bytes of all parts at a call in [from, to].
  Bytes most(int from, int to) const {
    std::vector<int64_t> change(to - from + 2, 0);
    for (const Storage& s : plan_.storages) {
      if (s.tier != Tier::kDevice) continue;
      for (const Tenant& t : s.tenants) {
        if (t.to < from || t.from > to || t.to < t.from || !counts(t)) continue;
        change[std::max(t.from, from) - from] += t.size.count;
        change[std::min(t.to, to) - from + 1] -= t.size.count;
      }
    }
    int64_t live = 0, most = 0;
    for (const int64_t c : change) most = std::max(most, live += c);
    return {most};
  }

 private:
  const Morphism& morphism(size_t place) const {
    return step_.morphisms[plan_.calls[place].morphism];
  }

  // Whether a tenant is an activation or the gradient of one.
  bool counts(const Tenant& t) const {
    if (t.object < 0) return false;
    if (t.category == Category::kActivations) return true;
    return t.category == Category::kGradients &&
           !paths_.of_no_sample.count(step_[t.object].source.path);
  }

  bool is_gradient(Value v) const { return category_of(step_[v].role) == Category::kGradients; }

  std::optional<int> state_index(Value v) const {
    const auto found = paths_.state_of.find(step_[v].source.path);
    return found == paths_.state_of.end() ? std::nullopt : std::optional(found->second);
  }

  // The block that makes an object, from 0; -1: what is before the chain, length(): all else. The
  // gradient of a state is made by the block that the state enters.
  int block_of(Value v) const {
    if (const auto l = state_index(v)) return is_gradient(v) ? *l : *l - 1;
    const auto found = paths_.block_of.find(step_[v].source.path);
    return found == paths_.block_of.end() ? length_ : found->second;
  }

  // A slot's calls make objects of its part; what is received before it is wanted belongs to the
  // part of its first reader.
  void find_parts(const std::vector<Slot>& list) {
    part_of_.assign(step_.objects.size(), 0);
    const auto part_at = [&](int place) {
      const Morphism& m = morphism(static_cast<size_t>(place));
      if (m.section != Section::kBody || m.slot < 1 || m.slot > static_cast<int>(list.size())) {
        return -1;
      }
      return list[m.slot - 1].part;
    };
    if (list.empty()) return;
    for (size_t v = 0; v < step_.objects.size(); ++v) {
      int place = made_at_[v];
      if (place >= 0 && op_named(morphism(static_cast<size_t>(place)).op).to_one_rank) {
        place = first_read_[v] < static_cast<int>(plan_.calls.size()) ? first_read_[v] : -1;
      }
      part_of_[v] = place < 0 ? -1 : part_at(place);
    }
  }

  void find_ends() {
    for (int at = plan_.body_begin; at < plan_.body_end; ++at) {
      const Morphism& m = morphism(static_cast<size_t>(at));
      if (m.phase == Phase::kUpdate || op_named(m.op).to_one_rank) continue;
      for (const Value out : m.outputs) {
        const int block = block_of(out);
        const Pass pass = m.epoch > 0                  ? Pass::kAgain
                          : m.phase == Phase::kForward ? Pass::kForward
                                                       : Pass::kBackward;
        // Behind the chain the backward pass ends with the gradient that enters the chain.
        if (block == length_ && pass != Pass::kForward && state_index(out) != length_) continue;
        ends_[{{pass, m.epoch, block}, part_of_[out]}] = at;
      }
    }
  }

  // Whether the block that reads v, in the epoch in which v was made, is done.
  bool is_done(Value v, int block, int place) const {
    const int epoch = made_at_[v] < 0 ? 0 : morphism(static_cast<size_t>(made_at_[v])).epoch;
    const Pass pass = epoch > 0 ? Pass::kAgain : Pass::kForward;
    const auto end = ends_.find({{pass, epoch, block}, part_of_[v]});
    return end == ends_.end() || end->second <= place;
  }

  // The block that reads a state runs on another rank.
  bool leaves(Value v, int state) const {
    return state < length_ && !ends_.count({{Pass::kForward, 0, state}, part_of_[v]});
  }

  Factors grouped(const std::vector<std::pair<Value, Bytes>>& alive, int place) const {
    std::set<int> kept;  // blocks of which something inside is kept
    for (const auto& [v, bytes] : alive) {
      const int block = block_of(v);
      if (is_gradient(v) || state_index(v) || block == length_) continue;
      if (is_done(v, block, place)) kept.insert(block);
    }
    std::map<std::pair<FactorKind, int>, Bytes> sums;
    for (const auto& [v, bytes] : alive) {
      auto [found, fresh] = sums.emplace(factor_of(v, place, kept), Bytes{0});
      found->second += bytes;
    }
    Factors factors;
    for (const auto& [key, bytes] : sums) {
      if (bytes.count > 0) factors.push_back({key.first, key.second, bytes});
    }
    return factors;
  }

  std::pair<FactorKind, int> factor_of(Value v, int place, const std::set<int>& kept) const {
    if (is_gradient(v)) return {FactorKind::kGradient, 0};
    if (const auto state = state_index(v)) {
      if (leaves(v, *state)) return {FactorKind::kSent, *state};
      if (!is_done(v, *state, place)) return {FactorKind::kState, *state};
      if (*state == length_) return {FactorKind::kOutside, 0};
      if (kept.count(*state)) return {FactorKind::kBlock, *state + 1};
      return {FactorKind::kCheckpoint, *state};
    }
    const int block = block_of(v);
    if (block == length_) return {FactorKind::kOutside, 0};
    // What a call already makes for the next block goes on with the state.
    if (!is_done(v, block, place)) return {FactorKind::kState, block};
    return {FactorKind::kBlock, block + 1};
  }

  Paths paths_;
  int length_;
  const Scheme& step_;
  const Plan& plan_;
  std::vector<int> made_at_, first_read_, part_of_;
  std::map<std::pair<Work, int>, int> ends_;  // by work and part
};

std::string_view letter(FactorKind kind) {
  constexpr std::string_view letters[] = {"x", "ch", "t", "y", "dx", "r"};
  return letters[static_cast<size_t>(kind)];
}

std::string_view meaning(FactorKind kind) {
  constexpr std::string_view meanings[] = {
      "a state of the chain that goes on, and what its call already made for the next block",
      "a checkpoint: a state that is kept while its block is to be recomputed",
      "all that one block keeps for its backward pass, its state included",
      "a state that another rank goes on with",
      "gradients of activations",
      "activations outside of the chain"};
  return meanings[static_cast<size_t>(kind)];
}

// Factors of equal kind and bytes have one letter; others of that kind have it with more marks, in
// the order in which they appear.
class Letters {
 public:
  std::string product(const Factors& factors) {
    std::vector<std::pair<std::string, int>> powers;
    for (const Factor& f : factors) {
      const std::string name = name_of(f);
      if (powers.empty() || powers.back().first != name) powers.emplace_back(name, 0);
      ++powers.back().second;
    }
    std::vector<std::string> words;
    for (const auto& [name, power] : powers) {
      words.push_back(power == 1 ? name : fmt::format("{}^{}", name, power));
    }
    return words.empty() ? "." : join(words, " * ");
  }

  nlohmann::json factors_json(const Factors& factors) {
    nlohmann::json out = nlohmann::json::array();
    for (const Factor& f : factors) {
      nlohmann::json one = {{"letter", name_of(f)}, {"bytes", f.bytes.count}};
      const bool counted = f.kind == FactorKind::kState || f.kind == FactorKind::kCheckpoint ||
                           f.kind == FactorKind::kBlock || f.kind == FactorKind::kSent;
      if (counted) one["index"] = f.index;
      out.push_back(std::move(one));
    }
    return out;
  }

  // What is alive, as JSON says it in every place.
  nlohmann::json alive_json(const Factors& factors) {
    return {{"product", product(factors)},
            {"factors", factors_json(factors)},
            {"bytes", total(factors).count}};
  }

  nlohmann::json letters_json() const {
    nlohmann::json out = nlohmann::json::object();
    for (const auto& [kind, sizes] : sizes_) {
      for (size_t i = 0; i < sizes.size(); ++i) {
        out[marked(kind, i)] = {{"means", meaning(kind)}, {"bytes", sizes[i]}};
      }
    }
    return out;
  }

  std::string legend() const {
    std::string out;
    for (const auto& [kind, sizes] : sizes_) {
      for (size_t i = 0; i < sizes.size(); ++i) {
        out += fmt::format("{:<5} {:>16} bytes  {}\n", marked(kind, i), with_commas(sizes[i]),
                           i == 0 ? meaning(kind) : "the same, of another size");
      }
    }
    return out;
  }

 private:
  static std::string marked(FactorKind kind, size_t i) {
    return std::string(letter(kind)) + (i < 3 ? std::string(i, '\'') : fmt::format("'{}", i));
  }
  std::string name_of(const Factor& f) {
    std::vector<int64_t>& sizes = sizes_[f.kind];
    const auto found = std::find(sizes.begin(), sizes.end(), f.bytes.count);
    const auto i = static_cast<size_t>(found - sizes.begin());
    if (found == sizes.end()) sizes.push_back(f.bytes.count);
    return marked(f.kind, i);
  }

  std::map<FactorKind, std::vector<int64_t>> sizes_;
};

std::string_view name(Pass pass) {
  constexpr std::string_view names[] = {"forward", "again", "backward"};
  return names[static_cast<size_t>(pass)];
}

constexpr std::string_view kLeftOut =
    "left out: parameters, their gradients, state, data, workspaces and the host's memory\n";

std::string rows_table(const std::vector<MemoryState>& rows, int length, Letters& letters) {
  size_t width = 7;
  std::vector<std::string> products;
  for (const MemoryState& row : rows) {
    products.push_back(letters.product(row.factors));
    width = std::max(width, products.back().size());
  }
  std::string out = fmt::format("{:<9} {:<6} {:<{}} {:>16} {:>16}\n", "pass", "block", "product",
                                width, "bytes", "most on the way");
  for (size_t i = 0; i < rows.size(); ++i) {
    const MemoryState& row = rows[i];
    const std::string block = row.block == 0       ? "before"
                              : row.block > length ? "behind"
                                                   : std::to_string(row.block);
    out += fmt::format("{:<9} {:<6} {:<{}} {:>16} {:>16}\n", name(row.pass), block, products[i],
                       width, with_commas(total(row.factors).count), with_commas(row.most.count));
  }
  return out;
}

// Parts down, slots along.
std::string grid(const std::vector<SlotState>& states, const std::vector<Slot>& list,
                 bool one_chunk, Letters& letters) {
  std::vector<std::vector<std::string>> columns(1);
  columns[0].emplace_back("after");
  for (size_t p = 0; p < states[0].parts.size(); ++p)
    columns[0].push_back(fmt::format("part {}", p));
  const bool shared = std::any_of(states.begin(), states.end(),
                                  [](const SlotState& s) { return !s.of_no_part.empty(); });
  if (shared) columns[0].emplace_back("no part");
  columns[0].emplace_back("bytes");
  columns[0].emplace_back("most");
  for (size_t i = 0; i < states.size(); ++i) {
    const std::string slot = to_string(list[i]);
    std::vector<std::string> column = {one_chunk ? slot.substr(0, slot.find('.')) : slot};
    Bytes bytes = total(states[i].of_no_part);
    for (const Factors& factors : states[i].parts) {
      column.push_back(letters.product(factors));
      bytes += total(factors);
    }
    if (shared) column.push_back(letters.product(states[i].of_no_part));
    column.push_back(with_commas(bytes.count));
    column.push_back(with_commas(states[i].most.count));
    columns.push_back(std::move(column));
  }
  std::string out;
  for (size_t row = 0; row < columns[0].size(); ++row) {
    std::string line;
    for (const std::vector<std::string>& column : columns) {
      size_t width = 0;
      for (const std::string& cell : column) width = std::max(width, cell.size());
      line += fmt::format("{:<{}}  ", column[row], width);
    }
    while (line.back() == ' ') line.pop_back();
    out += line + "\n";
  }
  return out;
}

}  // namespace

std::vector<MemoryState> memory_states(const Scheme& said, const Scheme& step, const Plan& plan) {
  const Paths paths(said, step);
  const int length = paths.length;
  const LiveObjects live(paths, step, plan);
  std::vector<MemoryState> rows;
  for (const auto& [work, place] : live.ends_of(0)) {
    const auto& [pass, epoch, block] = work;
    // What is behind the chain has one row, where the chain's backward pass begins; and the
    // backward pass before the chain makes gradients of parameters alone.
    if (pass == Pass::kForward ? block == length : block < 0) continue;
    rows.push_back({.pass = pass, .block = block + 1, .place = place});
  }
  std::stable_sort(rows.begin(), rows.end(),
                   [](const MemoryState& a, const MemoryState& b) { return a.place < b.place; });
  int from = plan.body_begin;
  for (MemoryState& row : rows) {
    row.factors = live.after(row.place, 0);
    row.most = live.most(std::min(from, row.place), row.place);
    from = row.place + 1;
  }
  return rows;
}

std::vector<SlotState> slot_states(const Scheme& said, const Scheme& whole, const Scheme& step,
                                   const Plan& plan, const std::vector<Slot>& list) {
  const LiveObjects live(Paths(said, whole), step, plan, list);
  std::vector<SlotState> states(list.size());
  int parts = 0;
  for (const Slot& slot : list) parts = std::max(parts, slot.part + 1);
  for (int at = plan.body_begin; at < plan.body_end; ++at) {
    const int slot = step.morphisms[plan.calls[at].morphism].slot;
    if (slot >= 1 && slot <= static_cast<int>(list.size())) states[slot - 1].place = at;
  }
  int from = plan.body_begin;
  for (SlotState& state : states) {
    state.most = live.most(std::min(from, state.place), state.place);
    from = state.place + 1;
    for (int part = 0; part < parts; ++part) state.parts.push_back(live.after(state.place, part));
    state.of_no_part = live.after(state.place, -1);
  }
  return states;
}

std::string memory_states_table(const Scheme& said, const Scheme& step,
                                const PlanOptions& options) {
  const int length = find_chain(said).length();
  if (length == 0) fail("--memory-states: the model has no chain of repeated blocks");
  Letters letters;
  std::string out;
  if (step.schedule.empty()) {
    const Plan plan = make_plan(step, options);
    out = fmt::format("what is alive after each of {} blocks\n", length);
    out += rows_table(memory_states(said, step, plan), length, letters);
  } else {
    const Schedule schedule = schedule_of(step);
    const std::vector<Scheme> steps = steps_of_stages(step);
    for (int rank = 0; rank < schedule.ranks; ++rank) {
      const Scheme& own = steps[rank];
      const Plan plan = make_plan(own, options);
      const std::vector<Slot>& list = schedule.lists[rank];
      out += fmt::format("{}rank {}: what is alive after each of its slots\n",
                         rank == 0 ? "" : "\n", rank);
      out += grid(slot_states(said, step, own, plan, list), list, schedule.chunks == schedule.ranks,
                  letters);
    }
  }
  return out + "\n" + letters.legend() + std::string(kLeftOut);
}

nlohmann::json memory_states_json(const Scheme& said, const Scheme& step,
                                  const PlanOptions& options) {
  const int length = find_chain(said).length();
  if (length == 0) fail("--memory-states: the model has no chain of repeated blocks");
  Letters letters;
  nlohmann::json out = {{"blocks", length}};
  if (step.schedule.empty()) {
    nlohmann::json& rows = out["rows"] = nlohmann::json::array();
    for (const MemoryState& row : memory_states(said, step, make_plan(step, options))) {
      nlohmann::json one = letters.alive_json(row.factors);
      one["pass"] = name(row.pass);
      one["block"] = row.block;
      one["place"] = row.place;
      one["most_bytes"] = row.most.count;
      rows.push_back(std::move(one));
    }
  } else {
    const Schedule schedule = schedule_of(step);
    const std::vector<Scheme> steps = steps_of_stages(step);
    nlohmann::json& ranks = out["ranks"] = nlohmann::json::array();
    for (int rank = 0; rank < schedule.ranks; ++rank) {
      const std::vector<Slot>& list = schedule.lists[rank];
      const std::vector<SlotState> states =
          slot_states(said, step, steps[rank], make_plan(steps[rank], options), list);
      nlohmann::json slots = nlohmann::json::array();
      for (size_t i = 0; i < states.size(); ++i) {
        nlohmann::json parts = nlohmann::json::array();
        for (const Factors& factors : states[i].parts) parts.push_back(letters.alive_json(factors));
        slots.push_back({{"slot", to_string(list[i])},
                         {"place", states[i].place},
                         {"parts", std::move(parts)},
                         {"of_no_part", letters.alive_json(states[i].of_no_part)},
                         {"most_bytes", states[i].most.count}});
      }
      ranks.push_back({{"rank", rank}, {"slots", std::move(slots)}});
    }
  }
  out["letters"] = letters.letters_json();
  return out;
}

}  // namespace adjoint
