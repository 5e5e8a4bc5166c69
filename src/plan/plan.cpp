// A plan is made in four steps: what objects share, an order, storages, and offsets. Each tier is
// packed by itself.
#include "plan/plan.h"

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "plan/order.h"
#include "plan/overlap.h"
#include "plan/pack.h"
#include "plan/storages.h"

namespace adjoint {

std::string_view name(Category category) {
  constexpr std::string_view names[] = {"parameters",  "gradients", "optimizer state",
                                        "activations", "workspace", "other"};
  return names[static_cast<size_t>(category)];
}

Category category_of(Role role) {
  switch (role) {
    case Role::kParameter:
      return Category::kParameters;
    case Role::kGradient:
      return Category::kGradients;
    case Role::kState:
      return Category::kOptimizer;
    case Role::kActivation:
      return Category::kActivations;
    case Role::kInput:
    case Role::kControl:
    case Role::kMetric:
      return Category::kOther;
  }
  return Category::kOther;
}

bool is_state(Role role) {
  return role == Role::kParameter || role == Role::kState || role == Role::kControl;
}

Arena Plan::arena_of(Tier tier) const {
  if (tier == Tier::kHost) return host;
  return {.size = arena, .live_peak = live_peak, .peak_at = peak_at, .state_end = state_end};
}

void Plan::set_arena(Tier tier, const Arena& a) {
  if (tier == Tier::kHost) {
    host = a;
    return;
  }
  arena = a.size;
  live_peak = a.live_peak;
  peak_at = a.peak_at;
  state_end = a.state_end;
}

void Plan::make_room_for(const Plan& guest) {
  arena = std::max(arena, guest.arena);
  host.size = std::max(host.size, guest.host.size);
}

std::vector<Alive> Plan::alive_at(int place, Tier tier) const {
  std::vector<Alive> alive;
  for (size_t i = 0; i < storages.size(); ++i) {
    const Storage& s = storages[i];
    if (s.tier != tier || s.first > place || s.last < place) continue;
    for (const Tenant& t : s.tenants) {
      if (t.from <= place && place <= t.to) alive.push_back({static_cast<int>(i), t});
    }
  }
  return alive;
}

Value Plan::owner_at(int storage, int place, Bytes offset) const {
  for (const Tenant& t : storages[storage].tenants) {
    const bool there = t.offset <= offset && offset < t.offset + t.size;
    if (there && t.from <= place && place <= t.to) return t.object;
  }
  return -1;
}

std::vector<Bytes> Plan::at_peak(Tier tier) const {
  std::vector<Bytes> bytes(kNumCategories);
  for (const Alive& a : alive_at(arena_of(tier).peak_at, tier)) {
    bytes[static_cast<size_t>(a.tenant.category)] += a.tenant.size;
  }
  return bytes;
}

Plan make_plan(const Scheme& scheme, const PlanOptions& options) {
  if (!scheme.schedule.empty() && scheme.of_all_stages.empty()) {
    fail(
        "pipeline: each stage has a plan of its own; train, plan, profile, verify and bench ranks "
        "make them, and this command does not");
  }
  const Sharing sharing = find_sharing(scheme, options);
  // The device's bytes decide, and the host's only between equals.
  const auto peaks = [](const Plan& p) { return std::pair(p.live_peak, p.host.live_peak); };
  const bool ranks = speaks_to_ranks(scheme);
  const auto best_of = [&](const auto& ordered) {
    std::vector<std::vector<int>> orders = {freeing_order(scheme), written_order(scheme)};
    // Between equals the first one: sums over ranks are hidden best behind passes that run as
    // written.
    if (ranks && scheme.schedule.empty()) orders.insert(orders.begin(), settling_order(scheme));
    std::optional<Plan> best;
    for (std::vector<int>& order : orders) {
      Plan plan = lay_in_storages(scheme, options, sharing, ordered(std::move(order)));
      if (!best || peaks(plan) < peaks(*best)) best = std::move(plan);
    }
    return *std::move(best);
  };
  Plan plan = best_of([](std::vector<int> order) { return order; });
  // Where there is a schedule, it says where everything stands.
  if (options.overlap && scheme.schedule.empty() && ranks) {
    Plan under_way =
        best_of([&](std::vector<int> order) { return overlapped(scheme, std::move(order)); });
    // What is under way is there longer. That is worth a tenth of the peak and no more, unless the
    // stack keeps parameters in pieces: fetching those ahead is half of what it is for.
    const int64_t peak = plan.live_peak.count;
    const int64_t most = peak + (fetches_state(scheme) ? peak / 2 : peak / 10);
    if (under_way.live_peak.count <= most) plan = std::move(under_way);
  }
  static_cast<KernelTerms&>(plan) = options.terms();
  plan.one_memory = options.target == Target::kCpu || !options.host_apart;
  for (const Tier tier : {Tier::kDevice, Tier::kHost}) {
    Arena arena = plan.arena_of(tier);
    pack(plan.storages, arena.state_end, arena.live_peak, tier);
    for (const Storage& s : plan.storages) {
      if (s.tier == tier) arena.size = std::max(arena.size, s.offset + s.size);
    }
    plan.set_arena(tier, arena);
  }
  if (options.verify) verify_plan(scheme, plan);
  return plan;
}

KernelCall kernel_call(const OpCall& call, const Scheme& scheme, const Morphism& morphism,
                       const Plan& plan) {
  return kernel_call(call, scheme, morphism, plan, [&](Value v) { return plan.places[v].strides; });
}

PlanOptions beside(const Scheme& scheme, const Plan& plan, int threads) {
  PlanOptions options{.threads = threads,
                      .target = plan.target,
                      .deterministic = plan.deterministic,
                      .host_apart = !plan.one_memory,
                      .workspace_cap = plan.workspace_cap,
                      .fixed = {},
                      .floor = {plan.state_end, plan.host.state_end},
                      .landings = false};
  for (const Value in : scheme.inputs) {
    if (!is_state(scheme[in].role)) continue;
    options.fixed[to_string(scheme[in].source)] = {plan.tier_of(in), plan.offset_of(in)};
  }
  return options;
}

}  // namespace adjoint
