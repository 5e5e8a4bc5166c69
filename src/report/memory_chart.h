// Live memory over a step as stacked areas by category, in SVG: peak, phases, blocks and arena
// marked, bytes at the peak in the legend. Several stacks stand side by side on one axis, and the
// tiers of a step one below the other.
#pragma once
#include <string>
#include <vector>

#include "report/timeline.h"

namespace adjoint {

struct MemoryPanel {
  std::string title = {};  // the stack, and the tier where there are two
  Timeline timeline = {};
};

struct MemoryChart {
  std::string title = {};     // "gpt2, batch 32 x 1024 tokens"
  std::string subtitle = {};  // "adamw with clipping, planned without running"
  // Panels of one row share their axis of bytes.
  std::vector<std::vector<MemoryPanel>> rows = {};
};

std::string memory_chart(const MemoryChart& chart);

// A step as a column of such a chart: its timeline on the device and, where it uses one, the host.
struct ChartedStep {
  std::string title = {};  // its stack
  const Scheme& scheme;
  const Plan& plan;
  std::vector<double> seconds = {};  // per planned call; none: calls are equally wide
  std::string clock = {};            // whose seconds: "predicted for cpu", "measured"
};
MemoryChart chart_of(std::string title, std::string subtitle,
                     const std::vector<ChartedStep>& steps);

}  // namespace adjoint
