// Live memory over a step as stacked areas by category, in SVG. Peak, phases, blocks and arena are
// marked, and the legend lists the bytes at the peak. Several stacks are drawn side by side with
// one axis, and the tiers of a step below each other.
#pragma once
#include <string>
#include <vector>

#include "report/timeline.h"

namespace adjoint {

struct MemoryPanel {
  std::string title = {};  // the stack, and the tier if there are two
  Timeline timeline = {};
};

struct MemoryChart {
  std::string title = {};     // "gpt2, batch 32 x 1024 tokens"
  std::string subtitle = {};  // "adamw with clipping, planned without running"
  // Panels of one row share their axis of bytes.
  std::vector<std::vector<MemoryPanel>> rows = {};
};

// The plot's height stands for this many times the largest arena, so that labels have room.
constexpr double kHeadroom = 1.14;

std::string memory_chart(const MemoryChart& chart);

// A step as a column of such a chart: the timeline of the device and, if it is used, of the host.
struct ChartedStep {
  std::string title = {};  // its stack
  const Scheme& scheme;
  const Plan& plan;
  std::vector<double> seconds = {};  // per planned call; none: calls are equally wide
  std::string clock = {};            // where they come from: "predicted for cpu", "measured"
};
MemoryChart chart_of(std::string title, std::string subtitle,
                     const std::vector<ChartedStep>& steps);

}  // namespace adjoint
