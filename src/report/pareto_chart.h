// Memory against time of each choice, in SVG. Time is relative to the fastest choice, memory is in
// bytes and in shares of the step with everything kept. Points that another point beats in both are
// faint, and the chosen one has a ring. A few choices that are so slow that they would flatten all
// others are cut off, and the picture says so. The numbers at the points refer to the list below
// the plot.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"

namespace adjoint {

struct ParetoPoint {
  Bytes bytes = {0};
  double seconds = 0;
  std::string label = {};  // what tells it from the point before it (choice_labels.h)
  bool chosen = false;
  double recomputed = 0;  // share of the FLOPs that are done again
};

struct ParetoChart {
  std::string title = {};
  std::string subtitle = {};
  std::vector<ParetoPoint> points = {};
  std::optional<Bytes> budget = {};
  std::optional<Bytes> everything_kept = {};  // what shares of memory refer to; none: the budget
};

// Per point: whether another is no worse in both and better in one, or an earlier one is equal.
std::vector<bool> dominated(const std::vector<ParetoPoint>& points);

// Per point: whether it is cut off. That are the slowest ones, a quarter of all at most, and the
// fewest without which the rest takes less than a third of the range of times.
std::vector<bool> cut_off(const std::vector<ParetoPoint>& points);

std::string pareto_chart(const ParetoChart& chart);

}  // namespace adjoint
