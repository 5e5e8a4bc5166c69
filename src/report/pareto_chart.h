// Memory against time: what each choice costs, in SVG. Points that another beats in both are faint,
// the chosen one is ringed; numbers at the points refer to the list beside the plot.
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

// Per point: is there another that is no worse in both and better in one, or an equal one earlier?
std::vector<bool> dominated(const std::vector<ParetoPoint>& points);

std::string pareto_chart(const ParetoChart& chart);

}  // namespace adjoint
