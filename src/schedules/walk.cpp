#include "schedules/walk.h"

#include <map>
#include <set>
#include <tuple>

#include "base/error.h"
#include "base/text.h"

namespace adjoint {

namespace {

struct Place {
  int rank = -1, at = -1;
};

std::string on_rank(int rank, const Slot& slot) {
  return "rank " + std::to_string(rank) + ", slot " + to_string(slot) + ": ";
}

// Whether each slot is there as often as it has to be, on one rank per chunk.
class Census {
 public:
  Census(const Schedule& schedule, bool trains) : schedule_(schedule), trains_(trains) {}

  std::optional<ScheduleFault> fault() {
    if (schedule_.ranks < 1 || schedule_.parts < 1 || schedule_.chunks < 1) {
      return ScheduleFault{.message = "it wants at least one rank, one part and one chunk"};
    }
    if (schedule_.lists.size() != static_cast<size_t>(schedule_.ranks)) {
      return ScheduleFault{.message = join_parts("it has ", schedule_.ranks, " ranks and ",
                                                 schedule_.lists.size(), " lists")};
    }
    for (int rank = 0; rank < schedule_.ranks; ++rank) {
      const std::vector<Slot>& list = schedule_.lists[static_cast<size_t>(rank)];
      for (int at = 0; at < static_cast<int>(list.size()); ++at) {
        if (auto wrong = add(rank, at, list[static_cast<size_t>(at)])) return wrong;
      }
    }
    return forgotten();
  }

 private:
  using Key = std::tuple<int, int, SlotKind>;

  std::optional<ScheduleFault> add(int rank, int at, const Slot& slot) {
    const auto wrong = [&](const std::string& why) {
      return ScheduleFault{rank, at, on_rank(rank, slot) + why};
    };
    if (slot.part < 0 || slot.part >= schedule_.parts) {
      return wrong(join_parts("there are parts 0 to ", schedule_.parts - 1));
    }
    if (slot.chunk < 0 || slot.chunk >= schedule_.chunks) {
      return wrong(join_parts("there are chunks 0 to ", schedule_.chunks - 1));
    }
    if (!trains_ && slot.kind != SlotKind::kForward) {
      return wrong("an evaluation has forward slots alone");
    }
    const auto [first, is_new] = holder_.emplace(slot.chunk, rank);
    if (first->second != rank) {
      return wrong(join_parts("chunk ", slot.chunk, " is on rank ", first->second,
                              " already, and a chunk is on one rank"));
    }
    if (!seen_.emplace(slot.part, slot.chunk, slot.kind).second) return wrong("it is there twice");
    // Its own forward, or backward, slot is a slot of the same rank, so it must have been met.
    if (slot.kind != SlotKind::kForward) {
      const bool weight = slot.kind == SlotKind::kWeight;
      const Slot before{weight ? SlotKind::kBackward : SlotKind::kForward, slot.part, slot.chunk};
      if (!seen_.count({before.part, before.chunk, before.kind})) {
        return wrong("it does not come after " + to_string(before));
      }
    }
    return std::nullopt;
  }

  std::optional<ScheduleFault> forgotten() const {
    for (int part = 0; part < schedule_.parts; ++part) {
      for (int chunk = 0; chunk < schedule_.chunks; ++chunk) {
        for (const SlotKind kind : {SlotKind::kForward, SlotKind::kBackward}) {
          if (!trains_ && kind == SlotKind::kBackward) continue;
          if (seen_.count({part, chunk, kind})) continue;
          const auto holder = holder_.find(chunk);
          const std::string slot = to_string({kind, part, chunk});
          if (holder == holder_.end()) {
            return ScheduleFault{
                .message = join_parts("chunk ", chunk, " is on no rank: ", slot, " is missing")};
          }
          return ScheduleFault{.rank = holder->second,
                               .message = join_parts("rank ", holder->second, " forgets ", slot)};
        }
      }
    }
    return std::nullopt;
  }

  const Schedule& schedule_;
  bool trains_;
  std::map<int, int> holder_;
  std::set<Key> seen_;
};

// Runs the lists of a schedule whose census is right.
class Walker {
 public:
  Walker(const Schedule& schedule, const std::function<void(const WalkedSlot&)>& visit)
      : schedule_(schedule), visit_(visit), holder_(holder_of(schedule)) {
    const size_t each = static_cast<size_t>(schedule.parts) * static_cast<size_t>(schedule.chunks);
    places_.resize(3 * each);
    for (int rank = 0; rank < schedule.ranks; ++rank) {
      const std::vector<Slot>& list = list_of(rank);
      for (int at = 0; at < static_cast<int>(list.size()); ++at) {
        place_of(list[static_cast<size_t>(at)]) = {rank, at};
      }
    }
  }

  std::optional<ScheduleFault> run() {
    if (auto fault = read_before_made()) return fault;
    next_.assign(static_cast<size_t>(schedule_.ranks), 0);
    for (int rank = 0; rank < schedule_.ranks; ++rank) ready_.push_back(rank);
    while (!ready_.empty()) {
      const int rank = ready_.back();
      ready_.pop_back();
      while (next_of(rank) < static_cast<int>(list_of(rank).size()) && take_message(rank)) {
        finish(rank);
      }
    }
    for (int rank = 0; rank < schedule_.ranks; ++rank) {
      if (next_of(rank) < static_cast<int>(list_of(rank).size())) return deadlock(rank);
    }
    return std::nullopt;
  }

 private:
  struct Lane {
    std::vector<Slot> sent = {};  // slots whose messages were sent, in that order
    size_t received = 0;
  };

  const std::vector<Slot>& list_of(int rank) const {
    return schedule_.lists[static_cast<size_t>(rank)];
  }
  int& next_of(int rank) { return next_[static_cast<size_t>(rank)]; }
  const Slot& slot_at(int rank) { return list_of(rank)[static_cast<size_t>(next_of(rank))]; }
  int holder(int chunk) const { return holder_[static_cast<size_t>(chunk)]; }
  Place& place_of(const Slot& slot) {
    const size_t kind = static_cast<size_t>(slot.kind);
    const size_t part = static_cast<size_t>(slot.part);
    return places_[(kind * static_cast<size_t>(schedule_.parts) + part) *
                       static_cast<size_t>(schedule_.chunks) +
                   static_cast<size_t>(slot.chunk)];
  }
  Lane& lane(int from, int to, SlotKind kind) { return lanes_[{from, to, kind}]; }

  // The slot of a neighbouring chunk whose result this one reads; nothing at the ends of the model
  // and for weights.
  std::optional<Slot> read_by(const Slot& slot) const {
    if (slot.kind == SlotKind::kForward && slot.chunk > 0) {
      return Slot{slot.kind, slot.part, slot.chunk - 1};
    }
    if (slot.kind == SlotKind::kBackward && slot.chunk + 1 < schedule_.chunks) {
      return Slot{slot.kind, slot.part, slot.chunk + 1};
    }
    return std::nullopt;
  }

  // And the chunk that reads what this one makes; -1: none.
  int reader_of(const Slot& slot) const {
    if (slot.kind == SlotKind::kForward) {
      return slot.chunk + 1 < schedule_.chunks ? slot.chunk + 1 : -1;
    }
    return slot.kind == SlotKind::kBackward ? slot.chunk - 1 : -1;
  }

  std::optional<ScheduleFault> read_before_made() {
    for (int rank = 0; rank < schedule_.ranks; ++rank) {
      for (int at = 0; at < static_cast<int>(list_of(rank).size()); ++at) {
        const Slot& slot = list_of(rank)[static_cast<size_t>(at)];
        const std::optional<Slot> read = read_by(slot);
        if (!read || place_of(*read).rank != rank || place_of(*read).at < at) continue;
        return ScheduleFault{
            rank, at, on_rank(rank, slot) + "it reads what comes later, in " + to_string(*read)};
      }
    }
    return std::nullopt;
  }

  // Whether the next slot of a rank can run; if it receives a message, that is taken out of its
  // lane.
  bool take_message(int rank) {
    const std::optional<Slot> read = read_by(slot_at(rank));
    if (!read || holder(read->chunk) == rank) return true;
    Lane& from = lane(holder(read->chunk), rank, read->kind);
    if (from.received == from.sent.size() || from.sent[from.received] != *read) return false;
    ++from.received;
    return true;
  }

  void finish(int rank) {
    const Slot slot = slot_at(rank);
    WalkedSlot walked{.rank = rank, .at = next_of(rank), .slot = slot};
    walked.weights_apart = place_of({SlotKind::kWeight, slot.part, slot.chunk}).rank >= 0;
    const std::optional<Slot> read = read_by(slot);
    if (read && holder(read->chunk) != rank) {
      walked.from_rank = place_of(*read).rank;
      walked.from_at = place_of(*read).at;
    }
    if (visit_) visit_(walked);
    ++next_of(rank);
    const int reader = reader_of(slot);
    if (reader < 0 || holder(reader) == rank) return;
    lane(rank, holder(reader), slot.kind).sent.push_back(slot);
    ready_.push_back(holder(reader));
  }

  // Who waits for whom, from a rank that does not go on around to one that was met before.
  ScheduleFault deadlock(int rank) {
    std::map<int, size_t> met;
    std::vector<std::string> waits;
    ScheduleFault fault;
    std::vector<Place> at;
    while (met.emplace(rank, waits.size()).second) {
      const Slot slot = slot_at(rank);
      const Slot wanted = *read_by(slot);
      const int from = holder(wanted.chunk);
      const Lane& messages = lane(from, rank, wanted.kind);
      at.push_back({rank, next_of(rank)});
      std::string text = join_parts("rank ", rank, " waits in ", to_string(slot), " for ",
                                    to_string(wanted), " of rank ", from);
      if (messages.received < messages.sent.size()) {
        // The first message of the lane waits for a later slot of the same rank.
        text += ", which sends " + to_string(messages.sent[messages.received]) + " first";
      } else {
        rank = from;
      }
      waits.push_back(std::move(text));
    }
    const size_t begin = met.at(rank);
    waits.erase(waits.begin(), waits.begin() + static_cast<std::ptrdiff_t>(begin));
    fault.rank = at[begin].rank;
    fault.at = at[begin].at;
    fault.message = "it never ends: " + join(waits, "; ");
    return fault;
  }

  const Schedule& schedule_;
  const std::function<void(const WalkedSlot&)>& visit_;
  std::vector<int> holder_;
  std::vector<Place> places_;  // by kind, part and chunk
  std::vector<int> next_;      // per rank: the slot that it is at
  std::vector<int> ready_;     // ranks that may be able to go on
  std::map<std::tuple<int, int, SlotKind>, Lane> lanes_;
};

}  // namespace

std::optional<ScheduleFault> walk(const Schedule& schedule, bool trains,
                                  const std::function<void(const WalkedSlot&)>& visit) {
  if (auto fault = Census(schedule, trains).fault()) return fault;
  return Walker(schedule, visit).run();
}

void check_schedule(const Schedule& schedule, bool trains) {
  if (const auto fault = walk(schedule, trains, nullptr)) {
    fail("schedule '", schedule.name, "' cannot run: ", fault->message);
  }
}

}  // namespace adjoint
