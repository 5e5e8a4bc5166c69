#include "run/run.h"

#include <algorithm>
#include <chrono>
#include <mutex>

#include "base/error.h"
#include "device/limits.h"
#include "device/parallel.h"
#include "kernels/backend.h"
#include "kernels/cuda/cublaslt/product_table.h"
#include "run/call_timer.h"

namespace adjoint {

namespace {

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

Run::Run(Scheme scheme, Plan plan, RunOptions options)
    : scheme_(std::move(scheme)), plan_(std::move(plan)), options_(std::move(options)) {
  if (on_gpu()) stream_ = std::make_shared<GpuStream>();
  // Tiers together: what the first was given is not yet touched when the next one asks.
  if (!on_gpu()) check_memory(plan_.footprint(), "this", options_.advice);
  for (int t = 0; t < kNumTiers; ++t) {
    const Bytes size = plan_.arena_of(static_cast<Tier>(t)).size;
    if (t > 0 && size.count == 0) continue;  // most steps use one tier
    own_[t] = Buffer(size, !on_gpu() ? Memory::kHost : t == 0 ? Memory::kGpu : Memory::kPinned);
    base_[t] = own_[t].data();
  }
  // Touch every page now, from the threads that will use them, so that no step waits for one.
  fill_arena(std::byte{0});
  if (on_gpu()) stream_->fill_with_noise(base_[0], plan_.arena_of(Tier::kDevice).size);
  prepare();  // products are timed there
  if (on_gpu()) fill_arena(std::byte{0});
  set_controls();
}

Run::Run(Scheme scheme, Plan plan, Run& host, RunOptions options)
    : scheme_(std::move(scheme)),
      plan_(std::move(plan)),
      options_(std::move(options)),
      stream_(host.stream_) {
  CHECK(on_gpu() == host.on_gpu(), "a guest runs where its host does");
  for (int t = 0; t < kNumTiers; ++t) {
    CHECK(plan_.arena_of(static_cast<Tier>(t)).size <= host.own_[t].size(),
          "a guest's plan fits the host's arena");
  }
  base_ = host.base_;
  prepare();
}

void Run::set_controls() {
  for (const Value v : scheme_.inputs) {
    if (scheme_[v].role == Role::kControl && scheme_[v].init) set_number(v, 1);
    if (!options_.seat) continue;
    for (const auto& [axis, coordinate] : options_.seat->coordinates()) {
      if (scheme_[v].source == mesh_coordinate(axis)) set_number(v, coordinate);
    }
  }
}

void Run::prepare() {
  CHECK(scheme_.mesh.empty() || options_.seat,
        "a step of several ranks runs at a place of its mesh");
  if (options_.poison) poison_ = std::byte{0xff};  // a NaN in every floating dtype
  CHECK(on_gpu() || num_threads() <= plan_.threads,
        "workspaces are planned for every thread that runs");
  if (on_gpu()) {
    lanes_ = std::make_unique<GpuLanes>(make_lanes(scheme_, plan_), stream_);
    mail_ = std::make_unique<Mailboxes>(stream_);
  }
  const auto is_collective = [&](const PlannedCall& call) {
    return lane_of(scheme_.morphisms[call.morphism]) == Lane::kRanks;
  };
  if (std::any_of(plan_.calls.begin(), plan_.calls.end(), is_collective)) {
    completions_.resize(plan_.calls.size());
    lands_.resize(plan_.calls.size());
    under_way_.assign(plan_.calls.size(), false);
    const std::vector<int> done = done_before(scheme_, plan_);
    for (size_t at = 0; at < done.size(); ++at) {
      if (is_collective(plan_.calls[at])) lands_[done[at] - 1].push_back(static_cast<int>(at));
    }
  }
  // A GPU of Hopper's kind or later, and no other stream that a kernel would have to wait for.
  const bool early = on_gpu() && lanes_->one_stream() && open_gpu().major >= 9;
  // Ranks of one process prepare in turns: what one has timed, the next ones find.
  std::unique_lock<std::mutex> alone;
  if (on_gpu()) alone = lock_products();
  calls_.reserve(plan_.calls.size());
  dies_after_.resize(plan_.calls.size());
  const auto all = static_cast<int64_t>(plan_.calls.size());
  for (const PlannedCall& planned : plan_.calls) {
    const auto made = static_cast<int64_t>(launches_.size());
    if (options_.told) options_.told(made + 1, all, "calls ready");
    const Morphism& m = scheme_.morphisms[planned.morphism];
    calls_.push_back(call_of(scheme_, m));
    if (planned.is_view) {
      launches_.emplace_back();
      continue;
    }
    KernelCall k = kernel_call(calls_.back(), scheme_, m, plan_);
    k.may_time = own_[0].size().count > 0;  // a guest's memory is its host's
    Pointers at;
    if (on_gpu()) at.stream = lanes_->stream_of(static_cast<int>(launches_.size())).handle();
    at.early = early;
    for (const Value v : m.inputs) at.in.push_back(data(v));
    for (const Value v : m.outputs) at.out.push_back(data(v));
    const bool speaks = op_named(m.op).collective || op_named(m.op).to_one_rank;
    if (speaks && calls_.back().integer("ranks") > 1) {
      at.peers = &options_.seat->along(std::get<std::string>(m.attrs.at("mesh")));
    }
    if (planned.workspace >= 0) {
      at.workspace = this->at(plan_.storages[planned.workspace]);
    }
    if (!completions_.empty()) at.completion = &completions_[launches_.size()];
    launches_.push_back(options_.reference ? prepare_reference(k, at) : ::adjoint::prepare(k, at));
  }
  options_.told = nullptr;  // whoever listened may be gone later
  // On a GPU a collective has no second half, and that of a message waits on the host.
  messages_wait_ = on_gpu() && std::any_of(completions_.begin(), completions_.end(),
                                           [](const Launch& end) { return end != nullptr; });
  const int end = static_cast<int>(plan_.calls.size());
  for (size_t i = 0; i < plan_.storages.size(); ++i) {
    const int last = plan_.storages[i].last;
    if (last < end) dies_after_[last].push_back(static_cast<int>(i));
    crosses_.push_back(plan_.storages[i].first < plan_.body_begin);
  }
  for (const Value in : scheme_.inputs) crosses_[plan_.places[in].storage] = true;
  if (!on_gpu()) return;
  finish_kernels();
  save_product_table();
}

void Run::step() {
  CHECK(on_gpu() || num_threads() <= plan_.threads,
        "workspaces are planned for every thread that runs");
  if (launches_recordings()) return step_by_recordings();
  run_calls(0, plan_.body_begin, true);
  for (int part = 1; part <= scheme_.parts; ++part) {
    run_calls(plan_.body_begin, plan_.body_end, part == scheme_.parts);
  }
  run_calls(plan_.body_end, static_cast<int>(launches_.size()), true);
  warm_ = true;
}

void Run::run_calls(int begin, int end, bool for_good) {
  // Poison, clocks and witnesses look at one call after the other.
  if (lanes_) lanes_->open(begin, poison_ || timer_ || after_call);
  for (int at = begin; at < end; ++at) {
    if (before_call) before_call(at);
    if (spans_) (*spans_)[at].begin = seconds_now();
    if (launches_[at]) {
      if (lanes_) lanes_->before(at);
      launches_[at]();
      if (lanes_) lanes_->after(at);
    }
    if (spans_) (*spans_)[at].end = seconds_now();
    if (!lands_.empty()) {
      under_way_[at] = static_cast<bool>(completions_[at]);
      // Whoever looks at every call finds its results, but for messages: they begin before their
      // sender has them, and who waited for one here might wait for a rank that waits for this one.
      if ((timer_ || after_call) && !is_message(at)) land(at);
      // Poison needs no wait of its own: the plan frees nothing that is under way.
      for (const int place : lands_[at]) {
        const bool watched = spans_ && is_message(place);
        const double before = watched ? seconds_now() : 0;
        land(place);
        if (watched) (*spans_)[at].waited += seconds_now() - before;
      }
    }
    if (poison_) bury(at, for_good);
    if (timer_) timer_->after(at);
    if (!after_call || is_message(at)) continue;
    synchronize();
    after_call(at);
  }
  if (lanes_) lanes_->close();
}

bool Run::is_message(int at) const {
  return scheme_.mesh.size() > 0 && op_named(calls_[at].op).to_one_rank;
}

void Run::land(int place) {
  if (!under_way_[place]) return;
  completions_[place]();
  under_way_[place] = false;
}

bool Run::launches_recordings() const {
  // Ranks that share a GPU wait for each other on the host, and so does who receives a message.
  const bool host_waits = (options_.seat && !options_.seat->gpus_are_open()) || messages_wait_;
  return on_gpu() && warm_ && !poison_ && !timer_ && !after_call && !host_waits;
}

void Run::step_by_recordings() {
  const int end = static_cast<int>(launches_.size());
  if (recordings_.empty() && scheme_.parts == 1) {
    recordings_ = {record(0, end)};
  } else if (recordings_.empty()) {
    recordings_ = {record(0, plan_.body_begin), record(plan_.body_begin, plan_.body_end),
                   record(plan_.body_end, end)};
  }
  if (recordings_.size() == 1) return stream_->launch(*recordings_[0]);
  stream_->launch(*recordings_[0]);
  for (int part = 0; part < scheme_.parts; ++part) stream_->launch(*recordings_[1]);
  stream_->launch(*recordings_[2]);
}

std::shared_ptr<GpuStream::Recording> Run::record(int begin, int end) {
  return recorded(*stream_, [&] { run_calls(begin, end, true); });
}

std::vector<double> Run::timed_step() {
  const auto body = static_cast<size_t>(plan_.body_end - plan_.body_begin);
  CallTimer timer(launches_.size(), launches_.size() + (scheme_.parts - 1) * body, stream_.get());
  timer_ = &timer;
  try {
    step();
  } catch (...) {
    timer_ = nullptr;
    throw;
  }
  timer_ = nullptr;
  synchronize();
  return timer.sums();
}

std::vector<CallSpan> Run::watched_step() {
  CHECK(!on_gpu() && scheme_.parts == 1, "a watched step runs every call once, on a CPU");
  std::vector<CallSpan> spans(launches_.size());
  spans_ = &spans;
  try {
    step();
  } catch (...) {
    spans_ = nullptr;
    throw;
  }
  spans_ = nullptr;
  return spans;
}

void Run::synchronize() const {
  if (stream_) stream_->synchronize();
}

std::byte* Run::at(const Storage& storage) const {
  return arena(storage.tier) + storage.offset.count;
}

void* Run::data(Value v) const {
  CHECK(v >= 0 && v < static_cast<Value>(plan_.places.size()), "an object of the step");
  const Place& place = plan_.places[v];
  return at(plan_.storages[place.storage]) + place.offset.count;
}

}  // namespace adjoint
