#include "run/machine.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <chrono>
#include <cstdlib>

#include "base/counts.h"
#include "base/error.h"
#include "base/philox.h"
#include "base/text.h"
#include "cost/sheet.h"
#include "device/buffer.h"
#include "device/gpu.h"
#include "device/parallel.h"
#include "run/run.h"
#include "scheme/elements.h"

namespace adjoint {

namespace {

using Clock = std::chrono::steady_clock;

// Products of this width reach the machine's peak, and fit into any machine's memory (48 MiB; on a
// GPU 384 MiB of bf16).
constexpr int64_t kWidth = 2048, kGpuWidth = 8192;
// Three arrays of this size are more than the caches of a large machine.
constexpr Bytes kStream{128 << 20}, kGpuStream{1 << 30};
constexpr double kPatience = 0.4;  // seconds for each of the two
constexpr int kLeast = 3;          // repetitions
constexpr double kReach =
    0.85;  // share of the peak that a step's products reach; measured on one machine

// The shortest time of several calls, because others may use the machine, too.
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

void write_random(Run& run, Value v) {
  const Type& type = run.scheme()[v].type;
  const RandomStream stream{random_key(1, "machine"), 0};
  std::vector<std::byte> data(type.bytes().count);
  parallel_for(type.num_elements(), 1 << 16, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      store_element(data.data(), type.dtype, i, 2 * stream.uniform(i) - 1);
    }
  });
  run.write(v, data.data());
}

double stream_rate() {
  const Buffer buffers[] = {Buffer(kStream), Buffer(kStream), Buffer(kStream)};
  auto* a = reinterpret_cast<float*>(buffers[0].data());
  auto* b = reinterpret_cast<float*>(buffers[1].data());
  auto* c = reinterpret_cast<float*>(buffers[2].data());
  const int64_t n = kStream.count / 4;
  // The threads that will use the memory touch it first.
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

// The rate of one call of a small scheme. Its operands are not zeros, with which a GPU would be
// faster.
template <class F>
double rate_of(const std::string& text, Target target, const F& work) {
  const Scheme scheme = parse_scheme(text);
  Run run(scheme, make_plan(scheme, {.threads = num_threads(), .target = target}),
          {.reference = false, .poison = false});
  for (const Value in : scheme.inputs) {
    if (target == Target::kCuda) write_random(run, in);
  }
  const double seconds = shortest_of([&] {
    run.step();
    run.synchronize();
  });
  return work(call_of(scheme, scheme.morphisms[0])) / seconds;
}

}  // namespace

double product_rate(Dtype dtype, Target target) {
  const std::string text = fmt::format(
      "scheme product:\n  input %0 x: {1}[b={0}, i={0}]\n  parameter %1 w: {1}[o={0}, i={0}]\n"
      "  %2 y: {1}[b={0}, o={0}] = linear(%0, %1) @y\n  return %2\n",
      target == Target::kCpu ? kWidth : kGpuWidth, name(dtype));
  return rate_of(text, target,
                 [](const OpCall& call) { return static_cast<double>(count_flops(call)); });
}

MachinePeak measure_machine(Target target) {
  if (target == Target::kCpu) {
    return {.flops = product_rate(Dtype::kF32),
            .bytes_per_second = stream_rate(),
            .threads = num_threads()};
  }
  const std::string add = fmt::format(
      "scheme add:\n  input %0 x: f32[n={0}]\n  input %1 y: f32[n={0}]\n"
      "  %2 z: f32[n={0}] = add(%0, %1) @z\n  return %2\n",
      kGpuStream.count / 4);
  const double bytes = rate_of(add, target, [](const OpCall& call) {
    return 3 * static_cast<double>(call.inputs[0].bytes().count);
  });
  return {.flops = product_rate(Dtype::kBF16, target), .bytes_per_second = bytes, .target = target};
}

std::vector<std::string> known_targets() { return {"cpu", "cuda"}; }

std::string_view meant_target(std::string_view word) {
  if (word == "gpu" || word == "nvidia") return "cuda";
  // The name of a GPU: h100.
  const std::string device = nearest(word, device_names());
  return device.empty() || device == "cpu" ? "" : "cuda";
}

Target target_named(std::string_view name) {
  if (name == "cpu") return Target::kCpu;
  if (name != "cuda") {
    const std::string meant(meant_target(name));
    fail("--device: wanted ", join(known_targets(), " or "), ", found '", name, "'",
         meant.empty() ? did_you_mean(name, known_targets()) : "; did you mean '" + meant + "'?");
  }
  open_gpu();
  return Target::kCuda;
}

namespace {

// "NVIDIA GeForce RTX 4090": nvidia, geforce, rtx, 4090.
std::vector<std::string> words_of(std::string_view name) {
  std::vector<std::string> words(1);
  for (const unsigned char c : name) {
    if (std::isalnum(c)) {
      words.back() += static_cast<char>(std::tolower(c));
    } else if (!words.back().empty()) {
      words.emplace_back();
    }
  }
  return words;
}

// Whether consecutive whole words of the GPU's name are this name: an L40S is not an L4.
bool has_name(const std::vector<std::string>& words, const std::string& name) {
  for (size_t first = 0; first < words.size(); ++first) {
    std::string joined;
    for (size_t i = first; i < words.size() && joined.size() < name.size(); ++i) joined += words[i];
    if (joined == name) return true;
  }
  return false;
}

}  // namespace

std::string sheet_for_gpu(std::string_view gpu, Bytes memory) {
  const std::vector<std::string> words = words_of(gpu);
  std::string best = "h200";
  int64_t furthest = INT64_MAX;
  for (const std::string& name : device_names()) {
    if (!has_name(words, words_of(name).front())) continue;
    const int64_t apart = std::abs((find_device(name).memory - memory).count);
    if (apart >= furthest) continue;
    best = name;
    furthest = apart;
  }
  return best;
}

DeviceSheet sheet_here(Target target) {
  if (target == Target::kCpu) return find_device("cpu");
  return find_device(sheet_for_gpu(open_gpu().name, open_gpu().memory));
}

DeviceSheet measured_sheet(const MachinePeak& peak) {
  DeviceSheet sheet = sheet_here(peak.target);
  if (peak.target == Target::kCuda) return sheet;  // its rates were measured in steps
  // Other dtypes keep their ratio to float32.
  const double cores = sheet.per_core ? peak.threads : 1;
  const double faster = peak.flops / cores / sheet.products.at("f32");
  // A step's products are smaller than the timed one, and run with other memory traffic.
  for (auto& [dtype, rate] : sheet.products) rate *= faster * kReach;
  sheet.arithmetic *= faster;
  sheet.bandwidth = peak.bytes_per_second / cores;
  sheet.most_bandwidth = peak.bytes_per_second;
  sheet.name = "this machine";
  sheet.summary = "measured with " + counted(peak.threads, "thread");
  return sheet;
}

Costs costs_on(const DeviceSheet& sheet, int threads, const TunedProducts& table) {
  Costs costs{.sheet = sheet, .threads = threads};
  if (sheet.per_core) return costs;
  for (const std::string& machine : table.machines()) {
    const auto [gpu, memory] = machine_named(machine);
    const bool has_sheet = has_name(words_of(gpu), words_of(sheet.name).front());
    if (has_sheet && sheet_for_gpu(gpu, memory) == sheet.name) costs.learn(table, machine);
  }
  return costs;
}

}  // namespace adjoint
