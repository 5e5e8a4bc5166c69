#include "run/run.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstring>
#include <set>

#include "analysis/structure.h"
#include "base/error.h"
#include "base/philox.h"
#include "device/limits.h"
#include "device/parallel.h"
#include "kernels/backend.h"
#include "kernels/cuda/cublaslt/product_table.h"
#include "kernels/quantize.h"
#include "run/initial_values.h"
#include "scheme/elements.h"

namespace adjoint {

// Seconds of every call of one step, summed over its executions: by the host's clock, or by marks
// on the GPU's stream.
class CallTimer {
 public:
  CallTimer(size_t calls, size_t executions, GpuStream* stream) : sums_(calls), stream_(stream) {
    if (stream) clock_.emplace(executions + 1);
    start();
  }
  void after(int at) {
    if (stream_) {
      clock_->mark(ran_.size() + 1, *stream_);
      ran_.push_back(at);
      return;
    }
    const auto now = std::chrono::steady_clock::now();
    sums_[at] += std::chrono::duration<double>(now - last_).count();
    last_ = now;
  }
  std::vector<double> sums() {
    for (size_t i = 0; i < ran_.size(); ++i) sums_[ran_[i]] += clock_->seconds(i, i + 1);
    return sums_;
  }

 private:
  void start() {
    if (stream_) clock_->mark(0, *stream_);
    last_ = std::chrono::steady_clock::now();
  }

  std::vector<double> sums_;
  GpuStream* stream_;
  std::optional<GpuClock> clock_;
  std::vector<int> ran_;
  std::chrono::steady_clock::time_point last_;
};

Run::Run(Scheme scheme, Plan plan, RunOptions options)
    : scheme_(std::move(scheme)), plan_(std::move(plan)), options_(std::move(options)) {
  if (on_gpu()) stream_ = std::make_shared<GpuStream>();
  // Tiers together: what the first was given is not yet touched when the next one asks.
  if (!on_gpu()) check_memory(plan_.arena_of(Tier::kDevice).size + plan_.host.size, "this");
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
  }
}

void Run::reset() {
  fill_arena(std::byte{0});
  set_controls();
}

void Run::fill_arena(std::byte pattern) {
  filled_with_ = pattern;
  touched_ = {};
  for (int t = 0; t < kNumTiers; ++t) {
    const Bytes size = plan_.arena_of(static_cast<Tier>(t)).size;
    if (on_gpu()) {
      if (size.count > 0) stream_->fill(base_[t], pattern, size);
      continue;
    }
    parallel_for(size.count, 1 << 20, [&](int64_t begin, int64_t end, int) {
      std::memset(base_[t] + begin, static_cast<int>(pattern), end - begin);
    });
  }
  synchronize();
}

void Run::set_poison(std::optional<std::byte> with) { poison_ = with; }

void Run::prepare() {
  if (options_.poison) poison_ = std::byte{0xff};  // a NaN in every floating dtype
  CHECK(on_gpu() || num_threads() <= plan_.threads,
        "workspaces are planned for every thread that runs");
  if (on_gpu()) lanes_ = std::make_unique<GpuLanes>(make_lanes(scheme_, plan_), stream_);
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
    for (const Value v : m.inputs) at.in.push_back(data(v));
    for (const Value v : m.outputs) at.out.push_back(data(v));
    if (planned.workspace >= 0) {
      at.workspace = this->at(plan_.storages[planned.workspace]);
    }
    launches_.push_back(options_.reference ? prepare_reference(k, at) : ::adjoint::prepare(k, at));
  }
  options_.told = nullptr;  // whoever listened may be gone later
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

// What the next iteration reads is freed by the last one.
void Run::bury(int at, bool for_good) {
  for (const int i : dies_after_[at]) {
    if (crosses_[i] && !for_good) continue;
    const Storage& s = plan_.storages[i];
    if (on_gpu()) {
      stream_->fill(this->at(s), *poison_, s.size);
      continue;
    }
    note_touched(s);
    std::memset(this->at(s), static_cast<int>(*poison_), s.size.count);
  }
}

void Run::note_touched(const Storage& s) noexcept {
  int64_t& highest = touched_[static_cast<size_t>(s.tier)];
  const bool workspace = s.objects.empty();
  const std::byte* bytes = this->at(s);
  // From the top down to what is known; of a workspace any byte will do.
  const int64_t least = workspace ? 0 : std::max<int64_t>(0, highest - s.offset.count);
  if (s.offset.count + s.size.count <= highest) return;
  for (int64_t end = s.size.count; end > least; --end) {
    if (bytes[end - 1] == filled_with_) continue;
    highest = s.offset.count + (workspace ? s.size.count : end);
    return;
  }
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
    if (launches_[at]) {
      if (lanes_) lanes_->before(at);
      launches_[at]();
      if (lanes_) lanes_->after(at);
    }
    if (poison_) bury(at, for_good);
    if (timer_) timer_->after(at);
    if (!after_call) continue;
    synchronize();
    after_call(at);
  }
  if (lanes_) lanes_->close();
}

bool Run::launches_recordings() const {
  return on_gpu() && warm_ && !poison_ && !timer_ && !after_call;
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

void Run::synchronize() const {
  if (stream_) stream_->synchronize();
}

std::byte* Run::at(const Storage& storage) const {
  return arena(storage.tier) + storage.offset.count;
}

void* Run::data(Value v) const {
  const Place& place = plan_.places[v];
  return at(plan_.storages[place.storage]) + place.offset.count;
}

Bytes Run::extent(Value v) const {
  const Type& type = scheme_[v].type;
  int64_t furthest = 0;
  for (int a = 0; a < type.rank(); ++a) furthest += (type.dim(a) - 1) * plan_.places[v].strides[a];
  return (furthest + 1) * size_of(type.dtype);
}

void Run::read(Value v, void* to) const {
  const Bytes size = scheme_[v].type.bytes();
  if (!on_gpu()) {
    const auto* from = static_cast<const std::byte*>(data(v));
    parallel_for(size.count, 1 << 20, [&](int64_t begin, int64_t end, int) {
      std::memcpy(static_cast<std::byte*>(to) + begin, from + begin, end - begin);
    });
    return;
  }
  stream_->copy(to, data(v), size);
  synchronize();
}

void Run::write(Value v, const void* from) {
  const Bytes size = scheme_[v].type.bytes();
  if (!on_gpu()) {
    std::memcpy(data(v), from, size.count);
  } else if (is_state(scheme_[v].role) && scheme_[v].role != Role::kControl) {
    stream_->copy(data(v), from, size);
    synchronize();
  } else {
    send(v, from, size);
  }
}

// What every step is given goes by way of pinned memory, so that the host need not wait for the
// step before. Two places: one is filled while the other is on its way. It lands while that step
// still runs, and takes its place, a copy inside the GPU, when it is done.
void Run::send(Value v, const void* from, Bytes size) {
  const auto [found, fresh] = mailboxes_.try_emplace(v);
  Mailbox& box = found->second;
  if (fresh) {
    for (Buffer& place : box.places) place = Buffer(scheme_[v].type.bytes(), Memory::kPinned);
    box.clock = std::make_unique<GpuClock>(box.places.size() + 1);
  }
  const size_t gone = box.places.size();  // the mark at which a landing is free again
  const size_t i = box.next++ % box.places.size();
  box.clock->wait(i);
  std::memcpy(box.places[i].data(), from, size.count);
  const auto landing = plan_.landings.find(v);
  if (landing == plan_.landings.end()) {
    stream_->copy(data(v), box.places[i].data(), size);
    box.clock->mark(i, *stream_);
    return;
  }
  if (!arrivals_) arrivals_ = std::make_unique<GpuStream>();
  std::byte* landed = at(plan_.storages[landing->second]);
  arrivals_->wait_for(*box.clock, gone);
  arrivals_->copy(landed, box.places[i].data(), size);
  box.clock->mark(i, *arrivals_);
  stream_->wait_for(*box.clock, i);
  stream_->copy(data(v), landed, size);
  box.clock->mark(gone, *stream_);
}

void Run::clear(Value v) {
  const Bytes size = scheme_[v].type.bytes();
  if (on_gpu()) {
    stream_->fill(data(v), std::byte{0}, size);
  } else {
    std::memset(data(v), 0, size.count);
  }
}

double Run::number(Value v) const {
  std::byte copy[8];
  const Dtype dtype = scheme_[v].type.dtype;
  if (!on_gpu()) return load_element(data(v), dtype, 0);
  stream_->copy(copy, data(v), size_of(dtype));
  synchronize();
  return load_element(copy, dtype, 0);
}

void Run::set_number(Value v, double number) {
  std::byte copy[8];
  const Dtype dtype = scheme_[v].type.dtype;
  store_element(on_gpu() ? copy : data(v), dtype, 0, number);
  if (on_gpu()) send(v, copy, size_of(dtype));
}

namespace {
// Calls f(k, offset) for every element, in logical order.
template <class F>
void for_each_element(const Type& type, const Strides& strides, const F& f) {
  const int64_t row = type.rank() ? type.dim(-1) : 1, step = type.rank() ? strides.back() : 0;
  const int64_t rows = type.num_elements() / std::max<int64_t>(row, 1);
  for (int64_t r = 0; r < rows; ++r) {
    int64_t rest = r, offset = 0;
    for (int a = type.rank() - 1; a-- > 0;) {
      offset += rest % type.dim(a) * strides[a];
      rest /= type.dim(a);
    }
    for (int64_t c = 0; c < row; ++c) f(r * row + c, offset + c * step);
  }
}
}  // namespace

std::vector<double> Run::values(Value v) const {
  const Type& type = scheme_[v].type;
  std::vector<std::byte> copy(on_gpu() ? extent(v).count : 0);
  const void* from = on_gpu() ? copy.data() : data(v);
  if (on_gpu()) stream_->copy(copy.data(), data(v), extent(v)), synchronize();
  std::vector<double> values(type.num_elements());
  const Strides& strides = plan_.places[v].strides;
  if (type.dtype == Dtype::kF32 || type.dtype == Dtype::kF64) {  // mostly, and of many elements
    with_float_type(type.dtype, [&]<class T>() {
      for_each_element(type, strides, [&](int64_t k, int64_t offset) {
        values[k] = static_cast<const T*>(from)[offset];
      });
    });
    return values;
  }
  for_each_element(type, strides, [&](int64_t k, int64_t offset) {
    values[k] = load_element(from, type.dtype, offset);
  });
  return values;
}

void Run::set_values(Value v, const std::vector<double>& values) {
  const Type& type = scheme_[v].type;
  std::vector<std::byte> copy(on_gpu() ? extent(v).count : 0);
  void* to = on_gpu() ? copy.data() : data(v);
  // What lies between its elements is others'.
  if (on_gpu()) stream_->copy(copy.data(), data(v), extent(v)), synchronize();
  const Strides& strides = plan_.places[v].strides;
  if (type.dtype == Dtype::kF32 || type.dtype == Dtype::kF64) {
    with_float_type(type.dtype, [&]<class T>() {
      for_each_element(type, strides, [&](int64_t k, int64_t offset) {
        static_cast<T*>(to)[offset] = static_cast<T>(values[k]);
      });
    });
  } else {
    for_each_element(type, strides, [&](int64_t k, int64_t offset) {
      store_element(to, type.dtype, offset, values[k]);
    });
  }
  if (on_gpu()) stream_->copy(data(v), copy.data(), extent(v)), synchronize();
}

Bytes Run::touched(std::byte pattern, Tier tier) const {
  int64_t end = plan_.arena_of(tier).size.count;
  const int64_t known = touched_[static_cast<size_t>(tier)];
  if (!on_gpu()) {
    while (end > known && arena(tier)[end - 1] == pattern) --end;
    return {end};
  }
  std::vector<std::byte> copy(std::min<int64_t>(end, 16 << 20));
  while (end > 0) {
    const int64_t begin = std::max<int64_t>(0, end - static_cast<int64_t>(copy.size()));
    stream_->copy(copy.data(), arena(tier) + begin, {end - begin});
    synchronize();
    while (end > begin && copy[end - 1 - begin] == pattern) --end;
    if (end > begin) break;
  }
  return {end};
}

namespace {

// A parameter that is held as codes: what it stands for, and how.
struct Encoded {
  Value codes, scales;
  Source source;  // of the matrix
  Type type;
  CodeFormat format;
};

std::vector<Encoded> encoded_parameters(const Scheme& scheme) {
  std::vector<Encoded> all;
  std::set<Value> seen;
  const std::vector<int> made_by = producers(scheme);
  for (const Morphism& m : scheme.morphisms) {
    if (!op_named(m.op).decodes) continue;
    // Codes that live in the host's tier are fetched for each reader; what is stored is the input.
    const Value codes = before_moves(scheme, made_by, m.inputs[0]);
    const Value scales_in = before_moves(scheme, made_by, m.inputs[1]);
    if (!seen.insert(codes).second) continue;
    CHECK(made_by[codes] < 0 && made_by[scales_in] < 0, "codes are a parameter of the step");
    Encoded e{codes, scales_in, scheme[codes].source, scheme[m.outputs[0]].type, {}};
    // The facet that the realization added stands last: W:codes, W:lora.codes.
    std::string& facet = e.source.facet;
    const size_t dot = facet.rfind('.');
    facet.resize(dot == std::string::npos ? 0 : dot);
    const auto format = std::get<std::string>(m.attrs.at("format"));
    if (format == "nf4") e.format.kind = CodeFormat::Kind::kNF4;
    const Type& scales = scheme[e.scales].type;
    if (scales.rank() + 1 == e.type.rank()) e.format.per = CodeFormat::Per::kChannel;
    if (scales.rank() == e.type.rank()) {
      e.format.per = CodeFormat::Per::kGroup;
      e.format.group = e.type.dim(-1) / scales.dim(-1);
    }
    all.push_back(std::move(e));
  }
  return all;
}

void write_codes(Run& run, const Encoded& e, const float* matrix) {
  std::vector<std::byte> codes(run.scheme()[e.codes].type.bytes().count);
  std::vector<float> scales(run.scheme()[e.scales].type.num_physical());
  quantize(matrix, e.type, e.format, codes.data(), scales.data());
  run.write(e.codes, codes.data());
  // A reference has them in float64.
  run.set_values(e.scales, std::vector<double>(scales.begin(), scales.end()));
}

}  // namespace

void initialize(Run& run, uint64_t seed, DrawnNumbers* drawn) {
  const auto values_of = [&](const Source& source, const Init& init, int64_t count) {
    return InitialValues(init, {random_key(seed, to_string(source) + ":init"), 0}, count, drawn);
  };
  std::set<Value> written;
  for (const Encoded& e : encoded_parameters(run.scheme())) {
    written.insert({e.codes, e.scales});
    const auto& init = run.scheme()[e.codes].init;
    if (!init) continue;
    const InitialValues values = values_of(e.source, *init, e.type.num_elements());
    std::vector<float> matrix(e.type.num_elements());
    parallel_for(e.type.num_elements(), 4096, [&](int64_t begin, int64_t end, int) {
      values.give(begin, end,
                  [&](int64_t i, double value) { matrix[i] = static_cast<float>(value); });
    });
    write_codes(run, e, matrix.data());
  }
  for (const Value v : run.scheme().inputs) {
    const Object& object = run.scheme()[v];
    if (!object.init || written.count(v)) continue;
    const Type& type = object.type;
    if (object.init->kind == Init::Kind::kZeros) {
      run.clear(v);
      continue;
    }
    const InitialValues values = values_of(object.source, *object.init, type.num_elements());
    const int64_t row = type.rank() ? type.dim(-1) : 1;
    const int64_t physical = type.rank() ? type.axes.back().physical() : 1;
    std::vector<std::byte> data(type.bytes().count);
    // Indices count logical elements: padding changes no value. Of inputs only the last axis is
    // ever padded.
    parallel_for(type.num_elements(), 4096, [&](int64_t begin, int64_t end, int) {
      values.give(begin, end, [&](int64_t i, double value) {
        const int64_t place = row == physical ? i : i / row * physical + i % row;
        store_element(data.data(), type.dtype, place, value);
      });
    });
    run.write(v, data.data());
  }
}

void write_parameter(Run& run, const Source& source, std::span<const float> values) {
  const auto check_count = [&](const Type& type) {
    if (type.num_elements() == static_cast<int64_t>(values.size())) return;
    fail("parameter '", to_string(source), "' has ", type.num_elements(), " elements, found ",
         values.size());
  };
  for (const Encoded& e : encoded_parameters(run.scheme())) {
    if (e.source != source) continue;
    check_count(e.type);
    write_codes(run, e, values.data());
    return;
  }
  for (const Value v : run.scheme().inputs) {
    const Object& object = run.scheme()[v];
    if (object.role != Role::kParameter || object.source != source) continue;
    const Type& type = object.type;
    check_count(type);
    const int64_t row = type.rank() ? type.dim(-1) : 1;
    const int64_t physical = type.rank() ? type.axes.back().physical() : 1;
    std::vector<std::byte> data(type.bytes().count);
    std::atomic<bool> fits = true;
    parallel_for(type.num_elements(), 4096, [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t place = i / row * physical + i % row;
        store_element(data.data(), type.dtype, place, values[i]);
        const bool finite = std::isfinite(load_element(data.data(), type.dtype, place));
        if (!finite && std::isfinite(values[i])) fits = false;
      }
    });
    if (!fits) {
      fail("parameter '", to_string(source), "' has values that are too large for ",
           name(type.dtype), ", in which the stack holds it");
    }
    run.write(v, data.data());
    return;
  }
  fail("there is no parameter '", to_string(source), "'");
}

}  // namespace adjoint
