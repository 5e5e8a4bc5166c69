// The walk through a schedule with seconds: when each slot begins and ends, how long ranks wait,
// and what is in flight.
#pragma once
#include <cstdint>
#include <vector>

#include "schedules/schedule.h"

namespace adjoint {

// A round of the end of a step.
struct EndRound {
  struct Message {
    int from = 0, to = 0;
    double seconds = 0;
  };
  std::vector<double> seconds = {};  // per rank
  std::vector<Message> messages = {};
};

struct SlotTimes {
  // Seconds of one part, per chunk of the model. `backward` is the gradient by the input alone; a
  // backward slot that has the weights' gradients with it takes both times.
  std::vector<double> forward = {}, backward = {}, weight = {};
  // Seconds from the end of a slot until its message has arrived on another rank. Both ranks may
  // be in other slots meanwhile.
  double send = 0;
  // Seconds by which a slot is longer because its rank receives beside it what its next slot reads:
  // whatever moves messages has no processor of its own. Measured; a predicted step has 0.
  double beside = 0;
  // Bytes of one part, per chunk: those that a forward slot keeps, and those of them that are still
  // kept between the backward slot and the weights' own. None: no bytes are counted.
  std::vector<int64_t> kept = {}, kept_for_weights = {};
  // The end of a step on every rank: the update. With a barrier it begins when all ranks have done
  // their slots and have exchanged something (the norm that clipping wants), which takes
  // `exchange`.
  double update = 0;
  bool barrier = false;
  double exchange = 0;
  // What is known more exactly, of a step that was planned or measured. Seconds of every slot, per
  // rank in the order of its list, instead of those by chunk and kind; seconds of a rank before its
  // first slot; and the end of the step instead of `update` and `exchange`: rounds, each the work
  // of every rank and then the messages that ranks wait for. Empty: as above.
  std::vector<std::vector<double>> slots = {};
  std::vector<double> before = {};
  std::vector<EndRound> end = {};
};
// Every chunk the same.
SlotTimes equal_times(int chunks, double forward, double backward, double weight, double send = 0);

struct TimedSlot {
  Slot slot = {};
  double begin = 0, end = 0;
};

// Work of a rank outside of its slots.
struct TimedWork {
  double begin = 0, end = 0;
};

struct BytesAt {
  double time = 0;
  int64_t bytes = 0;  // from this time on
};

struct SimulatedRank {
  double begin = 0, end = 0;          // of its first slot and of its last, with the update
  double busy = 0;                    // in slots, before them and in the update
  TimedWork before = {};              // its first slot
  std::vector<TimedWork> after = {};  // its last one: the update
  // Of what it waits: while the message was under way, as opposed to not sent yet. Communication
  // that is not hidden.
  double waits_for_messages = 0;
  int in_flight = 0;  // most parts (counted per chunk) between forward and backward
  int64_t most_bytes = 0;
  std::vector<BytesAt> bytes = {};
};

struct Simulated {
  std::vector<std::vector<TimedSlot>> slots = {};  // per rank, in the order of its list
  std::vector<SimulatedRank> ranks = {};
  double seconds = 0;  // from the first slot of all ranks to the end of the last
  // The longest time between a rank's own begin and its own end. This is what a step costs among
  // many if ranks go on to the next step without waiting for each other; with a barrier it is
  // `seconds`.
  double own_seconds = 0;
  // The share of `seconds`, and of `own_seconds`, in which ranks do nothing, on average.
  double bubble = 0, own_bubble = 0;
  int64_t messages = 0;
  double message_seconds = 0, waits_for_messages = 0;  // of all; the second is what is not hidden
};

Simulated simulate(const Schedule& schedule, const SlotTimes& times);

// A walk that was measured, in the same form: when every rank was at work, by one clock that begins
// with the step. `times` are asked for bytes alone.
struct MeasuredWalk {
  TimedWork before = {};
  std::vector<TimedWork> slots = {};  // in the order of the rank's list
  std::vector<TimedWork> after = {};
};
Simulated as_measured(const Schedule& schedule, const std::vector<MeasuredWalk>& ranks,
                      const SlotTimes& times);

}  // namespace adjoint
