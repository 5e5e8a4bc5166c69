#include "bench/hot_call.h"

#include <algorithm>
#include <cmath>

#include "base/philox.h"
#include "bench/repeat.h"
#include "device/parallel.h"
#include "kernels/backend.h"
#include "run/profile.h"
#include "run/random_steps.h"
#include "scheme/elements.h"

namespace adjoint {

namespace {

// The bytes from an object's first element to its last, with these strides.
Bytes extent(const Type& type, const Strides& strides) {
  int64_t last = 0;
  for (int a = 0; a < type.rank(); ++a) last += (type.axes[a].physical() - 1) * strides[a];
  return (last + 1) * size_of(type.dtype);
}

// Records many launches as one graph, so that the host's work per launch is not timed.
double seconds_on_gpu(const Launch& launch, GpuStream& stream) {
  constexpr int kRepetitions = 5, kMost = 1000;
  constexpr double kEnough = 0.01;  // seconds
  GpuClock clock(2);
  const auto timed = [&](const GpuStream::Recording& recording) {
    clock.mark(0, stream);
    stream.launch(recording);
    clock.mark(1, stream);
    clock.wait(1);
    return clock.seconds(0, 1);
  };
  const auto recorded = [&](int times) {
    stream.begin_recording();
    for (int i = 0; i < times; ++i) launch();
    return stream.end_recording();
  };
  launch();  // a first launch, at which libraries load their kernels
  stream.synchronize();
  const auto one = recorded(1);
  timed(*one);
  const double once = std::max(timed(*one), 1e-6);
  const int times = std::clamp(static_cast<int>(kEnough / once), 1, kMost);
  const auto many = recorded(times);
  std::vector<double> seconds;
  for (int i = 0; i < kRepetitions; ++i) seconds.push_back(timed(*many) / times);
  return median(seconds);
}

}  // namespace

HotCall::HotCall(const Scheme& scheme, const Plan& plan, const Morphism& m, GpuStream* stream)
    : call_(call_of(scheme, m)), kernel_(kernel_call(call_, scheme, m, plan)), stream_(stream) {
  if (stream_) at_.stream = stream_->handle();
  const uint32_t below = ids_below(scheme);
  for (const Value v : m.inputs) {
    at_.in.push_back(fill(make(plan, v, scheme[v].type), scheme[v].type, below));
  }
  for (const Value v : m.outputs) at_.out.push_back(make(plan, v, scheme[v].type).data());
  // A product that adds to a sum works in place. Nothing else does, because an op that is applied
  // repeatedly to its own result ends in numbers that no step sees.
  if (const OpDef& op = op_named(m.op); op.multiplies && has_addend(op, m.inputs.size())) {
    at_.in[op.addend] = at_.out[0];
  }
  buffers_.emplace_back(workspace_bytes(kernel_), stream_ ? Memory::kGpu : Memory::kHost);
  at_.workspace = buffers_.back().data();
}

double HotCall::seconds(const std::string& name) const {
  const Launch launch = prepare(kernel_, at_);
  if (!stream_) return median(time_work(name, launch, {}));
  finish_kernels();
  return seconds_on_gpu(launch, *stream_);
}

std::optional<double> HotCall::bare_seconds(const std::string& name) const {
  std::optional<double> best;
  if (stream_) return best;
  for (const BareLayout layout : {BareLayout::kPlain, BareLayout::kPacked}) {
    const auto bare = bare_product(kernel_, at_, layout);
    if (!bare) continue;
    const double seconds = median(time_work(name + ", bare", *bare, {}));
    best = best ? std::min(*best, seconds) : seconds;
  }
  return best;
}

const Buffer& HotCall::make(const Plan& plan, Value v, const Type& type) {
  const Bytes size = extent(type, plan.places[v].strides);
  if (stream_) {
    const bool host = plan.storages[plan.places[v].storage].tier == Tier::kHost;
    buffers_.emplace_back(size, host ? Memory::kPinned : Memory::kGpu);
    stream_->fill(buffers_.back().data(), std::byte{0}, size);
    return buffers_.back();
  }
  buffers_.emplace_back(size);
  std::byte* data = buffers_.back().data();
  parallel_for(size.count, 1 << 20, [&](int64_t begin, int64_t end, int) {
    std::fill(data + begin, data + end, std::byte{0});
  });
  return buffers_.back();
}

// Fills with positive numbers, token ids or a counter: a few thousand of them, repeated.
const std::byte* HotCall::fill(const Buffer& buffer, const Type& type, uint32_t below) {
  constexpr int64_t kPattern = 4096, kAtOnce = 256;  // numbers, and copies of them
  const Dtype dtype = type.dtype;
  const int64_t size = size_of(dtype).count, period = kPattern * size;
  const int64_t total = buffer.size().count / size * size;
  const RandomStream stream{random_key(1, "bench"), 0};
  std::vector<std::byte> piece(std::min(kAtOnce * period, std::max(total, period)));
  for (int64_t i = 0; i < kPattern; ++i) {
    const double number = is_float(dtype)        ? std::abs(stream.normal(i))
                          : dtype == Dtype::kI32 ? stream.bits(i) % below
                                                 : static_cast<double>(stream.bits(i) % 16);
    store_element(piece.data(), dtype, i, number);
  }
  const auto end = static_cast<int64_t>(piece.size());
  for (int64_t i = period; i < end; ++i) piece[i] = piece[i - period];
  for (int64_t begin = 0; begin < total; begin += end) {
    const Bytes some{std::min(end, total - begin)};
    if (stream_) {
      stream_->copy(buffer.data() + begin, piece.data(), some);
    } else {
      std::copy_n(piece.data(), some.count, buffer.data() + begin);
    }
  }
  if (stream_) stream_->synchronize();
  return buffer.data();
}

}  // namespace adjoint
