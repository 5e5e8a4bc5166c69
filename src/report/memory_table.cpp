#include "report/memory_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <random>

namespace adjoint {

namespace {

constexpr std::byte kPattern{0xa5};
constexpr int kSteps = 5;

std::string key_of(Category category) {
  std::string key(name(category));
  std::replace(key.begin(), key.end(), ' ', '_');
  return key;
}

}  // namespace

Measured measure_step(const Scheme& step, const Plan& plan) {
  // No poison: it writes where the step does not.
  Run run(step, plan, {.reference = false, .poison = false});
  run.fill_arena(kPattern);
  initialize(run, 1);
  std::mt19937 random(1);
  for (const Value in : step.inputs) {
    const Object& object = step[in];
    if (object.role == Role::kControl && !object.init) {
      for (int64_t i = 0; i < object.type.bytes().count; ++i) {
        static_cast<std::byte*>(run.data(in))[i] = std::byte{0};
      }
    }
  }
  std::vector<double> seconds;
  for (int i = 0; i < kSteps; ++i) {
    for (const Value in : step.inputs) {
      const Object& object = step[in];
      if (object.role != Role::kInput || object.type.dtype != Dtype::kI32) continue;
      // Any id is inside every table that a model has: kernels clamp what is not.
      auto* ids = static_cast<int32_t*>(run.data(in));
      for (int64_t k = 0; k < object.type.num_elements(); ++k) {
        ids[k] = static_cast<int32_t>(random() % 64);
      }
    }
    const auto before = std::chrono::steady_clock::now();
    run.step();
    const auto after = std::chrono::steady_clock::now();
    seconds.push_back(std::chrono::duration<double>(after - before).count());
  }
  std::sort(seconds.begin(), seconds.end());
  return {run.touched(kPattern), seconds[seconds.size() / 2]};
}

std::string memory_table(const Plan& plan, const std::optional<Measured>& measured) {
  std::string out = fmt::format("{:<18} {:>12} {:>20}\n", "memory at the peak", "", "bytes");
  Bytes live{0};
  const std::vector<Bytes> bytes = plan.at_peak();
  for (int c = 0; c < kNumCategories; ++c) {
    out += fmt::format("{:<18} {:>12} {:>20}\n", name(static_cast<Category>(c)), human(bytes[c]),
                       with_commas(bytes[c].count));
    live += bytes[c];
  }
  const Bytes gaps = plan.arena - live;
  out += fmt::format("{:<18} {:>12} {:>20}\n", "gaps", human(gaps), with_commas(gaps.count));
  out += fmt::format("{:<18} {:>12} {:>20}\n", "peak (predicted)", human(plan.arena),
                     with_commas(plan.arena.count));
  if (measured) {
    out += fmt::format("{:<18} {:>12} {:>20}\n", "peak (measured)", human(measured->touched),
                       with_commas(measured->touched.count));
  }
  return out;
}

nlohmann::json memory_json(const Plan& plan) {
  nlohmann::json categories;
  Bytes live{0};
  const std::vector<Bytes> bytes = plan.at_peak();
  for (int c = 0; c < kNumCategories; ++c) {
    categories[key_of(static_cast<Category>(c))] = bytes[c].count;
    live += bytes[c];
  }
  categories["gaps"] = (plan.arena - live).count;
  return {{"peak_bytes", plan.arena.count},
          {"live_bytes", plan.live_peak.count},
          {"categories", categories}};
}

}  // namespace adjoint
