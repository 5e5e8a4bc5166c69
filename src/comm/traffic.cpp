#include "comm/traffic.h"

#include <algorithm>
#include <utility>

namespace adjoint {

namespace {

constexpr size_t kUsuallyUnderWay = 256;

}  // namespace

Journey::Journey(Route moves) : route(std::move(moves)) {
  size_t messages = 0, terms = 0;
  for (const RouteRound& round : route.rounds) {
    messages = std::max(messages, round.messages.size());
    terms = std::max(terms, round.terms.size());
  }
  parcels_.reserve(messages);
  terms_.reserve(terms);
}

void Journey::start_again() {
  round_ = 0;
  posted_ = false;
  trouble_ = nullptr;
  done_.store(false, std::memory_order_relaxed);
}

void Journey::wait_quietly() noexcept {
  std::unique_lock lock(mutex_);
  arrived_.wait(lock, [&] { return done_.load(std::memory_order_relaxed); });
}

void Journey::finish(std::exception_ptr trouble) {
  const std::lock_guard lock(mutex_);
  trouble_ = std::move(trouble);
  done_.store(true, std::memory_order_release);
  arrived_.notify_all();
}

void Journey::begin_round(Wire& wire) {
  const RouteRound& round = route.rounds[round_];
  for (const RouteCopy& copy : round.copies) {
    if (at(copy.to) != at(copy.from)) wire.copy(at(copy.to), at(copy.from), copy.from.size);
  }
  parcels_.clear();
  for (const RouteMessage& message : round.messages) {
    Parcel& parcel = parcels_.emplace_back();
    parcel.peer = members[message.peer];
    parcel.sends = message.sends;
    parcel.channel = channel;
    parcel.sequence = sequence;
    parcel.data = at(message.region);
    parcel.size = message.region.size;
    wire.post(parcel);
  }
  posted_ = true;
}

void Journey::end_round(Wire& wire) {
  const RouteRound& round = route.rounds[round_];
  if (!round.terms.empty()) {
    terms_.clear();
    for (const RouteRegion& term : round.terms) terms_.push_back(at(term));
    wire.reduce(reduction, dtype, terms_, round.result.size / size_of(dtype).count,
                at(round.result));
  }
  posted_ = false;
  ++round_;
}

bool Journey::advance(Wire& wire) {
  while (round_ < route.rounds.size()) {
    if (!posted_) begin_round(wire);
    if (!std::ranges::all_of(parcels_, &Parcel::done)) return false;
    end_round(wire);
  }
  return true;
}

Traffic::Traffic(std::unique_ptr<Wire> wire) : wire_(std::move(wire)) {
  for (auto* list : {&under_way_, &starting_, &started_}) list->reserve(kUsuallyUnderWay);
  driver_ = std::thread([this] { drive(); });
}

Traffic::~Traffic() {
  {
    const std::lock_guard lock(mutex_);
    over_ = true;
  }
  wire_->wake();
  driver_.join();
}

void Traffic::start(std::shared_ptr<Journey> journey) {
  wire_->alive();
  {
    const std::lock_guard lock(mutex_);
    started_.push_back(std::move(journey));
  }
  wire_->wake();
}

void Traffic::wait(Journey& journey) {
  if (!journey.done()) {
    if (waiters_++ == 0) wire_->waits(true);
    journey.wait_quietly();
    if (--waiters_ == 0) wire_->waits(false);
  }
  if (journey.trouble_) std::rethrow_exception(journey.trouble_);
}

Aborted Traffic::abort(const std::string& reason) {
  const std::string told =
      join_parts("rank ", wire_->rank(), " ended ", wire_->place(), ": ", reason);
  return Aborted(told, wire_->abort(told, /*refused=*/false));
}

Aborted Traffic::refuse(const std::string& reason) {
  return Aborted(reason, wire_->abort(reason, /*refused=*/true), /*was_refused=*/true);
}

void Traffic::fail_all(std::exception_ptr trouble) {
  ended_ = std::move(trouble);
  for (const auto& journey : under_way_) {
    for (Parcel& parcel : journey->parcels_) {
      if (!parcel.done) wire_->withdraw(parcel);
    }
    journey->finish(ended_);
  }
  under_way_.clear();
}

void Traffic::drive() {
  while (true) {
    bool over = false;
    starting_.clear();
    {
      const std::lock_guard lock(mutex_);
      starting_.swap(started_);
      over = over_;
    }
    for (auto& journey : starting_) under_way_.push_back(std::move(journey));
    try {
      if (ended_) {
        fail_all(ended_);
      } else {
        wire_->poll();
        // A call that begins must post before a later one does, so all of them get a turn in order.
        std::erase_if(under_way_, [&](const auto& journey) {
          if (!journey->advance(*wire_)) return false;
          journey->finish(nullptr);
          return true;
        });
      }
    } catch (const Aborted&) {
      fail_all(std::current_exception());
    } catch (
        const std::exception& error) {  // a device that failed: the others must not wait for us
      abort(error.what());
      fail_all(std::current_exception());
    }
    if (over && under_way_.empty()) return;
    wire_->wait(under_way_.empty());
  }
}

}  // namespace adjoint
