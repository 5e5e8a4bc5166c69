#include "cost/collective.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <tuple>

#include "base/error.h"
#include "ops/collective.h"

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
                                  const Fabric& fabric, Bytes segment) {
  CollectiveCost cost;
  if (ranks == 1) return cost;
  cost.algorithm = algorithm_for(collective, ranks, whole.count);
  cost.seconds = seconds(price_of(collective, cost.algorithm, ranks), fabric, whole.count);
  for (int rank = 0; rank < ranks; ++rank) {
    const Route route = make_route({.collective = collective,
                                    .algorithm = cost.algorithm,
                                    .rank = rank,
                                    .ranks = ranks,
                                    .whole = whole.count,
                                    .element = size_of(dtype).count,
                                    .segment = segment.count});
    cost.sent = std::max(cost.sent, Bytes{sent_bytes(route)});
  }
  return cost;
}

std::optional<CollectiveCall> collective_call(const Scheme& scheme, const Morphism& m) {
  if (!op_named(m.op).collective) return std::nullopt;
  const OpCall call = call_of(scheme, m);
  std::vector<Type> results;
  for (const Value out : m.outputs) results.push_back(scheme[out].type);
  const Travelling travelling = that_travels(call, results);
  return CollectiveCall{.collective = collective_of(call),
                        .mesh_axis = call.text("mesh"),
                        .ranks = static_cast<int>(ranks_of(call)),
                        .dtype = call.inputs[0].dtype,
                        .whole = travelling.whole,
                        .segment = travelling.segment};
}

double seconds_of(const CollectiveCall& call, const Fabric& fabric) {
  if (call.ranks == 1) return 0;
  const Algorithm algorithm = algorithm_for(call.collective, call.ranks, call.whole.count);
  return seconds(price_of(call.collective, algorithm, call.ranks), fabric, call.whole.count);
}

std::vector<Sent> sent_in_step(const Scheme& scheme, const Fabric& fabric) {
  std::map<std::tuple<size_t, Collective, Dtype>, Sent> rows;
  // Blocks repeat their calls, and the routes of all ranks are long.
  std::map<std::tuple<Collective, Dtype, int, int64_t, int64_t>, CollectiveCost> costs;
  for (const Morphism& m : scheme.morphisms) {
    const auto call = collective_call(scheme, m);
    if (!call || call->ranks == 1) continue;
    const auto [cost, fresh] = costs.try_emplace(
        {call->collective, call->dtype, call->ranks, call->whole.count, call->segment.count},
        CollectiveCost{});
    if (fresh) {
      cost->second = cost_of_collective(call->collective, call->whole, call->dtype, call->ranks,
                                        fabric, call->segment);
    }
    const auto axis = std::find_if(scheme.mesh.begin(), scheme.mesh.end(),
                                   [&](const MeshAxis& a) { return a.name == call->mesh_axis; });
    CHECK(axis != scheme.mesh.end(), "a collective is along an axis of the mesh");
    Sent& row = rows[{axis - scheme.mesh.begin(), call->collective, call->dtype}];
    row.mesh_axis = call->mesh_axis, row.ranks = call->ranks;
    row.collective = call->collective, row.dtype = call->dtype;
    const int64_t times = m.section == Section::kBody ? scheme.parts : 1;
    row.calls += times;
    row.bytes += times * cost->second.sent;
    row.elements += times * (cost->second.sent.count / size_of(call->dtype).count);
    row.seconds += static_cast<double>(times) * cost->second.seconds;
  }
  std::vector<Sent> all;
  for (auto& [key, row] : rows) all.push_back(std::move(row));
  return all;
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
