// Memory against time of each choice, in SVG. Points that another point beats in both are faint,
// and the chosen one has a ring. The numbers at the points refer to the list beside the plot.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"

namespace adjoint {

struct ParetoPoint {
  Bytes bytes = {0};
  double seconds = 0;
  std::string label = {};
  bool chosen = false;
};

struct ParetoChart {
  std::string title = {};
  std::string subtitle = {};
  std::vector<ParetoPoint> points = {};
  std::optional<Bytes> budget = {};
};

// Per point: whether another is no worse in both and better in one, or an earlier one is equal.
std::vector<bool> dominated(const std::vector<ParetoPoint>& points);

std::string pareto_chart(const ParetoChart& chart);

}  // namespace adjoint
