// The walk through a schedule's lists that everything shares: the check (does it end?), the
// simulator (when?) and a user's text (where is the mistake?).
#pragma once
#include <functional>
#include <optional>
#include <string>

#include "schedules/schedule.h"

namespace adjoint {

// What is wrong with a schedule, and where: a rank and a place in its list. -1: with no single
// slot, or no single rank.
struct ScheduleFault {
  int rank = -1, at = -1;
  std::string message = {};
};

// A slot in an order in which the lists can run.
struct WalkedSlot {
  int rank = 0, at = 0;  // list and place in it
  Slot slot = {};
  bool weights_apart =
      false;  // the weights' gradients of its part and chunk have a slot of their own
  int from_rank = -1, from_at = -1;  // the slot of another rank whose message it waits for
};

// Calls `visit` for every slot, each after those that it waits for, unless there is a fault.
std::optional<ScheduleFault> walk(const Schedule& schedule, bool trains,
                                  const std::function<void(const WalkedSlot&)>& visit);

}  // namespace adjoint
