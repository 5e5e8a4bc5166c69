#include "cost/collective.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "base/error.h"

namespace adjoint {

namespace {

constexpr int kUnknowns = 3;  // latency, seconds per byte, seconds per term
using FabricRow = std::array<double, kUnknowns>;

// Solves the normal equations of the unknowns that are in use; the others are 0.
FabricRow least_squares(const std::vector<FabricRow>& rows,
                        const std::array<bool, kUnknowns>& used) {
  double a[kUnknowns][kUnknowns + 1] = {};
  for (const FabricRow& row :
       rows) {  // every right side is 1: rows are divided by what was measured
    for (int i = 0; i < kUnknowns; ++i) {
      for (int j = 0; j < kUnknowns; ++j) a[i][j] += row[i] * row[j];
      a[i][kUnknowns] += row[i];
    }
  }
  for (int i = 0; i < kUnknowns; ++i) {
    if (used[i]) continue;
    for (int j = 0; j <= kUnknowns; ++j) a[i][j] = i == j ? 1 : 0;
    for (int j = 0; j < kUnknowns; ++j) a[j][i] = i == j ? 1 : 0;
  }
  for (int i = 0; i < kUnknowns; ++i) {
    int pivot = i;
    for (int j = i + 1; j < kUnknowns; ++j) {
      if (std::abs(a[j][i]) > std::abs(a[pivot][i])) pivot = j;
    }
    if (a[pivot][i] == 0) continue;  // nothing was measured that depends on it
    std::swap(a[i], a[pivot]);
    for (int j = 0; j < kUnknowns; ++j) {
      if (j == i) continue;
      const double times = a[j][i] / a[i][i];
      for (int k = i; k <= kUnknowns; ++k) a[j][k] -= times * a[i][k];
    }
  }
  FabricRow solution = {};
  for (int i = 0; i < kUnknowns; ++i) {
    if (used[i] && a[i][i] != 0) solution[i] = a[i][kUnknowns] / a[i][i];
  }
  return solution;
}

}  // namespace

CollectiveCost cost_of_collective(Collective collective, Bytes whole, Dtype dtype, int ranks,
                                  const Fabric& fabric) {
  CollectiveCost cost;
  if (ranks == 1) return cost;
  cost.algorithm = cheapest(collective, ranks, whole.count, fabric);
  cost.seconds = seconds(price_of(collective, cost.algorithm, ranks), fabric, whole.count);
  for (int rank = 0; rank < ranks; ++rank) {
    const Route route = make_route({.collective = collective,
                                    .algorithm = cost.algorithm,
                                    .rank = rank,
                                    .ranks = ranks,
                                    .whole = whole.count,
                                    .element = size_of(dtype).count});
    cost.sent = std::max(cost.sent, Bytes{sent_bytes(route)});
  }
  return cost;
}

Fabric fitted_fabric(std::span<const MeasuredCollective> measured) {
  CHECK(!measured.empty(), "something was measured");
  std::vector<FabricRow> rows;
  for (const MeasuredCollective& each : measured) {
    if (each.seconds <= 0) continue;
    const RoutePrice price = price_of(each.collective, each.algorithm, each.ranks);
    const double bytes = static_cast<double>(each.whole.count);
    rows.push_back({price.messages / each.seconds, price.moved * bytes / each.seconds,
                    price.reduced * bytes / each.seconds});
  }
  // Nothing has a negative price: what would have is left out, and the rest is solved again.
  std::array<bool, kUnknowns> used = {true, true, true};
  while (true) {
    const FabricRow solution = least_squares(rows, used);
    const auto least = std::min_element(solution.begin(), solution.end());
    if (*least >= 0) {
      return {
          .latency = solution[0], .seconds_per_byte = solution[1], .seconds_per_term = solution[2]};
    }
    used[least - solution.begin()] = false;
  }
}

std::string print(const Fabric& fabric) {
  const auto rate = [](double seconds, const char* what) {
    return seconds > 0 ? fmt::format("{:.1f} GB/s {}", 1e-9 / seconds, what)
                       : fmt::format("bytes {} for nothing", what);
  };
  return fmt::format("{:.1f} us a message, {}, {}", fabric.latency * 1e6,
                     rate(fabric.seconds_per_byte, "sent"), rate(fabric.seconds_per_term, "added"));
}

}  // namespace adjoint
