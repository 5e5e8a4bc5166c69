#include "report/timeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "base/error.h"
#include "cost/collective.h"
#include "ops/op_def.h"
#include "plan/lanes.h"

namespace adjoint {

int64_t total(const CategoryBytes& bytes) {
  return std::accumulate(bytes.begin(), bytes.end(), int64_t{0});
}

std::string_view name(Kind kind) {
  constexpr std::string_view names[] = {"forward", "backward", "recomputation", "update"};
  return names[static_cast<size_t>(kind)];
}

Kind kind_of(const Morphism& morphism) {
  if (morphism.epoch > 0) return Kind::kRecomputation;
  switch (morphism.phase) {
    case Phase::kForward:
      return Kind::kForward;
    case Phase::kBackward:
      return Kind::kBackward;
    case Phase::kUpdate:
      return Kind::kUpdate;
  }
  return Kind::kForward;
}

std::string block_of(const Source& source) {
  const size_t open = source.path.find('[');
  if (open == std::string::npos) return "";
  const size_t close = source.path.find(']', open);
  return close == std::string::npos ? "" : source.path.substr(0, close + 1);
}

std::string moment_in_words(const Scheme& scheme, const Plan& plan, int place) {
  const int calls = static_cast<int>(plan.calls.size());
  if (calls == 0) return "there are no calls";
  if (place >= calls) return fmt::format("after the last of {} calls", calls);
  const Morphism& m = scheme.morphisms[plan.calls[place].morphism];
  std::string words = fmt::format("at {} ({}), {}", to_string(m.source), m.op, name(kind_of(m)));
  if (const std::string block = block_of(m.source); !block.empty()) words += " of " + block;
  const bool in_body = place >= plan.body_begin && place < plan.body_end;
  if (scheme.parts > 1 && in_body) words += fmt::format(" in each of {} parts", scheme.parts);
  return words + fmt::format(", call {} of {}", place + 1, calls);
}

std::vector<Owner> owners(const Plan& plan, Tier tier) {
  std::vector<Owner> found;
  for (size_t i = 0; i < plan.storages.size(); ++i) {
    const Storage& s = plan.storages[i];
    if (s.tier != tier) continue;
    for (const Tenant& t : s.tenants) {
      if (t.to < t.from) continue;  // state that the first call overwrites
      found.push_back({.storage = static_cast<int>(i),
                       .object = t.object,
                       .category = t.category,
                       .from = t.from,
                       .to = t.to,
                       .size = t.size});
    }
  }
  return found;
}

bool copies_overlap(const Plan& plan) {
  return plan.target == Target::kCuda && plan.host.size.count > 0;
}

int Timeline::last_before_fold() const {
  if (!body_once) return -1;
  for (const Stretch& s : sections) {
    if (s.name.starts_with("part ")) return s.last;
  }
  return -1;
}

int Timeline::peak_moment() const {
  const auto found = std::find_if(moments.begin(), moments.end(),
                                  [&](const Moment& m) { return m.place == peak_at; });
  if (found != moments.end()) return static_cast<int>(found - moments.begin());
  return static_cast<int>(moments.size()) - 1;
}

namespace {

std::vector<CategoryBytes> live_bytes(const Plan& plan, Tier tier) {
  const int end = static_cast<int>(plan.calls.size());
  std::vector<CategoryBytes> live(end + 2, CategoryBytes{});
  for (const Owner& o : owners(plan, tier)) {
    const auto c = static_cast<size_t>(o.category);
    live[o.from][c] += o.size.count;
    live[std::min(o.to, end) + 1][c] -= o.size.count;
  }
  for (int at = 1; at <= end; ++at) {
    for (int c = 0; c < kNumCategories; ++c) live[at][c] += live[at - 1][c];
  }
  live.pop_back();
  return live;
}

// When the calls of [begin, end) begin and end, in seconds after all lanes begin together, and when
// all are done.
struct LaidOut {
  std::vector<Moment> moments = {};
  double length = 0;
};

LaidOut one_after_the_other(const std::vector<double>& seconds, int begin, int end) {
  LaidOut out;
  for (int at = begin; at < end; ++at) {
    const double width = seconds.empty() ? 1 : seconds[at];
    const double from = out.length, to = from + width;
    out.moments.push_back({.place = at, .begins = from, .ends = to, .from = from, .to = to});
    out.length = to;
  }
  return out;
}

LaidOut on_lanes(const std::vector<LanedCall>& lanes, const std::vector<double>& seconds, int begin,
                 int end) {
  const std::vector<double> ends = end_times(lanes, seconds, begin, end);
  LaidOut out;
  double work = 0;  // until when the arithmetic is busy
  for (int at = begin; at < end; ++at) {
    const double to = ends[at], from = to - seconds[at];
    const bool works = lanes[at].lane == Lane::kWork;
    out.moments.push_back(
        {.place = at, .begins = works ? from : work, .beside = !works, .from = from, .to = to});
    if (works) work = to;
    out.length = std::max(out.length, to);
  }
  for (size_t i = 0; i < out.moments.size(); ++i) {
    out.moments[i].ends = i + 1 < out.moments.size() ? out.moments[i + 1].begins : out.length;
  }
  return out;
}

// All moments, with the body as often as `t` shows it; sets the time that is left out.
std::vector<Moment> moments_of(const Scheme& scheme, const Plan& plan,
                               const TimelineOptions& options, Timeline& t) {
  const int calls = static_cast<int>(plan.calls.size());
  const std::vector<double>& seconds = options.seconds;
  CHECK(seconds.empty() || static_cast<int>(seconds.size()) == calls,
        "a step's seconds are those of its calls");
  const bool overlap = !seconds.empty() && (options.copies_overlap || options.collectives_overlap);
  std::vector<LanedCall> lanes = overlap ? make_lanes(scheme, plan) : std::vector<LanedCall>();
  for (LanedCall& call : lanes) {
    const bool beside =
        call.lane == Lane::kRanks ? options.collectives_overlap : options.copies_overlap;
    if (!beside) call.lane = Lane::kWork;
  }
  std::vector<Moment> moments;
  double now = 0;
  const auto add = [&](const LaidOut& section, int part) {
    for (Moment m : section.moments) {
      m.part = part;
      m.begins += now, m.ends += now, m.from += now, m.to += now;
      moments.push_back(m);
    }
    now += section.length;
  };
  const auto laid_out = [&](int begin, int end) {
    return overlap ? on_lanes(lanes, seconds, begin, end)
                   : one_after_the_other(seconds, begin, end);
  };
  // Lanes meet between sections, as in predict_time; a step of one part is one section, except on
  // ranks.
  const bool on_ranks = std::any_of(
      lanes.begin(), lanes.end(), [](const LanedCall& call) { return call.lane == Lane::kRanks; });
  if (scheme.parts == 1 && !on_ranks) {
    add(laid_out(0, calls), 0);
    return moments;
  }
  const int shown = t.body_once ? 1 : scheme.parts;
  add(laid_out(0, plan.body_begin), 0);
  const LaidOut body = laid_out(plan.body_begin, plan.body_end);
  for (int part = 0; part < shown; ++part) add(body, part);
  t.left_out = body.length * (scheme.parts - shown);
  add(laid_out(plan.body_end, calls), 0);
  return moments;
}

// Moments on the clock of a step in which this rank waits for others.
void set_clock(const TimelineOptions& options, std::vector<Moment>& moments) {
  const StepClock& clock = options.clock_of_step;
  double now = 0;
  for (Moment& m : moments) {
    now = std::max(now, clock.begins[m.place]);
    m.begins = m.from = now;
    m.to = m.from + options.seconds[m.place];
  }
  for (size_t i = 0; i < moments.size(); ++i) {
    moments[i].ends = i + 1 < moments.size() ? moments[i + 1].begins : std::max(now, clock.length);
  }
}

// Sections, in moments. The timeline shows `shown` of the body's `parts`.
std::vector<Stretch> sections_of(const Plan& plan, int parts, int shown) {
  const int calls = static_cast<int>(plan.calls.size()), body = plan.body_end - plan.body_begin;
  std::vector<Stretch> sections;
  const auto add = [&](int begin, int size, std::string name) {
    if (size > 0) sections.push_back({begin, begin + size - 1, std::move(name)});
  };
  add(0, plan.body_begin, "prologue");
  for (int part = 0; part < shown; ++part) {
    add(plan.body_begin + part * body, body,
        parts == 1 ? "step" : fmt::format("part {} of {}", part + 1, parts));
  }
  add(plan.body_begin + shown * body, calls - plan.body_end, "epilogue");
  return sections;
}

// Divides moments [begin, end) into phases. Calls out of order, as a chunked readout or an update
// without clipping has them, do not split a phase.
void add_phases(const std::vector<Kind>& kind, int begin, int end, std::vector<Stretch>& phases) {
  const auto is_backward = [](Kind k) { return k == Kind::kBackward || k == Kind::kRecomputation; };
  int first = end, last = begin - 1;
  int update = end;
  for (int i = begin; i < end; ++i) {
    if (is_backward(kind[i])) first = std::min(first, i), last = i;
  }
  if (first == end) {  // no backward: the update begins after the last forward call
    while (update > begin && kind[update - 1] == Kind::kUpdate) --update;
    first = update, last = update - 1;
  }
  const auto add = [&](int from, int to, std::string_view name) {
    if (from <= to) phases.push_back({from, to, std::string(name)});
  };
  add(begin, first - 1, "forward");
  add(first, last, "backward");
  add(last + 1, end - 1, "update");
}

// A block that is computed again and then differentiated is entered twice: for each of these the
// first call counts, since single calls of others may stand anywhere.
void add_blocks(const Scheme& scheme, const Plan& plan, const std::vector<Moment>& moments,
                const Stretch& phase, std::vector<Stretch>& blocks) {
  if (phase.name == "update") return;  // the update passes over all blocks in short calls
  const int place = moments[phase.first].place;
  if (place < plan.body_begin || place >= plan.body_end)
    return;  // and so does what is around parts
  std::vector<Stretch> found;
  std::set<std::pair<std::string, bool>> seen;
  for (int i = phase.first; i <= phase.last; ++i) {
    const Morphism& m = scheme.morphisms[plan.calls[moments[i].place].morphism];
    if (m.phase == Phase::kUpdate || op_named(m.op).to_one_rank) continue;
    const std::string block = block_of(m.source);
    if (block.empty()) continue;  // calls after the last block belong to no block
    const bool entered = seen.emplace(block, m.epoch > 0).second;
    if (!found.empty() && found.back().name == block) {
      found.back().last = i;
    } else if (entered) {
      if (!found.empty()) found.back().last = i - 1;
      found.push_back({i, i, block});
    }
  }
  blocks.insert(blocks.end(), found.begin(), found.end());
}

// The calls of a pipeline's slots stand together: slots, and what is between them, in moments.
std::vector<Stretch> slots_of(const Scheme& scheme, const Plan& plan,
                              const std::vector<Moment>& moments, const Stretch& section) {
  std::vector<Stretch> slots = {{section.first, section.last}};
  int slot = 0;
  for (int i = section.first; i <= section.last; ++i) {
    const int here = scheme.morphisms[plan.calls[moments[i].place].morphism].slot;
    if (here == 0 || here == slot) continue;
    if (slot > 0) {
      slots.back().last = i - 1;
      slots.push_back({i, section.last});
    }
    slot = here;
  }
  return slots;
}

// A message belongs to the calls among which it stands, and not to the pass that it serves: what a
// backward slot wants is often asked for in a forward one.
void settle_messages(const Scheme& scheme, const Plan& plan, const std::vector<Moment>& moments,
                     const Stretch& slot, std::vector<Kind>& kind) {
  const auto is_message = [&](int i) {
    return op_named(scheme.morphisms[plan.calls[moments[i].place].morphism].op).to_one_rank;
  };
  int last = slot.last;  // that is none
  while (last > slot.first && is_message(last)) --last;
  for (int i = slot.last; i >= slot.first; --i) {
    if (is_message(i)) kind[i] = kind[i > last ? last : i + 1];
  }
}

// Which of the known axes of the mesh a call speaks along; a new one is added to them. -1: none.
int axis_spoken(const Scheme& scheme, const Morphism& m, std::vector<std::string>& known) {
  const auto call = collective_call(scheme, m);
  if (!call) return -1;
  const auto found = std::find(known.begin(), known.end(), call->mesh_axis);
  const auto at = static_cast<int>(found - known.begin());
  if (found == known.end()) known.push_back(call->mesh_axis);
  return at;
}

CopyWay way_of(const Morphism& m) {
  const Lane lane = lane_of(m);
  return lane == Lane::kFetch  ? CopyWay::kFromHost
         : lane == Lane::kSend ? CopyWay::kToHost
                               : CopyWay::kNone;
}

}  // namespace

Timeline make_timeline(const Scheme& scheme, const Plan& plan, const TimelineOptions& options) {
  Timeline t{.tier = options.tier, .arena = plan.arena_of(options.tier).size};
  t.live = live_bytes(plan, options.tier);
  for (size_t at = 0; at < t.live.size(); ++at) {
    if (const Bytes here{total(t.live[at])}; here > t.peak) {
      t.peak = here, t.peak_at = static_cast<int>(at);
    }
  }
  t.peak_words = moment_in_words(scheme, plan, t.peak_at);
  t.parts = scheme.parts;
  t.body_once = scheme.parts > options.most_parts;
  t.in_seconds = !options.seconds.empty();
  t.clock = options.clock;
  t.moments = moments_of(scheme, plan, options, t);
  if (!options.clock_of_step.begins.empty()) set_clock(options, t.moments);
  for (const PlannedCall& call : plan.calls) {
    const Morphism& m = scheme.morphisms[call.morphism];
    t.kinds.push_back(kind_of(m));
    t.speaks_along.push_back(axis_spoken(scheme, m, t.spoken));
    t.copies.push_back(way_of(m));
  }
  std::vector<Kind> kind;
  for (const Moment& m : t.moments) kind.push_back(t.kinds[m.place]);
  t.sections = sections_of(plan, scheme.parts, t.body_once ? 1 : scheme.parts);
  for (const Stretch& section : t.sections) {
    for (const Stretch& slot : slots_of(scheme, plan, t.moments, section)) {
      settle_messages(scheme, plan, t.moments, slot, kind);
      std::vector<Stretch> phases;
      add_phases(kind, slot.first, slot.last + 1, phases);
      for (const Stretch& phase : phases) {
        add_blocks(scheme, plan, t.moments, phase, t.blocks);
        const bool goes_on =
            !t.phases.empty() && slot.first > section.first && t.phases.back().name == phase.name;
        if (goes_on) {
          t.phases.back().last = phase.last;
        } else {
          t.phases.push_back(phase);
        }
      }
    }
  }
  return t;
}

}  // namespace adjoint
