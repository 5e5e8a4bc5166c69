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
  return {.touched = run.touched(kPattern),
          .host_touched = run.touched(kPattern, Tier::kHost),
          .step_seconds = seconds[seconds.size() / 2]};
}

namespace {

std::string tier_table(const Plan& plan, Tier tier, std::string_view title,
                       const std::optional<Bytes>& touched) {
  const Bytes arena = plan.arena_of(tier).size;
  std::string out = fmt::format("{:<18} {:>12} {:>20}\n", title, "", "bytes");
  const auto line = [&](std::string_view what, Bytes bytes) {
    out += fmt::format("{:<18} {:>12} {:>20}\n", what, human(bytes), with_commas(bytes.count));
  };
  Bytes live{0};
  const std::vector<Bytes> bytes = plan.at_peak(tier);
  for (int c = 0; c < kNumCategories; ++c) {
    line(name(static_cast<Category>(c)), bytes[c]);
    live += bytes[c];
  }
  line("gaps", arena - live);
  line("peak (predicted)", arena);
  if (touched) line("peak (measured)", *touched);
  return out;
}

nlohmann::json categories_json(const Plan& plan, Tier tier) {
  nlohmann::json categories;
  Bytes live{0};
  const std::vector<Bytes> bytes = plan.at_peak(tier);
  for (int c = 0; c < kNumCategories; ++c) {
    categories[key_of(static_cast<Category>(c))] = bytes[c].count;
    live += bytes[c];
  }
  categories["gaps"] = (plan.arena_of(tier).size - live).count;
  return categories;
}

}  // namespace

std::string memory_table(const Plan& plan, const std::optional<Measured>& measured) {
  std::optional<Bytes> touched, host_touched;
  if (measured) touched = measured->touched, host_touched = measured->host_touched;
  std::string out = tier_table(plan, Tier::kDevice, "memory at the peak", touched);
  if (plan.host.size.count > 0) {
    out += "\n" + tier_table(plan, Tier::kHost, "host memory", host_touched);
  }
  return out;
}

nlohmann::json memory_json(const Plan& plan) {
  nlohmann::json out = {{"peak_bytes", plan.arena.count},
                        {"live_bytes", plan.live_peak.count},
                        {"categories", categories_json(plan, Tier::kDevice)},
                        {"host_peak_bytes", plan.host.size.count}};
  if (plan.host.size.count > 0) {
    out["host_live_bytes"] = plan.host.live_peak.count;
    out["host_categories"] = categories_json(plan, Tier::kHost);
  }
  return out;
}

}  // namespace adjoint
