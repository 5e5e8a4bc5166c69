#include <algorithm>

#include "device/parallel.h"
#include "kernels/backend.h"
#include "kernels/body_readings.h"
#include "kernels/gang_calls.h"

namespace adjoint {

namespace {

Bytes registers_of(const KernelCall& k) {
  Bytes most{0};
  for_each_call(k, [&](int64_t, const KernelCall& call) {
    most = std::max(most, round_up(body_unit_registers(call), {64}));
  });
  return most;
}

// The workspace of calls that run one after another.
Bytes largest_workspace(const KernelCall& k) {
  Bytes most{0};
  for_each_call(
      k, [&](int64_t, const KernelCall& call) { most = std::max(most, workspace_bytes(call)); });
  return most;
}

Launch kernel(const KernelCall& k, const Pointers& at) {
  const GangMembers m = gang_members(k.call);
  if (is_wide(k) || is_gang_of_sums(k.call, m)) {  // in float64 a body runs as its reference
    const auto prepared = is_wide(k) ? prepare_reference : prepare;
    std::vector<Launch> launches;
    for_each_call(k, [&](int64_t i, const KernelCall& call) {
      launches.push_back(prepared(call, pointers_of(m, at, i)));
    });
    return one_after_another(std::move(launches));
  }
  struct Member {
    BodyUnits units;
    int64_t first;  // its first element among those of all calls
  };
  std::vector<Member> members;
  int64_t elements = 0;
  for_each_call(k, [&](int64_t i, const KernelCall& call) {
    members.push_back({prepare_body_units(call, pointers_of(m, at, i)), elements});
    elements += members.back().units.count * members.back().units.elements;
  });
  const int64_t registers = registers_of(k).count;
  auto* workspace = static_cast<std::byte*>(at.workspace);
  return [=] {
    parallel_for(elements, kWorthAThread, [&](int64_t begin, int64_t end, int thread) {
      for (const Member& member : members) {
        // A unit belongs to the thread whose range contains its first element.
        const int64_t each = member.units.elements;
        const auto unit = [&](int64_t element) {
          return std::clamp<int64_t>((element - member.first + each - 1) / each, 0,
                                     member.units.count);
        };
        const int64_t from = begin <= member.first ? 0 : unit(begin);
        const int64_t to = end <= member.first ? 0 : unit(end);
        if (from < to) member.units.run(from, to, workspace + thread * registers);
      }
    });
  };
}

Bytes cpu_workspace(const KernelCall& k) {
  if (is_wide(k)) return {0};
  if (is_gang_of_sums(k.call, gang_members(k.call))) return largest_workspace(k);
  return int64_t{k.threads} * registers_of(k);
}

}  // namespace

extern const Kernel cpu_gang = {
    .op = "gang",
    .prepare = kernel,
    .workspace = cpu_workspace,
};

}  // namespace adjoint
