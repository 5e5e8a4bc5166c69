#include "report/stage_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "analysis/totals.h"
#include "base/text.h"
#include "cost/collective.h"
#include "functors/stage_schedule.h"
#include "functors/stage_step.h"
#include "ops/op_def.h"

namespace adjoint {

namespace {

// Seconds of the calls of each slot, of what is before them and of the rounds at the end; messages
// cost a rank nothing, they travel beside its work.
StageSeconds predicted_seconds(const Scheme& step, const Plan& plan, const StepTime& time,
                               size_t slots, size_t rounds) {
  StageSeconds seconds{.slots = std::vector<double>(slots), .rounds = std::vector<double>(rounds)};
  for (size_t at = 0; at < plan.calls.size(); ++at) {
    const Morphism& m = step.morphisms[plan.calls[at].morphism];
    if (op_named(m.op).to_one_rank) continue;
    const PlaceInStep place = place_in_step(m);
    (place.section == Section::kPrologue ? seconds.before
     : place.section == Section::kBody   ? seconds.slots[place.number]
                                         : seconds.rounds[place.number]) += time.seconds[at];
  }
  return seconds;
}

// What a stage sends to others in a step.
int64_t sent_bytes(const Scheme& step) {
  int64_t bytes = 0;
  for (const Morphism& m : step.morphisms) {
    if (!op_named(m.op).to_one_rank) continue;
    for (const Value in : m.inputs) bytes += step[in].type.bytes().count;
  }
  return bytes;
}

// Bytes that are made in one slot of a part and read in a later one: by the slot's place.
struct Kept {
  int64_t until_backward = 0, until_weight = 0;
};
Kept kept_of(const Scheme& step, const Plan& plan, const std::map<int, Slot>& slot_at, int chunk,
             int part) {
  std::map<int, std::pair<int, int>> storages;  // by storage: the slots that make and last read it
  for (const PlannedCall& call : plan.calls) {
    const Morphism& m = step.morphisms[call.morphism];
    if (m.section != Section::kBody) continue;
    const auto place = [&](Value v) { return plan.places[v].storage; };
    for (const Value out : m.outputs) {
      auto& [made, read] = storages.try_emplace(place(out), m.slot, m.slot).first->second;
      read = std::max(read, m.slot);
    }
    for (const Value in : m.inputs) {
      const auto found = storages.find(place(in));
      if (found != storages.end()) found->second.second = std::max(found->second.second, m.slot);
    }
  }
  Kept kept;
  for (const auto& [storage, slots] : storages) {
    const auto made = slot_at.find(slots.first), read = slot_at.find(slots.second);
    if (made == slot_at.end() || read == slot_at.end() || slots.first == slots.second) continue;
    const Slot& by = made->second;
    const Slot& last = read->second;
    if (by.kind != SlotKind::kForward || by.chunk != chunk || by.part != part) continue;
    if (last.chunk != chunk || last.part != part) continue;
    const int64_t bytes = plan.storages[storage].size.count;
    kept.until_backward += bytes;
    if (last.kind == SlotKind::kWeight) kept.until_weight += bytes;
  }
  return kept;
}

std::set<int> chunks_of(const std::vector<Slot>& list) {
  std::set<int> held;
  for (const Slot& slot : list) held.insert(slot.chunk);
  return held;
}

}  // namespace

size_t PlannedStages::largest() const {
  size_t most = 0;
  for (size_t i = 0; i < plans.size(); ++i) {
    if (plans[i].footprint() > plans[most].footprint()) most = i;
  }
  return most;
}

size_t PlannedStages::largest_on_host() const {
  const auto most = std::max_element(plans.begin(), plans.end(), [](const Plan& a, const Plan& b) {
    return a.host.size < b.host.size;
  });
  return most - plans.begin();
}

PlannedStages plan_stages(const Scheme& whole, const PlanOptions& options, const Costs& costs) {
  PlannedStages all{.schedule = schedule_of(whole), .steps = steps_of_stages(whole)};
  for (const Scheme& step : all.steps) all.plans.push_back(make_plan(step, options));
  time_stages(all, costs);
  return all;
}

void time_stages(PlannedStages& stages, const Costs& costs) {
  const size_t rounds = rounds_of(stages.steps);
  std::vector<StageSeconds> seconds;
  stages.times.clear();
  for (size_t rank = 0; rank < stages.steps.size(); ++rank) {
    stages.times.push_back(predict_time(stages.steps[rank], stages.plans[rank], costs));
    seconds.push_back(predicted_seconds(stages.steps[rank], stages.plans[rank], stages.times.back(),
                                        stages.schedule.lists[rank].size(), rounds));
  }
  stages.slots = slot_times(stages, seconds, costs.sheet.fabric);
  stages.simulated = simulate(stages.schedule, stages.slots);
}

StepClock clock_of_stage(const PlannedStages& stages, size_t stage) {
  const Scheme& step = stages.steps[stage];
  const Plan& plan = stages.plans[stage];
  const SimulatedRank& rank = stages.simulated.ranks[stage];
  StepClock clock{.begins = {}, .length = stages.simulated.seconds};
  std::map<std::pair<Section, size_t>, double> until;  // of what stands in one slot
  for (size_t at = 0; at < plan.calls.size(); ++at) {
    const Morphism& m = step.morphisms[plan.calls[at].morphism];
    const PlaceInStep place = place_in_step(m);
    const double begin = place.section == Section::kPrologue ? rank.before.begin
                         : place.section == Section::kBody
                             ? stages.simulated.slots[stage][place.number].begin
                             : rank.after[place.number].begin;
    double& now = until.try_emplace({place.section, place.number}, begin).first->second;
    clock.begins.push_back(now);
    if (!op_named(m.op).to_one_rank) now += stages.times[stage].seconds[at];
  }
  return clock;
}

SlotTimes slot_times(const PlannedStages& stages, const std::vector<StageSeconds>& seconds,
                     const Fabric& fabric) {
  const Schedule& schedule = stages.schedule;
  SlotTimes times = equal_times(schedule.chunks, 0, 0, 0);
  times.kept.assign(times.forward.size(), 0);
  times.kept_for_weights = times.kept;
  times.barrier = true;
  const auto message = [&](int64_t bytes) {
    return fabric.latency + fabric.seconds_per_byte * static_cast<double>(bytes);
  };
  int64_t largest_message = 0;
  const size_t rounds = seconds[0].rounds.size();
  times.end.assign(rounds, {.seconds = std::vector<double>(seconds.size())});
  for (size_t rank = 0; rank < seconds.size(); ++rank) {
    const StageSeconds& own = seconds[rank];
    times.slots.push_back(own.slots);
    times.before.push_back(own.before);
    for (size_t round = 0; round < rounds; ++round) {
      times.end[round].seconds[rank] = own.rounds[round];
    }
    std::map<std::pair<SlotKind, int>, std::vector<double>> of_kind;
    std::map<int, Slot> slot_at;
    const std::vector<Slot>& list = schedule.lists[rank];
    for (size_t i = 0; i < list.size(); ++i) {
      slot_at[static_cast<int>(i) + 1] = list[i];
      of_kind[{list[i].kind, list[i].chunk}].push_back(own.slots[i]);
    }
    for (const auto& [of, all] : of_kind) {
      const auto& [kind, chunk] = of;
      (kind == SlotKind::kForward    ? times.forward
       : kind == SlotKind::kBackward ? times.backward
                                     : times.weight)[chunk] = median(all);
    }
    const Scheme& step = stages.steps[rank];
    for (const int chunk : chunks_of(list)) {
      const Kept kept = kept_of(step, stages.plans[rank], slot_at, chunk, schedule.parts / 2);
      times.kept[chunk] = kept.until_backward;
      times.kept_for_weights[chunk] = kept.until_weight;
    }
    for (const Morphism& m : step.morphisms) {
      if (!op_named(m.op).to_one_rank || m.inputs.empty()) continue;
      int64_t bytes = 0;
      for (const Value in : m.inputs) bytes += step[in].type.bytes().count;
      if (m.section == Section::kBody) largest_message = std::max(largest_message, bytes);
      if (m.section != Section::kEpilogue) continue;
      times.end[place_in_step(m).number].messages.push_back(
          {.from = static_cast<int>(rank),
           .to = static_cast<int>(std::get<int64_t>(m.attrs.at("to"))),
           .seconds = message(bytes)});
    }
  }
  times.send = message(largest_message);
  return times;
}

std::string stage_table(const PlannedStages& stages) {
  // Where something lies on the host: what lies there beside the device's bytes.
  const bool offloads = std::any_of(stages.plans.begin(), stages.plans.end(),
                                    [](const Plan& plan) { return plan.host.size.count > 0; });
  const auto on_host = [&](const std::string& text) {
    return offloads ? fmt::format(" {:>18}", text) : "";
  };
  std::string out =
      fmt::format("{:<6} {:>15} {:>18}{} {:>9} {:>15} {:>10} {:>11} {:>9} {:>7}\n", "stage",
                  "parameters", "planned bytes", on_host("on the host"), "in flight", "sent bytes",
                  "forward ms", "backward ms", "weight ms", "busy");
  for (size_t i = 0; i < stages.steps.size(); ++i) {
    double forward = 0, backward = 0, weight = 0;
    for (const int chunk : chunks_of(stages.schedule.lists[i])) {
      forward += stages.slots.forward[chunk];
      backward += stages.slots.backward[chunk];
      weight += stages.slots.weight[chunk];
    }
    const SimulatedRank& rank = stages.simulated.ranks[i];
    out += fmt::format(
        "{:<6} {:>15} {:>18}{} {:>9} {:>15} {:>10.3f} {:>11.3f} {:>9.3f} {:>6.1f}%\n", i,
        with_commas(num_parameters(stages.steps[i])), with_commas(stages.plans[i].arena.count),
        on_host(with_commas(stages.plans[i].host.size.count)), rank.in_flight,
        with_commas(sent_bytes(stages.steps[i])), 1e3 * forward, 1e3 * backward, 1e3 * weight,
        100 * rank.busy / stages.simulated.seconds);
  }
  return out + fmt::format(
                   "{}: {} parts, a step of {:.2f} ms, of which {:.1f}% are bubbles; {:.2f} ms of "
                   "messages, {:.2f} ms of them waited for\n",
                   stages.schedule.name, stages.schedule.parts, 1e3 * stages.simulated.seconds,
                   100 * stages.simulated.bubble, 1e3 * stages.simulated.message_seconds,
                   1e3 * stages.simulated.waits_for_messages);
}

namespace {

// When each slot of a rank runs, as simulated, and where it is asked for its calls.
nlohmann::json slots_json(const PlannedStages& stages, size_t rank, bool with_calls) {
  nlohmann::json out = nlohmann::json::array();
  for (const TimedSlot& timed : stages.simulated.slots[rank]) {
    out.push_back({{"slot", to_string(timed.slot)},
                   {"part", timed.slot.part},
                   {"chunk", timed.slot.chunk},
                   {"begin_s", timed.begin},
                   {"end_s", timed.end}});
  }
  if (!with_calls) return out;
  for (nlohmann::json& slot : out) slot["calls"] = nlohmann::json::array();
  for (const Morphism& m : stages.steps[rank].morphisms) {
    if (m.section != Section::kBody || m.slot < 1 || m.slot > static_cast<int>(out.size())) {
      continue;
    }
    out[m.slot - 1]["calls"].push_back(to_string(m.source));
  }
  return out;
}

// What a rank does before its first slot and behind its last one: preparation and update.
nlohmann::json outside_slots_json(const SimulatedRank& rank) {
  nlohmann::json out = nlohmann::json::array();
  const auto add = [&](const TimedWork& work) {
    if (work.end > work.begin) out.push_back({{"begin_s", work.begin}, {"end_s", work.end}});
  };
  add(rank.before);
  for (const TimedWork& work : rank.after) add(work);
  return out;
}

}  // namespace

nlohmann::json stages_json(const PlannedStages& stages, bool with_calls) {
  nlohmann::json out = {{"schedule", stages.schedule.name},
                        {"parts", stages.schedule.parts},
                        {"chunks", stages.schedule.chunks},
                        {"step_s", stages.simulated.seconds},
                        {"bubble", stages.simulated.bubble},
                        {"message_s", stages.simulated.message_seconds},
                        {"waited_s", stages.simulated.waits_for_messages},
                        {"stages", nlohmann::json::array()}};
  for (size_t i = 0; i < stages.steps.size(); ++i) {
    const SimulatedRank& rank = stages.simulated.ranks[i];
    out["stages"].push_back({{"params", num_parameters(stages.steps[i])},
                             {"bytes", stages.plans[i].arena.count},
                             {"host_bytes", stages.plans[i].host.size.count},
                             {"in_flight", rank.in_flight},
                             {"sent_bytes", sent_bytes(stages.steps[i])},
                             {"busy_s", rank.busy},
                             {"outside", outside_slots_json(rank)},
                             {"slots", slots_json(stages, i, with_calls)}});
  }
  return out;
}

StagesAtWork::StagesAtWork(const PlannedStages& stages, MeasuredStages found)
    : planned(stages), measured(std::move(found)) {
  slots = slot_times(planned, measured.alone, measured.messages);
  slots.beside = measured.beside;
  simulated = simulate(planned.schedule, slots);
  real = as_measured(planned.schedule, measured.together, slots);
}

double StagesAtWork::ratio() const { return measured.step_seconds() / simulated.seconds; }

std::string measured_stage_table(const StagesAtWork& work) {
  std::string out = fmt::format("{:<6} {:>12} {:>12} {:>12} {:>12} {:>12} {:>12} {:>9} {:>9}\n",
                                "stage", "before ms", "forward ms", "backward ms", "weight ms",
                                "end ms", "slots ms", "longer", "busy");
  const auto sum = [](const auto& all, auto&& seconds) {
    double total = 0;
    for (const auto& each : all) total += seconds(each);
    return total;
  };
  const auto length = [](const auto& timed) { return timed.end - timed.begin; };
  for (size_t i = 0; i < work.measured.alone.size(); ++i) {
    const StageSeconds& alone = work.measured.alone[i];
    double of_kind[3] = {};
    for (const int chunk : chunks_of(work.planned.schedule.lists[i])) {
      of_kind[0] += work.slots.forward[chunk];
      of_kind[1] += work.slots.backward[chunk];
      of_kind[2] += work.slots.weight[chunk];
    }
    const auto same = [](double seconds) { return seconds; };
    const double by_itself = sum(alone.slots, same), together = sum(work.real.slots[i], length);
    out += fmt::format(
        "{:<6} {:>12.3f} {:>12.3f} {:>12.3f} {:>12.3f} {:>12.3f} {:>12.3f} {:>+8.1f}% {:>8.1f}%\n",
        i, 1e3 * alone.before, 1e3 * of_kind[0], 1e3 * of_kind[1], 1e3 * of_kind[2],
        1e3 * sum(alone.rounds, same), 1e3 * by_itself,
        by_itself > 0 ? 100 * (together / by_itself - 1) : 0,
        100 * work.real.ranks[i].busy / work.real.seconds);
  }
  out += fmt::format(
      "a slot's seconds are medians of the rank by itself; 'longer' is what its slots took "
      "together, 'busy' its share of the measured step\n"
      "a message takes {:.3f} ms, an empty one {:.3f} ms; a slot is {:.3f} ms longer beside one\n",
      1e3 * work.slots.send, 1e3 * work.measured.messages.latency, 1e3 * work.slots.beside);
  const auto [fastest, longest] = std::ranges::minmax(work.measured.seconds);
  out += fmt::format(
      "{}: {} parts, a step of {:.2f} ms (median of {}; {:.2f} to {:.2f}), simulated from these "
      "slots {:.2f} ms, ratio {:.3f}; bubbles {:.1f}%, simulated {:.1f}%\n",
      work.planned.schedule.name, work.planned.schedule.parts, 1e3 * work.measured.step_seconds(),
      work.measured.seconds.size(), 1e3 * fastest, 1e3 * longest, 1e3 * work.simulated.seconds,
      work.ratio(), 100 * work.real.bubble, 100 * work.simulated.bubble);
  return out;
}

std::string measured_stage_table(const StagesAtWork& work, const std::vector<Measured>& ranks) {
  const std::vector<MeshAxis>& mesh = work.planned.steps[0].mesh;
  std::string out = fmt::format("{:<6} {:>6} {:>20} {:>20} {:>12}\n", "rank", "stage",
                                "planned bytes", "measured bytes", "step");
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    const int stage = coordinates_of(static_cast<int>(rank), mesh).at(kStageAxis);
    out += fmt::format("{:<6} {:>6} {:>20} {:>20} {:>9.2f} ms\n", rank, stage,
                       with_commas(work.planned.plans[static_cast<size_t>(stage)].arena.count),
                       with_commas(ranks[rank].touched.count), 1e3 * ranks[rank].step_seconds);
  }
  return out + "\n" + measured_stage_table(work);
}

nlohmann::json measured_stages_json(const StagesAtWork& work) {
  nlohmann::json out = {{"measured_step_s", work.measured.step_seconds()},
                        {"measured_steps_s", work.measured.seconds},
                        {"step_s", work.simulated.seconds},
                        {"ratio", work.ratio()},
                        {"measured_bubble", work.real.bubble},
                        {"bubble", work.simulated.bubble},
                        {"message_s", work.slots.send},
                        {"message_latency_s", work.measured.messages.latency},
                        {"beside_s", work.slots.beside},
                        {"stages", nlohmann::json::array()}};
  for (size_t i = 0; i < work.measured.alone.size(); ++i) {
    const StageSeconds& alone = work.measured.alone[i];
    const MeasuredWalk& walk = work.measured.together[i];
    nlohmann::json slots = nlohmann::json::array(), rounds = slots;
    for (size_t k = 0; k < walk.slots.size(); ++k) {
      const TimedSlot& simulated = work.simulated.slots[i][k];
      slots.push_back({{"slot", to_string(simulated.slot)},
                       {"measured_begin_s", walk.slots[k].begin},
                       {"measured_end_s", walk.slots[k].end},
                       {"alone_s", alone.slots[k]},
                       {"begin_s", simulated.begin},
                       {"end_s", simulated.end}});
    }
    for (size_t k = 0; k < walk.after.size(); ++k) {
      rounds.push_back({{"measured_begin_s", walk.after[k].begin},
                        {"measured_end_s", walk.after[k].end},
                        {"alone_s", alone.rounds[k]}});
    }
    out["stages"].push_back({{"before_s", alone.before},
                             {"measured_busy_s", work.real.ranks[i].busy},
                             {"busy_s", work.simulated.ranks[i].busy},
                             {"slots", slots},
                             {"rounds", rounds}});
  }
  return out;
}

nlohmann::json ranks_of_stages_json(const StagesAtWork& work, const std::vector<Measured>& ranks) {
  nlohmann::json all = nlohmann::json::array();
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    const int stage =
        coordinates_of(static_cast<int>(rank), work.planned.steps[0].mesh).at(kStageAxis);
    all.push_back({{"rank", rank},
                   {"stage", stage},
                   {"peak_bytes", work.planned.plans[static_cast<size_t>(stage)].arena.count},
                   {"measured_peak_bytes", ranks[rank].touched.count},
                   {"measured_host_peak_bytes", ranks[rank].host_touched.count},
                   {"measured_step_s", ranks[rank].step_seconds}});
  }
  return all;
}

}  // namespace adjoint
