#include "report/trace.h"

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "ops/op_def.h"
#include "report/timeline.h"

namespace adjoint {

namespace {

using Json = nlohmann::ordered_json;

enum Track { kPhases = 1, kBlocks = 2, kCompute = 3, kCopies = 4 };
constexpr int kProcess = 1;

class Trace {
 public:
  Trace(const Scheme& scheme, const Plan& plan, const TraceOptions& options)
      : scheme_(scheme), plan_(plan), title_(options.title) {
    TimelineOptions all{.tier = Tier::kDevice,
                        .seconds = options.seconds,
                        .most_parts = std::numeric_limits<int>::max()};
    if (all.seconds.empty()) all.seconds.assign(plan.calls.size(), 1e-6);
    device_ = make_timeline(scheme, plan, all);
    all.tier = Tier::kHost;
    host_ = make_timeline(scheme, plan, all);
    // Whole nanoseconds, which viewers count in: neighbours then meet and never overlap.
    for (const Moment& m : device_.moments) starts_.push_back(std::llround(1e9 * m.begins));
    starts_.push_back(std::llround(1e9 * device_.length()));
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
  static constexpr auto kReplace = Json::error_handler_t::replace;  // names that are no UTF-8

  void add(const Json& event) {
    if (!events_.empty()) events_ += ",\n";
    events_ += event.dump(-1, ' ', false, kReplace);
  }

  static double microseconds(int64_t nanoseconds) {
    return static_cast<double>(nanoseconds) / 1000;
  }

  void name_tracks() {
    add({{"name", "process_name"}, {"ph", "M"}, {"pid", kProcess}, {"args", {{"name", title_}}}});
    const std::pair<Track, const char*> tracks[] = {
        {kPhases, "phases"}, {kBlocks, "blocks"}, {kCompute, "compute"}, {kCopies, "copies"}};
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
    Json e = event(m.op, name(kind_of(m)).data(), m.op == "move" ? kCopies : kCompute, starts_[i],
                   starts_[i + 1]);
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

  // Each category a series, and their sum. A value holds until the next one.
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
  std::vector<int64_t> starts_;  // per moment, and the end
  std::string events_;
};

}  // namespace

std::string chrome_trace(const Scheme& scheme, const Plan& plan, const TraceOptions& options) {
  return Trace(scheme, plan, options).text();
}

}  // namespace adjoint
