#include "base/bytes.h"

#include <fmt/format.h>

namespace adjoint {

std::string human(Bytes bytes) {
  const char* units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  double value = static_cast<double>(bytes.count);
  int unit = 0;
  while ((value >= 1024 || value <= -1024) && unit < 5) value /= 1024, ++unit;
  if (unit == 0) return fmt::format("{} B", bytes.count);
  return fmt::format("{:.{}f} {}", value, value < 10 ? 2 : value < 100 ? 1 : 0, units[unit]);
}

std::string with_commas(int64_t number) {
  std::string digits = std::to_string(number < 0 ? -number : number);
  for (int at = static_cast<int>(digits.size()) - 3; at > 0; at -= 3) digits.insert(at, ",");
  return number < 0 ? "-" + digits : digits;
}

}  // namespace adjoint
