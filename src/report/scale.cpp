#include "report/scale.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/bytes.h"
#include "report/svg.h"

namespace adjoint {

namespace {

// 1, 2 or 5 times a power of ten.
double round_step(double span, int wanted) {
  const double rough = span / std::max(wanted, 1);
  const double power = std::pow(10, std::floor(std::log10(rough)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (rough <= factor * power * 1.0001) return factor * power;
  }
  return 10 * power;
}

// `unit` is the value of 1 in the labels.
Scale scale_in(double from, double to, int wanted, double unit, std::string_view suffix,
               double least, int digits_below_one = 0) {
  if (!(to > from)) to = from + unit;
  Scale scale{.from = from, .to = to};
  const double step = std::max(round_step((to - from) / unit, wanted), least);
  for (double n = std::ceil(from / unit / step - 1e-9); n * step * unit <= to * (1 + 1e-9); ++n) {
    const double value = n * step;
    const int digits = std::max(step < 1 ? digits_below_one : 0,
                                static_cast<int>(std::ceil(-std::log10(step) - 1e-9)));
    std::string label = std::abs(value) < step / 2 ? "0" : fmt::format("{:.{}f}", value, digits);
    if (label != "0") label += suffix;
    scale.ticks.push_back({value * unit, label});
  }
  return scale;
}

}  // namespace

Scale bytes_scale(double from, double to, int wanted) {
  const char* names[] = {" B", " KiB", " MiB", " GiB", " TiB", " PiB"};
  int unit = 0;
  double size = 1;
  while (to / size >= 1024 && unit < 5) size *= 1024, ++unit;
  return scale_in(from, to, wanted, size, names[unit], unit == 0 ? 1 : 0);
}

Scale seconds_scale(double from, double to, int wanted) {
  const double unit = to >= 2 ? 1 : to >= 2e-3 ? 1e-3 : 1e-6;
  return scale_in(from, to, wanted, unit, unit == 1 ? " s" : unit == 1e-3 ? " ms" : " us", 0);
}

Scale count_scale(double from, double to, int wanted) {
  return scale_in(from, to, wanted, 1, "", 1);
}

Scale times_scale(double from, double to, int wanted) {
  return scale_in(from, to, wanted, 1, "x", 0, 2);
}

Scale share_scale(double from, double to, int wanted) {
  return scale_in(from, to, wanted, 0.01, "%", 0);
}

std::string human_seconds(double seconds) {
  const double size = std::abs(seconds);
  const auto say = [](double value, std::string_view unit) {
    return fmt::format("{:.{}f} {}", value, value < 10 ? 2 : value < 100 ? 1 : 0, unit);
  };
  if (size >= 1) return say(seconds, "s");
  if (size >= 1e-3) return say(1e3 * seconds, "ms");
  return say(1e6 * seconds, "us");
}

}  // namespace adjoint
