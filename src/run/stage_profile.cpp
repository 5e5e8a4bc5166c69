#include "run/stage_profile.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <fstream>
#include <map>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "base/hash.h"
#include "device/parallel.h"
#include "plan/lanes.h"
#include "run/profile.h"

namespace adjoint {

namespace {

// Messages that are timed: as many as a few seconds have, so that their median means something.
constexpr int kFewestPings = 5, kMostPings = 25;
constexpr double kSecondsOfPings = 2;
int pings_of(double slot) {
  return static_cast<int>(
      std::clamp<double>(kSecondsOfPings / (2 * slot), kFewestPings, kMostPings));
}

double stage_clock() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

bool is_message_call(const Scheme& step, const PlannedCall& call) {
  return op_named(step.morphisms[call.morphism].op).to_one_rank;
}

// What a rank received in a step, so that it can be given the same again without anybody sending
// it.
class ReceivedMessages {
 public:
  explicit ReceivedMessages(Run& run) {
    const Scheme& step = run.scheme();
    const Plan& plan = run.plan();
    const std::vector<int> done = done_before(step, plan);
    for (size_t at = 0; at < plan.calls.size(); ++at) {
      if (!is_message_call(step, plan.calls[at])) continue;
      const Morphism& m = step.morphisms[plan.calls[at].morphism];
      if (!m.inputs.empty()) continue;  // it is sent
      for (const Value out : m.outputs) {
        messages_[done[at]].push_back(
            {static_cast<std::byte*>(run.data(out)),
             std::vector<std::byte>(static_cast<size_t>(step[out].type.bytes().count))});
      }
    }
    end_ = static_cast<int>(plan.calls.size());
  }

  // One step as usual, in which they are kept.
  void keep(Run& run) {
    run.before_call = [this](int at) { keep_those_before(at); };
    run.step();
    run.before_call = nullptr;
    keep_those_before(end_);
  }

  // One step of a run in the same memory that receives nothing.
  std::vector<CallSpan> replay(Run& run) {
    std::vector<double> copied(static_cast<size_t>(end_) + 1);
    run.before_call = [&](int at) {
      const auto found = messages_.find(at);
      if (found == messages_.end()) return;
      const double before = stage_clock();
      for (const Message& message : found->second) {
        std::memcpy(message.place, message.bytes.data(), message.bytes.size());
      }
      copied[static_cast<size_t>(at)] = stage_clock() - before;
    };
    std::vector<CallSpan> calls = run.watched_step();
    run.before_call = nullptr;
    // Neither the copies nor what stands where messages were are work of the rank.
    for (size_t at = 0; at < calls.size(); ++at) {
      calls[at].waited += copied[at + 1];
      if (!is_message_call(run.scheme(), run.plan().calls[at])) continue;
      calls[at].waited += calls[at].end - calls[at].begin;
      calls[at].end = calls[at].begin;
    }
    return calls;
  }

 private:
  struct Message {
    std::byte* place;
    std::vector<std::byte> bytes;
  };
  void keep_those_before(int at) {
    const auto found = messages_.find(at);
    if (found == messages_.end()) return;
    for (Message& message : found->second) {
      std::memcpy(message.bytes.data(), message.place, message.bytes.size());
    }
  }

  std::map<int, std::vector<Message>> messages_;  // by the place before which they have arrived
  int end_ = 0;
};

// The same step, in which nobody is spoken to along the stages.
Scheme without_messages(Scheme step) {
  for (Morphism& m : step.morphisms) {
    if (op_named(m.op).to_one_rank) m.attrs["ranks"] = int64_t{1};
  }
  return step;
}

// ---- one form for the numbers of all ranks ----

void append(std::vector<double>& to, const TimedWork& work) {
  to.push_back(work.begin);
  to.push_back(work.end);
}

std::vector<double> packed(const MeasuredWalk& walk) {
  std::vector<double> all;
  append(all, walk.before);
  for (const TimedWork& work : walk.slots) append(all, work);
  for (const TimedWork& work : walk.after) append(all, work);
  return all;
}

MeasuredWalk unpacked(const std::vector<double>& all, size_t rounds, double zero) {
  const auto at = [&](size_t i) { return TimedWork{all[2 * i] - zero, all[2 * i + 1] - zero}; };
  MeasuredWalk walk{.before = at(0)};
  const size_t parts = all.size() / 2;
  for (size_t i = 1; i < parts; ++i)
    (i + rounds < parts ? walk.slots : walk.after).push_back(at(i));
  return walk;
}

// Processes of one machine have one clock; where ranks are on several, each counts from its own
// beginning of a step.
bool on_one_machine(const Communicator& world) {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  if (boot.empty()) return world.one_process();
  // Half of the hash, which a double holds exactly.
  const double mine = static_cast<double>(hash_of(boot.data(), boot.size()) >> 32);
  const auto all = gathered(world, {mine});
  return std::all_of(all.begin(), all.end(), [&](const auto& other) { return other[0] == mine; });
}

// Seconds of a message from one stage to the next, where the other rank works for so long first.
double message_seconds(Seat& seat, Bytes size, double slot) {
  Communicator& stages = seat.along(kStageAxis);
  std::vector<std::byte> mine(static_cast<size_t>(size.count)), theirs(mine.size());
  const auto work = [&] {
    const double until = stage_clock() + slot;
    while (stage_clock() < until) {
    }
  };
  std::vector<double> all;
  seat.world().barrier().wait();
  for (int i = 0; i < pings_of(slot) && stages.rank() < 2; ++i) {
    const int other = 1 - stages.rank();
    Pending answer = stages.receive(other, bytes_of(theirs));
    if (stages.rank() == 1) answer.wait();
    work();
    const double before = stage_clock();
    stages.send(other, bytes_of(std::as_const(mine))).wait();
    if (stages.rank() == 1) continue;
    answer.wait();
    all.push_back((stage_clock() - before - slot) / 2);
  }
  seat.world().barrier().wait();
  return gathered(seat.world(), {std::max(0.0, median(all))})[0][0];
}

// Work of all threads of a rank that takes about so long, and always the same.
class SteadyWork {
 public:
  explicit SteadyWork(double seconds) {
    const double before = stage_clock();
    run();
    const double once = std::max(1e-7, stage_clock() - before);
    rounds_ = static_cast<int64_t>(static_cast<double>(rounds_) * std::max(0.1, seconds / once));
  }
  double run() {
    const double before = stage_clock();
    parallel_for(num_threads(), 1, [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) {
        double x = static_cast<double>(i);
        for (int64_t k = 0; k < rounds_; ++k) x = 0.5 * x + 1;
        if (x > 2.5 + static_cast<double>(i))
          never_.store(true);  // so that the loop is not left out
      }
    });
    return stage_clock() - before;
  }

 private:
  int64_t rounds_ = 1'000'000;
  std::atomic<bool> never_ = false;
};

// Seconds by which work of a slot's time is longer while a message is awaited beside it and another
// is sent: two stages work in step, each receives what the other has sent after its work before.
double seconds_beside(Seat& seat, const std::vector<MeshAxis>& mesh, Bytes size, double slot) {
  Communicator& stages = seat.along(kStageAxis);
  std::vector<std::byte> mine(static_cast<size_t>(size.count)), theirs(mine.size());
  SteadyWork work(slot);
  std::vector<double> quiet, beside;
  seat.world().barrier().wait();
  for (int i = 0; i < pings_of(slot) && stages.rank() < 2; ++i) {
    const int other = 1 - stages.rank();
    quiet.push_back(work.run());
    Pending sent = stages.send(other, bytes_of(std::as_const(mine)));
    stages.receive(other, bytes_of(theirs)).wait();
    Pending answer = stages.receive(other, bytes_of(theirs));
    beside.push_back(work.run());
    sent.wait();
    sent = stages.send(other, bytes_of(std::as_const(mine)));
    answer.wait();
    sent.wait();
  }
  seat.world().barrier().wait();
  const auto both = gathered(seat.world(), {median(beside) - median(quiet)});
  double sum = 0;
  for (size_t stage = 0; stage < 2; ++stage) {
    sum += both[rank_of_stage(mesh, stage)][0];
  }
  return std::max(0.0, sum / 2);
}

}  // namespace

double MeasuredStages::step_seconds() const { return median(seconds); }

std::vector<std::vector<double>> gathered(const Communicator& world,
                                          const std::vector<double>& mine) {
  const auto ranks = static_cast<size_t>(world.size());
  std::vector<int64_t> sizes(ranks);
  const int64_t size = static_cast<int64_t>(mine.size());
  world.all_gather(std::as_bytes(std::span(&size, 1)), bytes_of(sizes)).wait();
  const auto most = static_cast<size_t>(*std::max_element(sizes.begin(), sizes.end()));
  std::vector<double> padded = mine, all(ranks * most);
  padded.resize(most);
  if (most > 0) world.all_gather(bytes_of(padded), bytes_of(all)).wait();
  std::vector<std::vector<double>> result;
  for (size_t rank = 0; rank < ranks; ++rank) {
    const auto begin = all.begin() + static_cast<int64_t>(rank * most);
    result.emplace_back(begin, begin + sizes[rank]);
  }
  return result;
}

PlaceInStep place_in_step(const Morphism& m) {
  switch (m.section) {
    case Section::kPrologue:
      return {};
    case Section::kBody:
      CHECK(m.slot > 0, "a call of a stage is in a slot: " + to_string(m.source));
      return {m.section, static_cast<size_t>(m.slot) - 1};
    case Section::kEpilogue:
      return {m.section, static_cast<size_t>(m.slot) / 2};  // work and messages of a round
  }
  return {};
}

size_t rounds_of(const std::vector<Scheme>& steps) {
  size_t rounds = 0;
  for (const Scheme& step : steps) {
    for (const Morphism& m : step.morphisms) {
      if (m.section == Section::kEpilogue) rounds = std::max(rounds, place_in_step(m).number + 1);
    }
  }
  return rounds;
}

size_t rank_of_stage(const std::vector<MeshAxis>& mesh, size_t stage) {
  for (int rank = 0; rank < num_ranks(mesh); ++rank) {
    const Coordinates at = coordinates_of(rank, mesh);
    const bool here = std::all_of(at.begin(), at.end(), [&](const auto& axis) {
      return axis.second == (axis.first == kStageAxis ? static_cast<int>(stage) : 0);
    });
    if (here) return static_cast<size_t>(rank);
  }
  fail("there is no stage ", stage, " on this mesh");
}

MeasuredWalk walk_of(const Scheme& step, const Plan& plan, const std::vector<CallSpan>& calls,
                     size_t slots, size_t rounds) {
  MeasuredWalk walk{.before = {}, .slots = std::vector<TimedWork>(slots), .after = {}};
  walk.after.resize(rounds);
  size_t at = 0;
  double now = calls.empty() ? 0 : calls[0].begin;
  const auto take = [&](Section section, size_t number) {
    double begin = now, waited = 0;
    bool first = true;
    for (; at < calls.size(); ++at) {
      const PlaceInStep place = place_in_step(step.morphisms[plan.calls[at].morphism]);
      if (place.section != section || place.number != number) break;
      if (first) begin = calls[at].begin;
      if (!first) waited += calls[at - 1].waited;
      now = calls[at].end;
      first = false;
    }
    return TimedWork{first ? now : std::min(now, begin + waited), now};
  };
  walk.before = take(Section::kPrologue, 0);
  for (size_t i = 0; i < slots; ++i) walk.slots[i] = take(Section::kBody, i);
  for (size_t i = 0; i < rounds; ++i) walk.after[i] = take(Section::kEpilogue, i);
  CHECK(at == calls.size(), "every call is before the slots, in one of them or in a round");
  return walk;
}

MeasuredStages measure_stages(Run& run, RandomSteps& steps, Seat& seat,
                              const StageMeasureOptions& options) {
  const Communicator& world = seat.world();
  ReceivedMessages messages(run);
  steps.feed();
  world.barrier().wait();
  messages.keep(run);
  Run by_itself(without_messages(run.scheme()), run.plan(), run,
                {.reference = false, .poison = false, .seat = &seat});
  MeasuredStages measured;
  measured.own_calls.resize(run.plan().calls.size());
  std::vector<std::vector<double>> together;  // per step
  std::vector<std::vector<double>> alone;     // per piece of work: of every step
  std::vector<double> begins, ends;
  for (int i = 0; i <= options.steps; ++i) {
    steps.feed();
    world.barrier().wait();
    const std::vector<CallSpan> calls = run.watched_step();
    world.barrier().wait();
    steps.feed();
    world.barrier().wait();
    const std::vector<CallSpan> own_calls = messages.replay(by_itself);
    world.barrier().wait();
    if (i == 0) continue;
    for (size_t at = 0; at < own_calls.size(); ++at) {
      measured.own_calls[at].push_back(own_calls[at].end - own_calls[at].begin);
    }
    const std::vector<double> own =
        packed(walk_of(run.scheme(), run.plan(), own_calls, options.slots, options.rounds));
    together.push_back(
        packed(walk_of(run.scheme(), run.plan(), calls, options.slots, options.rounds)));
    begins.push_back(calls.front().begin);
    ends.push_back(calls.back().end + calls.back().waited);
    alone.resize(own.size() / 2);
    for (size_t k = 0; k < alone.size(); ++k) alone[k].push_back(own[2 * k + 1] - own[2 * k]);
  }

  const auto all_begins = gathered(world, begins), all_ends = gathered(world, ends);
  for (size_t i = 0; i < begins.size(); ++i) {
    double slowest = 0;
    for (size_t rank = 0; rank < all_begins.size(); ++rank) {
      slowest = std::max(slowest, all_ends[rank][i] - all_begins[rank][i]);
    }
    measured.seconds.push_back(slowest);
  }
  std::vector<size_t> by_seconds(measured.seconds.size());
  std::iota(by_seconds.begin(), by_seconds.end(), size_t{0});
  std::sort(by_seconds.begin(), by_seconds.end(),
            [&](size_t a, size_t b) { return measured.seconds[a] < measured.seconds[b]; });
  const size_t shown = by_seconds[by_seconds.size() / 2];
  double first = all_begins[0][shown];
  for (const auto& rank : all_begins) first = std::min(first, rank[shown]);

  std::vector<double> medians;
  for (std::vector<double>& seconds : alone) medians.push_back(median(std::move(seconds)));
  const auto walks = gathered(world, together[shown]), by_themselves = gathered(world, medians);
  const bool one_clock = on_one_machine(world);
  const int stages = mesh_size(run.scheme().mesh, kStageAxis);
  std::vector<double> slots;
  for (int stage = 0; stage < stages; ++stage) {
    const size_t rank = rank_of_stage(run.scheme().mesh, static_cast<size_t>(stage));
    measured.together.push_back(
        unpacked(walks[rank], options.rounds, one_clock ? first : all_begins[rank][shown]));
    const std::vector<double>& own = by_themselves[rank];
    const auto end = own.end() - static_cast<int64_t>(options.rounds);
    measured.alone.push_back({own[0], {own.begin() + 1, end}, {end, own.end()}});
    slots.insert(slots.end(), own.begin() + 1, end);
  }

  Bytes largest{sizeof(float)};
  for (const Morphism& m : run.scheme().morphisms) {
    if (!op_named(m.op).to_one_rank || m.section != Section::kBody) continue;
    for (const Value v : m.inputs) largest = std::max(largest, run.scheme()[v].type.bytes());
  }
  for (const auto& other : gathered(world, {static_cast<double>(largest.count)})) {
    largest = std::max(largest, Bytes{static_cast<int64_t>(other[0])});
  }
  const double slot = median(slots);
  const double small = message_seconds(seat, {sizeof(float)}, slot);
  const double large = message_seconds(seat, largest, slot);
  measured.messages = {
      .latency = small,
      .seconds_per_byte = std::max(0.0, large - small) / static_cast<double>(largest.count),
      .seconds_per_term = 0};
  measured.beside = seconds_beside(seat, run.scheme().mesh, largest, slot);
  return measured;
}

}  // namespace adjoint
