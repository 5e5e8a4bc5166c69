#include "report/memory_table.h"

#include <fmt/format.h>

#include <algorithm>

namespace adjoint {

std::string key_of(Category category) {
  std::string key(name(category));
  std::replace(key.begin(), key.end(), ' ', '_');
  return key;
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

nlohmann::json memory_json(const Plan& plan) { return memory_json(plan, plan); }

nlohmann::json memory_json(const Plan& on_device, const Plan& on_host) {
  nlohmann::json out = {{"peak_bytes", on_device.arena.count},
                        {"live_bytes", on_device.live_peak.count},
                        {"categories", categories_json(on_device, Tier::kDevice)},
                        {"host_peak_bytes", on_host.host.size.count}};
  if (on_host.host.size.count > 0) {
    out["host_live_bytes"] = on_host.host.live_peak.count;
    out["host_categories"] = categories_json(on_host, Tier::kHost);
  }
  return out;
}

}  // namespace adjoint
