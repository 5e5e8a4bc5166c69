#include "plan/blocks.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <unordered_map>

#include "base/error.h"
#include "base/text.h"
#include "ops/op_def.h"
#include "plan/lanes.h"

namespace adjoint {

namespace {

constexpr size_t kMostGroups = 12;  // the largest groups, of which every set is considered
// Options that are planned. With a host tier there are more options, but also more stacks to plan.
constexpr size_t kMostOptions = 24, kMostOptionsWithTiers = 16;
// Blocks from which on a chain is long: one step has room for all options, each in another block.
constexpr int kLongChain = 18;

// Per object: does the backward read it, or a view of it?
std::vector<bool> seen_by_backward(const Scheme& scheme) {
  std::vector<bool> seen(scheme.objects.size(), false);
  for (size_t i = scheme.morphisms.size(); i-- > 0;) {
    const Morphism& m = scheme.morphisms[i];
    const bool back = m.phase != Phase::kForward;
    const bool view = op_named(m.op).view && seen[m.outputs[0]];
    if (back) {
      for (const Value in : m.inputs) seen[in] = true;
    } else if (view) {
      seen[m.inputs[0]] = true;
    }
  }
  return seen;
}

// Bytes of an object as it will be stored.
double stored_bytes(const Object& object) {
  Type type = object.type;
  if (const auto dtype = dtype_named(object.attributes.precision)) type.dtype = *dtype;
  return static_cast<double>(type.bytes().count);
}

// A path around one of its indices: "block[" and "].up". Paths of neighbours differ by one there.
struct Numbered {
  std::string before, after;
  int64_t index = 0;
  bool operator==(const Numbered& o) const { return before == o.before && after == o.after; }
};
std::vector<Numbered> numbered(const std::string& path) {
  std::vector<Numbered> all;
  for (size_t at = path.find('['); at != std::string::npos; at = path.find('[', at + 1)) {
    const size_t end = path.find(']', at);
    if (end == std::string::npos) break;
    all.push_back({path.substr(0, at + 1), path.substr(end),
                   std::atoll(path.substr(at + 1, end - at - 1).c_str())});
  }
  return all;
}

// Live bytes of the device at every place of the order.
std::vector<int64_t> live_bytes(const Plan& plan) {
  const auto end = static_cast<int>(plan.calls.size());
  std::vector<int64_t> live(end + 2, 0);
  for (const Storage& s : plan.storages) {
    if (s.tier != Tier::kDevice) continue;
    live[s.first] += s.size.count;
    live[std::min(s.last, end) + 1] -= s.size.count;
  }
  for (int at = 1; at <= end; ++at) live[at] += live[at - 1];
  live.resize(end + 1);
  return live;
}

// Which stretch of the order belongs to which block, forward and backward.
struct Windows {
  std::vector<int> forward, backward;  // first place per block; one more: where the chain ends
};

}  // namespace

Blocks::Blocks(Scheme said, const Costs& costs)
    : said_(std::move(said)),
      priced_(said_),
      costs_(costs),
      chain_(find_chain(said_)),
      made_by_(producers(said_)),
      from_data_(depends_on_data(said_)) {
  for (Object& o : priced_.objects) {
    if (const auto dtype = dtype_named(o.attributes.precision)) o.type.dtype = *dtype;
  }
  const bool decided = std::any_of(said_.objects.begin(), said_.objects.end(), [](const Object& o) {
    return o.attributes.residence != Residence::kUnsaid;
  });
  if (chain_.length() == 0 || decided) return;
  find_groups();
  const auto same = [&](const std::vector<Group>& block) {
    return std::equal(block.begin(), block.end(), groups_[0].begin(), groups_[0].end(),
                      [](const Group& a, const Group& b) { return a.bytes == b.bytes; });
  };
  can_choose_ = !groups_[0].empty() && std::all_of(groups_.begin(), groups_.end(), same);
  if (can_choose_) find_options();
}

void Blocks::find_groups() {
  const std::vector<bool> seen = seen_by_backward(said_);
  std::vector<bool> stays = returned_or_carried(said_);
  for (const Value state : chain_.states) stays[state] = true;
  groups_.assign(chain_.length(), {});
  for (size_t i = 0; i < said_.morphisms.size(); ++i) {
    const Morphism& m = said_.morphisms[i];
    const int block = chain_.block_of_morphism[i];
    const OpDef& def = op_named(m.op);
    if (m.phase != Phase::kForward || block < 0 || def.view || !from_data_[m.outputs[0]]) continue;
    if (def.effect != Effect::kPure && def.effect != Effect::kRandom) continue;
    Group group{.maker = static_cast<int>(i)};
    for (const Value out : m.outputs) {
      if (!seen[out] || stays[out]) continue;
      group.objects.push_back(out);
      group.bytes += stored_bytes(said_[out]);
    }
    if (!group.objects.empty()) groups_[block].push_back(std::move(group));
  }
}

// Seconds to recompute, in one block, everything that is neither kept nor offloaded.
double Blocks::closure(const std::vector<Stay>& stays, bool state) const {
  const size_t b = groups_.size() / 2;
  const std::vector<Group>& groups = groups_[b];
  std::vector<bool> there(said_.objects.size(), false);
  std::vector<int> wanted;
  for (size_t g = 0; g < groups.size(); ++g) {
    if (stays[g] == Stay::kAgain) wanted.push_back(groups[g].maker);
    if (stays[g] == Stay::kAgain) continue;
    for (const Value v : groups[g].objects) there[v] = true;
  }
  if (state) wanted.push_back(made_by_[chain_.states[b + 1]]);
  double seconds = 0;
  std::vector<bool> counted(said_.morphisms.size(), false);
  while (!wanted.empty()) {
    const int i = wanted.back();
    wanted.pop_back();
    if (i < 0 || counted[i] || chain_.block_of_morphism[i] != static_cast<int>(b)) continue;
    counted[i] = true;
    const Morphism& m = said_.morphisms[i];
    if (!from_data_[m.outputs[0]]) continue;
    if (!op_named(m.op).view) seconds += costs_.seconds(priced_, m);
    for (const Value in : m.inputs) {
      if (!there[in]) wanted.push_back(made_by_[in]);
    }
  }
  return seconds;
}

Blocks::Option Blocks::option_of(const std::vector<Stay>& stays) const {
  Option option{.stays = stays, .cost = closure(stays, false), .through = closure(stays, true)};
  for (size_t g = 0; g < stays.size(); ++g) {
    double& sum = stays[g] == Stay::kKept    ? option.kept
                  : stays[g] == Stay::kAgain ? option.held
                                             : option.away;
    sum += groups_[0][g].bytes;
  }
  return option;
}

Blocks::Worth Blocks::worth_of(const std::vector<bool>& kept) const {
  std::vector<Stay> stays;
  for (const bool k : kept) stays.push_back(k ? Stay::kKept : Stay::kAgain);
  const Option option = option_of(stays);
  return {option.kept, option.cost};
}

// Every set of groups that no other set beats in bytes and seconds. With a host tier a group may
// also be offloaded, and the bytes on the link are a third number to compare.
void Blocks::find_options() {
  const size_t n = groups_[0].size();
  std::vector<size_t> by_size(n);
  for (size_t g = 0; g < n; ++g) by_size[g] = g;
  std::stable_sort(by_size.begin(), by_size.end(),
                   [&](size_t a, size_t b) { return groups_[0][a].bytes > groups_[0][b].bytes; });
  const bool away = !costs_.sheet.one_memory();
  const size_t free = std::min(n, away ? kMostGroups - 4 : kMostGroups);
  int64_t count = 1;
  for (size_t k = 0; k < free; ++k) count *= away ? 3 : 2;
  std::vector<Option> all;
  for (int64_t code = 0; code < count; ++code) {
    std::vector<Stay> stays(n, Stay::kKept);
    int64_t rest = code;
    for (size_t k = 0; k < free; ++k, rest /= away ? 3 : 2) {
      stays[by_size[k]] = static_cast<Stay>(rest % (away ? 3 : 2));
    }
    // The many small groups are kept, except where everything is recomputed.
    if (code == (away ? count / 2 : count - 1)) stays.assign(n, Stay::kAgain);
    all.push_back(option_of(stays));
  }
  std::stable_sort(all.begin(), all.end(), [](const Option& a, const Option& b) {
    if (a.kept != b.kept) return a.kept < b.kept;
    return a.cost != b.cost ? a.cost < b.cost : a.away < b.away;
  });
  for (const Option& o : all) {
    const auto beats = [&](const Option& better) {
      return better.kept <= o.kept && better.cost <= o.cost && better.away <= o.away;
    };
    if (std::none_of(options_.begin(), options_.end(), beats)) options_.push_back(o);
  }
  const size_t most = away ? kMostOptionsWithTiers : kMostOptions;
  if (options_.size() > most) choose_options(most);
}

// For more options than can be planned. A chain mixes options, so those that no mixture of two
// others beats are taken first; the rest of the places go to others, evenly over their bytes.
void Blocks::choose_options(size_t most) {
  const auto seconds = [&](const Option& o) {
    return o.cost + (o.away > 0 ? 2 * o.away / costs_.sheet.link : 0);
  };
  // Is b on or above the line from a to c, which keep less and more?
  const auto beaten = [&](const Option& a, const Option& b, const Option& c) {
    return (seconds(b) - seconds(a)) * (c.kept - a.kept) >=
           (seconds(c) - seconds(a)) * (b.kept - a.kept);
  };
  std::vector<size_t> hull;
  for (size_t o = 0; o < options_.size(); ++o) {
    if (!hull.empty() && options_[hull.back()].kept == options_[o].kept) {
      if (seconds(options_[hull.back()]) <= seconds(options_[o])) continue;
      hull.pop_back();
    }
    while (hull.size() > 1 &&
           beaten(options_[hull[hull.size() - 2]], options_[hull.back()], options_[o])) {
      hull.pop_back();
    }
    hull.push_back(o);
  }
  std::set<size_t> chosen;
  const auto add_evenly = [&](const std::vector<size_t>& from) {
    const size_t room = std::min(most - chosen.size(), from.size());
    for (size_t k = 0; k < room; ++k) {
      chosen.insert(from[room == 1 ? 0 : k * (from.size() - 1) / (room - 1)]);
    }
  };
  add_evenly(hull);
  std::vector<size_t> rest;
  for (size_t o = 0; o < options_.size(); ++o) {
    if (!chosen.count(o)) rest.push_back(o);
  }
  if (chosen.size() < most) add_evenly(rest);
  std::vector<Option> some;
  for (const size_t o : chosen) some.push_back(options_[o]);
  options_ = std::move(some);
}

std::vector<std::string> Blocks::patterns(const std::vector<std::vector<Value>>& per_block) const {
  std::vector<std::string> result;
  std::vector<std::vector<std::string>> names;
  for (const std::vector<Value>& values : per_block) {
    names.emplace_back();
    for (const Value v : values) names.back().push_back(to_string(said_[v].source));
  }
  for (size_t b = 0; b < names.size(); ++b) {
    for (const std::string& name : names[b]) {
      if (name.empty()) continue;
      std::string pattern = name;
      for (const Numbered& n : numbered(name)) {
        size_t last = b;
        while (last + 1 < names.size()) {
          const std::string next =
              n.before + std::to_string(n.index + static_cast<int64_t>(last + 1 - b)) + n.after;
          const auto found = std::find(names[last + 1].begin(), names[last + 1].end(), next);
          if (found == names[last + 1].end()) break;
          if (next != name) found->clear();
          ++last;
        }
        if (last == b) continue;
        pattern = n.before + std::to_string(n.index) + ".." +
                  std::to_string(n.index + static_cast<int64_t>(last - b)) + n.after;
        break;
      }
      result.push_back("\"" + pattern + "\"");
    }
  }
  return result;
}

std::string Blocks::print(const ChainChoice& choice) const {
  const size_t blocks = groups_.size();
  std::vector<std::vector<Value>> kept(blocks), away(blocks);
  for (size_t b = 0; b < blocks; ++b) {
    const Option& option = options_[choice.option[b]];
    for (size_t g = 0; g < option.stays.size(); ++g) {
      if (option.stays[g] == Stay::kAgain) continue;
      for (const Value v : groups_[b][g].objects) {
        (option.stays[g] == Stay::kKept ? kept : away)[b].push_back(v);
      }
    }
    if (b + 1 == blocks) continue;
    if (choice.state[b] == StateChoice::kKept) kept[b].push_back(chain_.states[b + 1]);
    if (choice.state[b] == StateChoice::kAway) away[b].push_back(chain_.states[b + 1]);
  }
  std::string out = "reside(kept=[" + join(patterns(kept), ", ") + "]";
  const std::vector<std::string> gone = patterns(away);
  if (!gone.empty()) out += ", host=[" + join(gone, ", ") + "]";
  return out + ")";
}

namespace {

// Reads numbers off a built step. The block of a call follows from its path in the step before
// realization.
class Reading {
 public:
  Reading(const Scheme& said, const Chain& chain, const TimedStep& step)
      : step_(step), live_(live_bytes(step.plan)), blocks_(chain.length()) {
    for (size_t i = 0; i < said.morphisms.size(); ++i) {
      const int block = chain.block_of_morphism[i];
      if (block >= 0) by_path_.emplace(said.morphisms[i].source.path, block);
    }
    find_windows();
  }

  // Bytes that block b's forward made and that are alive when the chain's backward begins.
  int64_t kept(int b) const {
    int64_t bytes = 0;
    for (const Storage& s : step_.plan.storages) {
      if (s.tier != Tier::kDevice || s.last < windows_.backward[blocks_]) continue;
      if (s.first >= windows_.forward[b] && s.first < windows_.forward[b + 1]) {
        bytes += s.size.count;
      }
    }
    return bytes;
  }

  int64_t forward_peak(int b) const { return most(windows_.forward[b], windows_.forward[b + 1]); }
  int64_t backward_peak(int b) const {
    return most(windows_.backward[b + 1], windows_.backward[b]);
  }
  // Of work in the windows of block b, once through the body.
  double seconds(int b) const {
    double sum = 0;
    const auto add = [&](int begin, int end) {
      for (int at = begin; at < end; ++at) {
        const Morphism& m = step_.scheme.morphisms[step_.plan.calls[at].morphism];
        if (lane_of(m) == Lane::kWork) sum += step_.time.seconds[at];
      }
    };
    add(windows_.forward[b], windows_.forward[b + 1]);
    add(windows_.backward[b + 1], windows_.backward[b]);
    return sum;
  }
  int64_t peak_between() const {
    return most(windows_.forward[blocks_], windows_.backward[blocks_]);
  }
  int64_t peak_around() const {
    return std::max(most(0, windows_.forward[0]),
                    most(windows_.backward[0], static_cast<int>(live_.size())));
  }

 private:
  int block_of(int at) const {
    const Morphism& m = step_.scheme.morphisms[step_.plan.calls[at].morphism];
    const auto found = by_path_.find(m.source.path);
    return found == by_path_.end() ? -1 : found->second;
  }

  // forward[b]: where block b's forward begins; backward[b + 1]: where its backward does.
  void find_windows() {
    const auto end = static_cast<int>(step_.plan.calls.size());
    windows_.forward.assign(blocks_ + 1, -1);
    windows_.backward.assign(blocks_ + 1, -1);
    int last_forward = -1, last_backward = -1;
    for (int at = 0; at < end; ++at) {
      const int b = block_of(at);
      if (b < 0) continue;
      const Phase phase = step_.scheme.morphisms[step_.plan.calls[at].morphism].phase;
      if (phase == Phase::kForward) {
        if (windows_.forward[b] < 0) windows_.forward[b] = at;
        last_forward = at;
      } else if (phase == Phase::kBackward) {
        if (windows_.backward[b + 1] < 0) windows_.backward[b + 1] = at;
        last_backward = at;
      }
    }
    windows_.forward[blocks_] = last_forward + 1;
    windows_.backward[0] = last_backward + 1;
    // A block that was not seen begins where the next one does.
    for (int b = blocks_; b-- > 0;) {
      int& here = windows_.forward[b];
      if (here < 0 || here > windows_.forward[b + 1]) here = windows_.forward[b + 1];
    }
    for (int b = 1; b <= blocks_; ++b) {
      int& here = windows_.backward[b];
      if (here < 0 || here > windows_.backward[b - 1]) here = windows_.backward[b - 1];
    }
  }

  int64_t most(int begin, int end) const {
    int64_t most = 0;
    for (int at = begin; at < std::min(end, static_cast<int>(live_.size())); ++at) {
      most = std::max(most, live_[at]);
    }
    return most;
  }

  const TimedStep& step_;
  std::vector<int64_t> live_;
  int blocks_;
  std::unordered_map<std::string, int> by_path_;
  Windows windows_;
};

}  // namespace

ChainChoice Blocks::uniform(int option) const {
  return {.option = std::vector<int>(chain_.length(), option),
          .state = std::vector<StateChoice>(chain_.length(), StateChoice::kKept)};
}

Bytes Blocks::around(const TimedStep& step) const {
  return {Reading(said_, chain_, step).peak_around()};
}

bool Blocks::is_long() const { return chain_.length() >= kLongChain; }

// Of a long chain: blocks in which options are read off a sample. The first and the last block are
// like no other, for what is beside them is no block.
int Blocks::num_sampled() const { return is_long() ? chain_.length() - 2 : 1; }

std::vector<ChainChoice> Blocks::samples() const {
  std::vector<ChainChoice> all;
  for (int o = 0; o < num_options(); o += num_sampled()) {
    all.push_back(uniform(o));
    if (!is_long()) continue;
    const int some = std::min(num_sampled(), num_options() - o);
    for (int k = 0; k < num_sampled(); ++k) all.back().option[k + 1] = o + k % some;
  }
  return all;
}

ChainProblem Blocks::measure(const std::function<const TimedStep&(const std::string&)>& build,
                             const TimedStep& plain, double copies) const {
  CHECK(can_choose_, "residences that can be chosen");
  ChainProblem problem{.blocks = chain_.length()};
  const double parts = plain.scheme.parts;
  problem.state = static_cast<int64_t>(stored_bytes(said_[chain_.states[1]]) / parts);
  const double link = costs_.sheet.one_memory() ? 0 : costs_.sheet.link;
  if (link > 0) {
    problem.state_cost = copies * parts * 2 * static_cast<double>(problem.state) / link;
  }
  const int blocks = problem.blocks;
  const auto kept_in = [&](const Reading& read, int b) {
    return std::max<int64_t>(read.kept(b) - (b + 1 == blocks ? 0 : problem.state), 0);
  };
  // Before each block, what those before it keep, and their states; behind the last, what all do.
  const auto below_each = [&](const auto& kept) {
    std::vector<int64_t> below = {0};
    for (int b = 0; b < blocks; ++b) {
      below.push_back(below.back() + kept(b) + (b + 1 == blocks ? 0 : problem.state));
    }
    return below;
  };
  const Reading kept_all(said_, chain_, plain);
  const auto below_all = below_each([&](int b) { return kept_in(kept_all, b); });
  const auto forward_of = [](const Reading& read, const std::vector<int64_t>& below, int b) {
    return read.forward_peak(b) - below[b];
  };
  const auto backward_of = [](const Reading& read, const std::vector<int64_t>& below, int b) {
    return read.backward_peak(b) - below[b];
  };
  for (const ChainChoice& sample : samples()) {
    const TimedStep& step = build(print(sample));
    const Reading read(said_, chain_, step);
    const auto below = below_each([&](int b) { return kept_in(read, is_long() ? b : blocks / 2); });
    for (int k = 0; k < num_sampled(); ++k) {
      const auto o = static_cast<size_t>(problem.options.size());
      const int here = is_long() ? k + 1 : blocks / 2;
      if (sample.option[here] != static_cast<int>(o)) break;
      const Option& said = options_[o];
      BlockOption option{.kept = kept_in(read, here),
                         .held = static_cast<int64_t>(said.held / parts)};
      double moved = 0;
      if (is_long()) {
        // Other blocks differ from this one as they do where everything is kept.
        const int64_t forward =
            forward_of(read, below, here) - forward_of(kept_all, below_all, here);
        const int64_t backward =
            backward_of(read, below, here) - backward_of(kept_all, below_all, here);
        for (int b = 0; b < blocks; ++b) {
          option.forward.push_back(forward_of(kept_all, below_all, b) + forward);
          option.backward.push_back(backward_of(kept_all, below_all, b) + backward);
        }
        option.cost = parts * (read.seconds(here) - kept_all.seconds(here));
        if (said.away > 0) moved = copies * 2 * said.away / link;
      } else {
        for (int b = 0; b < blocks; ++b) {
          option.forward.push_back(forward_of(read, below, b));
          option.backward.push_back(backward_of(read, below, b));
        }
        option.cost = (step.time.work - plain.time.work) / blocks;
        moved = copies * (step.time.copies - plain.time.copies) / blocks;
      }
      // Recomputing the state as well was only estimated, not planned; it is scaled by the ratio of
      // the planned to the estimated cost.
      const bool seen = said.cost > 0 && option.cost > 0;
      option.through =
          option.cost + (said.through - said.cost) * (seen ? option.cost / said.cost : 1);
      option.cost += moved;
      option.through += moved;
      problem.options.push_back(std::move(option));
    }
    problem.outside_all = std::max(problem.outside_all, read.peak_between() - below.back());
    problem.outside_none = std::max(problem.outside_none, read.peak_around());
  }
  CHECK(problem.options.size() == options_.size(), "every option is in a sample");
  return problem;
}

}  // namespace adjoint
