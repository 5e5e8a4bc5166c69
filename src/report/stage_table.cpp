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

// Seconds of the calls of each slot; messages cost a rank nothing, they travel beside its work.
std::map<int, double> seconds_by_slot(const Scheme& step, const Plan& plan, const StepTime& time) {
  std::map<int, double> seconds;
  for (size_t at = 0; at < plan.calls.size(); ++at) {
    const Morphism& m = step.morphisms[plan.calls[at].morphism];
    if (m.section != Section::kBody || op_named(m.op).to_one_rank) continue;
    seconds[m.slot] += time.seconds[at];
  }
  return seconds;
}

double median(std::vector<double> all) {
  if (all.empty()) return 0;
  std::nth_element(all.begin(), all.begin() + static_cast<int64_t>(all.size() / 2), all.end());
  return all[all.size() / 2];
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

}  // namespace

size_t PlannedStages::largest() const {
  size_t most = 0;
  for (size_t i = 0; i < plans.size(); ++i) {
    if (plans[i].arena > plans[most].arena) most = i;
  }
  return most;
}

PlannedStages plan_stages(const Scheme& whole, const PlanOptions& options, const Costs& costs) {
  PlannedStages all{.schedule = schedule_of(whole)};
  const auto chunks = static_cast<size_t>(all.schedule.chunks);
  for (std::vector<double>* seconds : {&all.slots.forward, &all.slots.backward, &all.slots.weight})
    seconds->assign(chunks, 0);
  all.slots.kept.assign(chunks, 0);
  all.slots.kept_for_weights.assign(chunks, 0);
  double update = 0;
  int64_t largest_message = 0;
  all.steps = steps_of_stages(whole);
  for (int rank = 0; rank < all.schedule.ranks; ++rank) {
    const Scheme& step = all.steps[rank];
    all.plans.push_back(make_plan(step, options));
    const Plan& plan = all.plans.back();
    all.times.push_back(predict_time(step, plan, costs));
    const std::map<int, double> seconds = seconds_by_slot(step, plan, all.times.back());
    std::map<std::pair<SlotKind, int>, std::vector<double>> of_kind;
    std::map<int, Slot> slot_at;
    const std::vector<Slot>& list = all.schedule.lists[rank];
    for (size_t i = 0; i < list.size(); ++i) {
      slot_at[static_cast<int>(i) + 1] = list[i];
      const auto found = seconds.find(static_cast<int>(i) + 1);
      of_kind[{list[i].kind, list[i].chunk}].push_back(found == seconds.end() ? 0 : found->second);
    }
    for (const auto& [of, times] : of_kind) {
      const auto& [kind, chunk] = of;
      (kind == SlotKind::kForward    ? all.slots.forward
       : kind == SlotKind::kBackward ? all.slots.backward
                                     : all.slots.weight)[chunk] = median(times);
    }
    const std::set<int> held = [&] {
      std::set<int> chunks_of_rank;
      for (const Slot& slot : list) chunks_of_rank.insert(slot.chunk);
      return chunks_of_rank;
    }();
    for (const int chunk : held) {
      const Kept kept = kept_of(step, plan, slot_at, chunk, all.schedule.parts / 2);
      all.slots.kept[chunk] = kept.until_backward;
      all.slots.kept_for_weights[chunk] = kept.until_weight;
    }
    double own_update = 0;
    for (size_t at = 0; at < plan.calls.size(); ++at) {
      const Morphism& m = step.morphisms[plan.calls[at].morphism];
      if (op_named(m.op).to_one_rank) {
        int64_t bytes = 0;
        for (const Value in : m.inputs) bytes += step[in].type.bytes().count;
        if (m.section == Section::kBody) largest_message = std::max(largest_message, bytes);
      } else if (m.section == Section::kEpilogue) {
        own_update += all.times.back().seconds[at];
      }
    }
    update = std::max(update, own_update);
  }
  const Fabric& fabric = costs.sheet.fabric;
  all.slots.send = fabric.latency + fabric.seconds_per_byte * static_cast<double>(largest_message);
  all.slots.update = update;
  all.slots.barrier = true;
  all.slots.exchange = 2 * fabric.latency;
  all.simulated = simulate(all.schedule, all.slots);
  return all;
}

std::string stage_table(const PlannedStages& stages) {
  std::string out =
      fmt::format("{:<8} {:>14} {:>18} {:>9} {:>11} {:>11} {:>11} {:>9}\n", "stage", "parameters",
                  "planned bytes", "in flight", "forward ms", "backward ms", "weight ms", "busy");
  for (size_t i = 0; i < stages.steps.size(); ++i) {
    double forward = 0, backward = 0, weight = 0;
    std::set<int> held;
    for (const Slot& slot : stages.schedule.lists[i]) held.insert(slot.chunk);
    for (const int chunk : held) {
      forward += stages.slots.forward[chunk];
      backward += stages.slots.backward[chunk];
      weight += stages.slots.weight[chunk];
    }
    const SimulatedRank& rank = stages.simulated.ranks[i];
    out += fmt::format("{:<6} {:>15} {:>18} {:>9} {:>15} {:>10.3f} {:>11.3f} {:>9.3f} {:>6.1f}%\n",
                       i, with_commas(num_parameters(stages.steps[i])),
                       with_commas(stages.plans[i].arena.count), rank.in_flight,
                       with_commas(sent_bytes(stages.steps[i])), 1e3 * forward, 1e3 * backward,
                       1e3 * weight, 100 * rank.busy / stages.simulated.seconds);
  }
  return out + fmt::format(
                   "{}: {} parts, a step of {:.2f} ms, of which {:.1f}% are bubbles; {:.2f} ms of "
                   "messages, {:.2f} ms of them waited for\n",
                   stages.schedule.name, stages.schedule.parts, 1e3 * stages.simulated.seconds,
                   100 * stages.simulated.bubble, 1e3 * stages.simulated.message_seconds,
                   1e3 * stages.simulated.waits_for_messages);
}

nlohmann::json stages_json(const PlannedStages& stages) {
  nlohmann::json out = {{"schedule", stages.schedule.name},
                        {"parts", stages.schedule.parts},
                        {"chunks", stages.schedule.chunks},
                        {"seconds", stages.simulated.seconds},
                        {"bubble", stages.simulated.bubble},
                        {"message_s", stages.simulated.message_seconds},
                        {"waited_s", stages.simulated.waits_for_messages},
                        {"stages", nlohmann::json::array()}};
  for (size_t i = 0; i < stages.steps.size(); ++i) {
    const SimulatedRank& rank = stages.simulated.ranks[i];
    out["stages"].push_back({{"parameters", num_parameters(stages.steps[i])},
                             {"bytes", stages.plans[i].arena.count},
                             {"host_bytes", stages.plans[i].host.size.count},
                             {"in_flight", rank.in_flight},
                             {"sent_bytes", sent_bytes(stages.steps[i])},
                             {"busy_s", rank.busy}});
  }
  return out;
}

}  // namespace adjoint
