// Where the seconds and the FLOPs of a step go: by op, by block, and by what they are for.
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
  // By what it is for: a repetition of the forward is neither forward nor backward.
  std::array<double, kNumKinds> seconds = {}, flops = {};
  double total_seconds() const;
  double total_flops() const;
};

// Of seconds per execution of every planned call. A step's parts count as often as they run.
TimeRow time_of_step(const Scheme& scheme, const Plan& plan, const std::vector<double>& seconds);
// The op, and of a body what it came from: what was fused is called by what it was fused from.
std::string op_label(const Morphism& morphism);
// By label, the longest first.
std::vector<TimeRow> time_by_op(const Scheme& scheme, const Plan& plan,
                                const std::vector<double>& seconds);
// In the order of the step. A block is a source path up to its first index; what is in none is
// called by the first word of its path.
std::vector<TimeRow> time_by_block(const Scheme& scheme, const Plan& plan,
                                   const std::vector<double>& seconds);

// FLOPs of a step: what the model asks for, and what the hardware does with repetitions.
struct StepFlops {
  double model = 0, hardware = 0;
};
StepFlops flops_of(const TimeRow& step);

}  // namespace adjoint
