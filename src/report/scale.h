// Axes with round ticks, for charts: bytes in binary units, seconds, counts.
#pragma once
#include <string>
#include <vector>

namespace adjoint {

struct Tick {
  double at = 0;
  std::string label = {};
};

struct Scale {
  double from = 0, to = 1;
  std::vector<Tick> ticks = {};

  double at(double value) const { return to > from ? (value - from) / (to - from) : 0; }
};

// About `wanted` ticks from one to the other; the ends are ticks if they are round.
Scale bytes_scale(double from, double to, int wanted);    // 0, 2 GiB, 4 GiB
Scale seconds_scale(double from, double to, int wanted);  // 0, 50 ms, 100 ms
Scale count_scale(double from, double to, int wanted);    // 0, 200, 400
Scale times_scale(double from, double to, int wanted);    // 1.00x, 1.05x; 1x, 2x
Scale share_scale(double from, double to, int wanted);    // 0, 50%, 100%, of shares in 0..1

std::string human_seconds(double seconds);  // "1.25 s", "412 ms", "3.5 us"

}  // namespace adjoint
