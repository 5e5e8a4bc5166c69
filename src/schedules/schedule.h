// A schedule of a pipeline is a list per rank: which part of the batch goes through which chunk of
// the model, forward, backward or for the weights' gradients, in which order. This room knows no
// scheme and no tensor, only these lists: it makes them (one small file each), reads a user's own,
// refuses those that cannot run, and predicts their time (simulate.h).
//
// What is to come fits the form: a chunk that two ranks hold is listed by both, each with its own
// parts; a forward and a backward that overlap are two neighbours in a list, the second with a mark
// that it runs beside the first; and a slice of positions is one more number of a slot, beside its
// part, which waits for the slice before it.
#pragma once
#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace adjoint {

enum class SlotKind : uint8_t { kForward, kBackward, kWeight };

// One piece of work of a rank: the forward pass, the backward pass (by the input; with the weights'
// gradients too where the list has no weight slot of that part and chunk) or the weights'
// gradients, of one part of the batch through one chunk of the model.
struct Slot {
  SlotKind kind = SlotKind::kForward;
  int part = 0;
  int chunk = 0;
  bool operator==(const Slot&) const = default;
};

struct Schedule {
  std::string name = {};
  int ranks = 1, parts = 1, chunks = 1;       // chunks of the whole model, numbered along it from 0
  std::vector<std::vector<Slot>> lists = {};  // per rank
  bool operator==(const Schedule&) const = default;
};

std::string to_string(const Slot& slot);  // F3.1 (part 3, chunk 1), B3.1, W3.1

// By name: gpipe, 1f1b, interleaved, zero_bubble, zb_h2. `per_rank`: how many chunks each rank
// holds; chunk c is on rank c mod ranks. Refuses what a schedule cannot be.
Schedule make_schedule(std::string_view name, int ranks, int parts, int per_rank);
std::vector<std::string> schedule_names();

// Of an evaluation: every part forward, in the order of the schedule, on the same holders.
Schedule forward_only(const Schedule& schedule);

constexpr std::string_view kScheduleFile = ".schedule";  // what a user's own is called

// A user's own (the grammar is in schedule_text.cpp). A mistake, in the text or in what its lists
// say, is refused with file, line and column.
Schedule parse_schedule(std::string_view text, std::string_view file);
std::string print(const Schedule& schedule);  // parse_schedule(print(s)) == s

// Parts, and chunks that they go through, whose weights' gradients have a slot of their own.
std::set<std::pair<int, int>> weights_apart(const Schedule& schedule);

std::vector<int> holder_of(const Schedule& schedule);  // per chunk: its rank; -1: no rank lists it

// Refuses, by rank and slot, a list that names a part or chunk that is not there, forgets a slot or
// has it twice, spreads a chunk over ranks, reads what its own rank makes later, or waits forever.
// Every part goes through every chunk once forward and once backward, and at most once for the
// weights, after its backward; without `trains` just forward.
//
// To find out whether it ends, the lists are walked as they will run. A rank does its slots one
// after the other. What a slot sends waits for its receive without holding the rank's work up; a
// slot that receives waits. Between two ranks, activations (which forward slots send) and gradients
// (backward slots) have a lane each, in which the first message that is sent meets the first that
// is received: whoever receives in another order than the sender sends waits forever.
void check_schedule(const Schedule& schedule, bool trains = true);

// Whether every chunk sees its parts in the order 0, 1, 2... in slots of each kind: otherwise what
// it sums over parts (losses forward, gradients backward or in slots of their own) is reassociated.
bool sums_in_order(const Schedule& schedule);

}  // namespace adjoint
