#include "report/trace.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "ops/op_def.h"
#include "plan/lanes.h"
#include "report/timeline.h"

namespace adjoint {

namespace {

using Json = nlohmann::ordered_json;

enum Track { kPhases = 1, kBlocks = 2, kCompute = 3, kCopies = 4, kSends = 5, kCollectives = 6 };
constexpr int kProcess = 1;

class Trace {
 public:
  Trace(const Scheme& scheme, const Plan& plan, const TraceFileOptions& options)
      : scheme_(scheme), plan_(plan), title_(options.title) {
    TimelineOptions all{.tier = Tier::kDevice,
                        .seconds = options.seconds,
                        .most_parts = std::numeric_limits<int>::max()};
    if (all.seconds.empty()) all.seconds.assign(plan.calls.size(), 1e-6);
    all.copies_overlap = copies_run_beside();
    all.collectives_overlap = true;
    device_ = make_timeline(scheme, plan, all);
    all.tier = Tier::kHost;
    host_ = make_timeline(scheme, plan, all);
    lay_out();
  }

  std::string text() {
    name_tracks();
    for (const Stretch& s : device_.phases) span(s, kPhases, "phase");
    for (const Stretch& s : device_.blocks) span(s, kBlocks, "block");
    for (size_t i = 0; i < device_.moments.size(); ++i) call(i);
    counters(device_, "memory");
    if (plan_.host.size.count > 0) counters(host_, "host memory");
    std::string out = "{\"displayTimeUnit\":\"ms\",\"otherData\":";
    out += Json{{"title", title_}, {"parts", scheme_.parts}}.dump(-1, ' ', false, kReplace);
    out += ",\"traceEvents\":[\n" + events_ + "\n]}\n";
    return out;
  }

 private:
  static constexpr auto kReplace = Json::error_handler_t::replace;  // for names that are not UTF-8

  bool copies_run_beside() const { return copies_overlap(plan_); }
  bool has_collectives() const {
    return std::ranges::any_of(plan_.calls, [&](const PlannedCall& call) {
      return lane_of(scheme_.morphisms[call.morphism]) == Lane::kRanks;
    });
  }

  // Calls follow one another, or run on their own lanes; phases, blocks and counters then follow
  // the lane of the arithmetic. Times are whole nanoseconds, the unit of viewers, so that
  // neighbours never overlap.
  void lay_out() {
    const auto whole = [](double s) { return static_cast<int64_t>(std::llround(1e9 * s)); };
    for (const Moment& m : device_.moments) {
      starts_.push_back(whole(m.begins));
      spans_.push_back({whole(m.from), whole(m.to)});
    }
    starts_.push_back(whole(device_.length()));
  }

  void add(const Json& event) {
    if (!events_.empty()) events_ += ",\n";
    events_ += event.dump(-1, ' ', false, kReplace);
  }

  static double microseconds(int64_t nanoseconds) {
    return static_cast<double>(nanoseconds) / 1000;
  }

  void name_tracks() {
    add({{"name", "process_name"}, {"ph", "M"}, {"pid", kProcess}, {"args", {{"name", title_}}}});
    std::vector<std::pair<Track, const char*>> tracks = {
        {kPhases, "phases"},
        {kBlocks, "blocks"},
        {kCompute, "compute"},
        {kCopies, copies_run_beside() ? "fetches" : "copies"}};
    if (copies_run_beside()) tracks.emplace_back(kSends, "sends");
    if (has_collectives()) tracks.emplace_back(kCollectives, "collectives");
    for (const auto& [track, name] : tracks) {
      add({{"name", "thread_name"},
           {"ph", "M"},
           {"pid", kProcess},
           {"tid", static_cast<int>(track)},
           {"args", {{"name", name}}}});
      add({{"name", "thread_sort_index"},
           {"ph", "M"},
           {"pid", kProcess},
           {"tid", static_cast<int>(track)},
           {"args", {{"sort_index", static_cast<int>(track)}}}});
    }
  }

  Json event(const std::string& name, const char* category, int track, int64_t from,
             int64_t to) const {
    return {{"name", name},
            {"cat", category},
            {"ph", "X"},
            {"pid", kProcess},
            {"tid", track},
            {"ts", microseconds(from)},
            {"dur", microseconds(to - from)}};
  }

  void span(const Stretch& s, Track track, const char* category) {
    add(event(s.name, category, track, starts_[s.first], starts_[s.last + 1]));
  }

  void call(size_t i) {
    const Moment& moment = device_.moments[i];
    const PlannedCall& planned = plan_.calls[moment.place];
    if (planned.is_view) return;  // nothing runs
    const Morphism& m = scheme_.morphisms[planned.morphism];
    const Lane lane = lane_of(m);
    const Track track = lane == Lane::kWork                          ? kCompute
                        : lane == Lane::kRanks                       ? kCollectives
                        : lane == Lane::kSend && copies_run_beside() ? kSends
                                                                     : kCopies;
    Json e = event(m.op, name(kind_of(m)).data(), track, spans_[i].first, spans_[i].second);
    std::vector<std::string> in, out;
    for (const Value v : m.inputs) in.push_back(to_string(scheme_[v].type));
    for (const Value v : m.outputs) out.push_back(to_string(scheme_[v].type));
    Json args = {{"source", to_string(m.source)},
                 {"inputs", in},
                 {"outputs", out},
                 {"flops", count_flops(call_of(scheme_, m))},
                 {"call", moment.place + 1}};
    if (planned.workspace >= 0) {
      args["workspace_bytes"] = plan_.storages[planned.workspace].size.count;
    }
    if (m.epoch > 0) args["epoch"] = m.epoch;
    const bool in_body = moment.place >= plan_.body_begin && moment.place < plan_.body_end;
    if (scheme_.parts > 1 && in_body) args["part"] = moment.part + 1;
    e["args"] = std::move(args);
    add(e);
  }

  // One series per category, and their sum. A value is valid until the next one.
  void counters(const Timeline& t, const std::string& what) {
    CategoryBytes before = {};
    bool first = true;
    const auto say = [&](const CategoryBytes& live, int64_t when) {
      if (!first && live == before) return;
      first = false;
      before = live;
      Json by;
      for (const Category c : kLayers) by[std::string(name(c))] = live[static_cast<size_t>(c)];
      add({{"name", what},
           {"ph", "C"},
           {"pid", kProcess},
           {"ts", microseconds(when)},
           {"args", by}});
      add({{"name", what + " total"},
           {"ph", "C"},
           {"pid", kProcess},
           {"ts", microseconds(when)},
           {"args", {{"bytes", total(live)}}}});
    };
    for (size_t i = 0; i < t.moments.size(); ++i) say(t.live[t.moments[i].place], starts_[i]);
    say(t.live.back(), starts_.back());
  }

  const Scheme& scheme_;
  const Plan& plan_;
  std::string title_;
  Timeline device_, host_;
  std::vector<int64_t> starts_;                     // of the work, per moment, and the end
  std::vector<std::pair<int64_t, int64_t>> spans_;  // of the call itself, per moment
  std::string events_;
};

}  // namespace

std::string chrome_trace(const Scheme& scheme, const Plan& plan, const TraceFileOptions& options) {
  return Trace(scheme, plan, options).text();
}

}  // namespace adjoint
