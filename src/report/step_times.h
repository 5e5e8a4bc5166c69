// How the seconds and FLOPs of a step are distributed: by op, by block, and by purpose.
#pragma once
#include <array>
#include <string>
#include <vector>

#include "report/timeline.h"

namespace adjoint {

constexpr int kNumKinds = 4;

struct TimeRow {
  std::string name;
  int64_t calls = 0;
  // By purpose; recomputation counts as neither forward nor backward.
  std::array<double, kNumKinds> seconds = {}, flops = {};
  double total_seconds() const;
  double total_flops() const;
};

// `seconds` are per execution of each planned call; calls of the body count once per part.
TimeRow time_of_step(const Scheme& scheme, const Plan& plan, const std::vector<double>& seconds);
// The name of an op. A fused body is named after the ops that it was fused from.
std::string op_label(const Morphism& morphism);
// By label, sorted by time, the longest first.
std::vector<TimeRow> time_by_op(const Scheme& scheme, const Plan& plan,
                                const std::vector<double>& seconds);
// In the order of the step. A block is a source path up to its first index; calls outside of blocks
// are listed under the first word of their path.
std::vector<TimeRow> time_by_block(const Scheme& scheme, const Plan& plan,
                                   const std::vector<double>& seconds);

// FLOPs of a step: those of the model, and those that the hardware does, with recomputation.
struct StepFlops {
  double model = 0, hardware = 0;
};
StepFlops flops_of(const TimeRow& step);

}  // namespace adjoint
