#include "schedules/schedule.h"

#include <algorithm>
#include <map>
#include <set>

#include "base/error.h"
#include "base/text.h"
#include "schedules/automatic.h"
#include "schedules/table.h"

namespace adjoint {

std::string to_string(const Slot& slot) {
  constexpr char kLetters[] = {'F', 'B', 'W'};
  return kLetters[static_cast<int>(slot.kind)] + std::to_string(slot.part) + "." +
         std::to_string(slot.chunk);
}

std::vector<std::string> schedule_names() {
  std::vector<std::string> names;
  for (const ScheduleEntry& entry : kSchedules) names.emplace_back(entry.name);
  return names;
}

Schedule make_schedule(std::string_view name, int ranks, int parts, int per_rank) {
  const auto* entry =
      std::find_if(std::begin(kSchedules), std::end(kSchedules),
                   [&](const ScheduleEntry& candidate) { return candidate.name == name; });
  if (name == "zb_auto" || is_searched(name)) {
    fail("schedule ", name, " is searched for with times and a limit on memory, and here are none");
  }
  if (entry == std::end(kSchedules)) {
    fail("there is no schedule '", name, "'; there are ", join(schedule_names(), ", "), ", ",
         join(searched_names(), ", "));
  }
  if (ranks < 1 || parts < 1 || per_rank < 1) {
    fail("schedule ", name, " wants at least one rank, one part and one chunk per rank, found ",
         ranks, ", ", parts, " and ", per_rank);
  }
  if (!entry->many_chunks && per_rank > 1) {
    fail("schedule ", name, " gives each rank one chunk of the model, and ", per_rank,
         " were asked for; interleaved has several");
  }
  if (entry->many_chunks && parts % ranks != 0) {
    fail("schedule ", name, " wants a number of parts that the ranks divide, found ", parts,
         " parts for ", ranks, " ranks");
  }
  constexpr int64_t kMostSlots =
      100'000'000;  // beyond any pipeline; their lists would fill the memory
  if (static_cast<int64_t>(parts) > kMostSlots / ranks / per_rank) {
    fail("schedule ", name, " of ", ranks, " ranks, ", parts, " parts and ", per_rank,
         " chunks per rank has more than ", kMostSlots, " slots");
  }
  Schedule schedule{
      .name = std::string(name), .ranks = ranks, .parts = parts, .chunks = ranks * per_rank};
  const PipelineShape shape{.ranks = ranks, .parts = parts, .per_rank = per_rank};
  for (int rank = 0; rank < ranks; ++rank) schedule.lists.push_back(entry->list(shape, rank));
  return schedule;
}

Schedule forward_only(const Schedule& schedule) {
  Schedule result = schedule;
  for (std::vector<Slot>& list : result.lists) {
    std::erase_if(list, [](const Slot& slot) { return slot.kind != SlotKind::kForward; });
  }
  return result;
}

std::vector<int> holder_of(const Schedule& schedule) {
  std::vector<int> holder(static_cast<size_t>(schedule.chunks), -1);
  for (size_t rank = 0; rank < schedule.lists.size(); ++rank) {
    for (const Slot& slot : schedule.lists[rank]) {
      holder.at(static_cast<size_t>(slot.chunk)) = static_cast<int>(rank);
    }
  }
  return holder;
}

std::set<std::pair<int, int>> weights_apart(const Schedule& schedule) {
  std::set<std::pair<int, int>> apart;
  for (const std::vector<Slot>& list : schedule.lists) {
    for (const Slot& slot : list) {
      if (slot.kind == SlotKind::kWeight) apart.emplace(slot.part, slot.chunk);
    }
  }
  return apart;
}

bool sums_in_order(const Schedule& schedule) {
  const std::set<std::pair<int, int>> apart = weights_apart(schedule);
  std::map<std::pair<SlotKind, int>, int> next;  // per kind of sum and chunk
  const auto is_next = [&](SlotKind sum, const Slot& slot) {
    return slot.part == next[{sum, slot.chunk}]++;
  };
  for (const std::vector<Slot>& list : schedule.lists) {
    for (const Slot& slot : list) {
      if (!is_next(slot.kind, slot)) return false;
      const bool with_weights =
          slot.kind == SlotKind::kBackward && !apart.count({slot.part, slot.chunk});
      if (with_weights && !is_next(SlotKind::kWeight, slot)) return false;
    }
  }
  return true;
}

}  // namespace adjoint
