#include "report/rank_table.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"
#include "scheme/shards.h"

namespace adjoint {

namespace {

int64_t elements_of_last_rank(const Object& object, const std::vector<MeshAxis>& mesh) {
  const Coordinates last = coordinates_of(num_ranks(mesh) - 1, mesh);
  int64_t count = 0;
  for (const ShardRun& run : shard_runs(object, mesh, last)) count += run.count;
  return count;
}

}  // namespace

std::string mesh_in_words(const std::vector<MeshAxis>& mesh) {
  std::vector<std::string> axes;
  for (const MeshAxis& axis : mesh) axes.push_back(fmt::format("{}={}", axis.name, axis.size));
  return fmt::format("{} ranks ({})", num_ranks(mesh), join(axes, " x "));
}

RankPadding padding_of(const Scheme& step) {
  RankPadding padding;
  for (const Value in : step.inputs) {
    const Object& object = step[in];
    if (object.role == Role::kInput && padding.samples == 0 && !object.type.axes.empty()) {
      padding.samples = padding.last_samples = object.type.dim(0);
    }
    if (!is_sharded(object)) continue;
    const int64_t room = object.type.num_elements();
    const int64_t held = elements_of_last_rank(object, step.mesh);
    if (object.role != Role::kInput) padding.state += (room - held) * size_of(object.type.dtype);
    for (const Placement& p : object.attributes.placement) {
      if (object.role != Role::kInput || p.spread != Spread::kSharded || p.axis != 0) continue;
      const int ranks = mesh_size(step.mesh, p.mesh_axis);
      padding.samples = shard_size(p.whole, ranks);
      padding.last_samples = std::max<int64_t>(0, p.whole - (ranks - 1) * padding.samples);
    }
  }
  return padding;
}

std::string rank_table(const Scheme& step, const Fabric& fabric) {
  if (step.mesh.empty()) return "";
  std::string out =
      fmt::format("{:<18} {:<16} {:<6} {:>7} {:>18} {:>20} {:>12}\n", "sent by each rank",
                  "collective", "dtype", "calls", "elements", "bytes", "predicted");
  const auto line = [&](const std::string& axis, std::string_view what, std::string_view dtype,
                        const Sent& row, const std::string& elements) {
    out += fmt::format("{:<18} {:<16} {:<6} {:>7} {:>18} {:>20} {:>9.2f} ms\n", axis, what, dtype,
                       row.calls, elements, with_commas(row.bytes.count), 1e3 * row.seconds);
  };
  Sent all;
  std::string before;
  for (const Sent& row : sent_in_step(step, fabric)) {
    const std::string axis = fmt::format("over {} ({})", row.mesh_axis, row.ranks);
    line(axis == before ? "" : axis, name(row.collective), name(row.dtype), row,
         with_commas(row.elements));
    before = axis;
    all.calls += row.calls, all.bytes += row.bytes, all.seconds += row.seconds;
  }
  line("in all", "", "", all, "");
  const RankPadding padding = padding_of(step);
  if (padding.last_samples < padding.samples) {
    out += fmt::format("{:<18} the last rank has {} of the {} samples that each has room for\n",
                       "uneven batch", padding.last_samples, padding.samples);
  }
  if (padding.state.count > 0) {
    out += fmt::format("{:<18} {} bytes of parameters and state on the last rank are padding\n",
                       "uneven axes", with_commas(padding.state.count));
  }
  return out;
}

nlohmann::json ranks_json(const Scheme& step, const Fabric& fabric) {
  nlohmann::json mesh = nlohmann::json::object(), sent = nlohmann::json::array();
  for (const MeshAxis& axis : step.mesh) mesh[axis.name] = axis.size;
  for (const Sent& row : sent_in_step(step, fabric)) {
    sent.push_back({{"axis", row.mesh_axis},
                    {"collective", name(row.collective)},
                    {"dtype", name(row.dtype)},
                    {"calls", row.calls},
                    {"elements", row.elements},
                    {"bytes", row.bytes.count},
                    {"total_s", row.seconds}});
  }
  const RankPadding padding = padding_of(step);
  return {{"ranks", num_ranks(step.mesh)},
          {"axes", mesh},
          {"sent", sent},
          {"padding_bytes", padding.state.count},
          {"samples", padding.samples},
          {"samples_of_last", padding.last_samples}};
}

std::string measured_ranks_table(const Scheme& step, const Plan& plan,
                                 const std::vector<Measured>& ranks) {
  const bool host = plan.host.size.count > 0;
  std::string out = fmt::format("{:<18} {:>20}{} {:>12} {:>14} {:>12} {:>12}\n", "rank",
                                "peak bytes", host ? fmt::format(" {:>20}", "of the host") : "",
                                "step", "collectives", "hidden", "not hidden");
  const auto bytes = [&](const std::string& who, Bytes device, Bytes of_host) {
    out += fmt::format("{:<18} {:>20}", who, with_commas(device.count));
    if (host) out += fmt::format(" {:>20}", with_commas(of_host.count));
  };
  bytes("planned for each", plan.arena, plan.host.size);
  out += "\n";
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    const Measured& m = ranks[rank];
    const SpokenSeconds spoken = seconds_in_collectives(step, plan, m);
    bytes(fmt::format("{} (measured)", rank), m.touched, m.host_touched);
    out += fmt::format(" {:>9.2f} ms {:>11.2f} ms {:>9.2f} ms {:>9.2f} ms\n", 1e3 * m.step_seconds,
                       1e3 * spoken.all, 1e3 * spoken.hidden, 1e3 * (spoken.all - spoken.hidden));
  }
  return out;
}

nlohmann::json measured_ranks_json(const Scheme& step, const Plan& plan,
                                   const std::vector<Measured>& ranks) {
  nlohmann::json all = nlohmann::json::array();
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    const Measured& m = ranks[rank];
    const SpokenSeconds spoken = seconds_in_collectives(step, plan, m);
    all.push_back({{"rank", rank},
                   {"measured_peak_bytes", m.touched.count},
                   {"measured_host_peak_bytes", m.host_touched.count},
                   {"measured_step_s", m.step_seconds},
                   {"in_collectives_s", spoken.all},
                   {"hidden_s", spoken.hidden}});
  }
  return all;
}

}  // namespace adjoint
