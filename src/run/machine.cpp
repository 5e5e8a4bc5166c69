#include "run/machine.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "device/buffer.h"
#include "device/parallel.h"
#include "run/run.h"

namespace adjoint {

namespace {

using Clock = std::chrono::steady_clock;

// Products of this width reach the machine's best, and fit into any machine's memory (48 MiB).
constexpr int64_t kWidth = 2048;
// Three arrays of this size are more than the caches of a large machine.
constexpr Bytes kStream{128 << 20};
constexpr double kPatience = 0.4;  // seconds for each of the two
constexpr int kLeast = 3;          // repetitions
constexpr double kReach = 0.85;    // of the best product, over a step: seen on one machine

// The shortest of several calls: others may use the machine too.
template <class F>
double shortest_of(const F& call) {
  call();
  double best = 1e300, sum = 0;
  for (int i = 0; i < kLeast || sum < kPatience; ++i) {
    const auto before = Clock::now();
    call();
    const double seconds = std::chrono::duration<double>(Clock::now() - before).count();
    best = std::min(best, seconds);
    sum += seconds;
  }
  return best;
}

// McCalpin's triad.
ADJOINT_SIMD void triad(float* __restrict a, const float* __restrict b, const float* __restrict c,
                        int64_t n) {
  for (int64_t i = 0; i < n; ++i) a[i] = b[i] + 3 * c[i];
}

double stream_rate() {
  const Buffer buffers[] = {Buffer(kStream), Buffer(kStream), Buffer(kStream)};
  auto* a = reinterpret_cast<float*>(buffers[0].data());
  auto* b = reinterpret_cast<float*>(buffers[1].data());
  auto* c = reinterpret_cast<float*>(buffers[2].data());
  const int64_t n = kStream.count / 4;
  // Touched first by those who will use it.
  parallel_for(n, 1 << 16, [&](int64_t begin, int64_t end, int) {
    for (float* each : {a, b, c}) std::fill(each + begin, each + end, 1.0f);
  });
  const double seconds = shortest_of([&] {
    parallel_for(n, 1 << 16, [&](int64_t begin, int64_t end, int) {
      triad(a + begin, b + begin, c + begin, end - begin);
    });
  });
  return 3 * static_cast<double>(kStream.count) / seconds;
}

}  // namespace

double product_rate(Dtype dtype) {
  const std::string text = fmt::format(
      "scheme product:\n  input %0 x: {1}[b={0}, i={0}]\n  parameter %1 w: {1}[o={0}, i={0}]\n"
      "  %2 y: {1}[b={0}, o={0}] = linear(%0, %1) @y\n  return %2\n",
      kWidth, name(dtype));
  const Scheme product = parse_scheme(text);
  Run run(product, make_plan(product, {.threads = num_threads()}),
          {.reference = false, .poison = false});
  const auto flops = static_cast<double>(count_flops(call_of(product, product.morphisms[0])));
  return flops / shortest_of([&] { run.step(); });
}

MachinePeak measure_machine() {
  return {.flops = product_rate(Dtype::kF32),
          .bytes_per_second = stream_rate(),
          .threads = num_threads()};
}

DeviceSheet measured_sheet(const MachinePeak& peak) {
  DeviceSheet sheet = find_device("cpu");
  // Other dtypes keep their relation to float32.
  const double cores = sheet.per_core ? peak.threads : 1;
  const double faster = peak.flops / cores / sheet.products.at("f32");
  // A step's products are smaller than the one that was timed, and run beside other traffic.
  for (auto& [dtype, rate] : sheet.products) rate *= faster * kReach;
  sheet.arithmetic *= faster;
  sheet.bandwidth = peak.bytes_per_second / cores;
  sheet.most_bandwidth = peak.bytes_per_second;
  sheet.name = "this machine";
  sheet.summary = fmt::format("measured with {} threads", peak.threads);
  return sheet;
}

}  // namespace adjoint
