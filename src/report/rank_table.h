// What the ranks of a mesh hold and send in a step, for people and for machines. All ranks have one
// plan, so the bytes of one are those of each.
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cost/collective.h"
#include "run/profile.h"

namespace adjoint {

std::string mesh_in_words(const std::vector<MeshAxis>& mesh);  // "8 ranks (data=4 x tensor=2)"

// Where ranks do not divide an axis, the last of them holds fewer elements than its plan has room
// for.
struct RankPadding {
  Bytes state = {0};                      // of parameters and optimizer state, on the last rank
  int64_t samples = 0, last_samples = 0;  // of the batch: of each rank, and of the last one
};
RankPadding padding_of(const Scheme& step);

// One line per axis of the mesh, collective and dtype. Nothing for a step of one rank.
std::string rank_table(const Scheme& step, const Fabric& fabric);
// {"ranks", "axes": {name: size}, "sent": [{"axis", "collective", "dtype", "calls", "elements",
// "bytes", "seconds"}], "padding_bytes", "samples", "samples_of_last"}
nlohmann::json ranks_json(const Scheme& step, const Fabric& fabric);

// What every rank did in a run, beside what was planned for each of them.
std::string measured_ranks_table(const Scheme& step, const Plan& plan,
                                 const std::vector<Measured>& ranks);
// [{"rank", "measured_peak_bytes", "measured_host_peak_bytes", "measured_step_s",
// "in_collectives_s", "hidden_s"}]
nlohmann::json measured_ranks_json(const Scheme& step, const Plan& plan,
                                   const std::vector<Measured>& ranks);

}  // namespace adjoint
