// A number of bytes, so that it is never taken for a number of elements.
#pragma once
#include <compare>
#include <cstdint>
#include <string>

namespace adjoint {

struct Bytes {
  int64_t count = 0;
  constexpr auto operator<=>(const Bytes&) const = default;
  constexpr Bytes operator+(Bytes other) const { return {count + other.count}; }
  constexpr Bytes operator-(Bytes other) const { return {count - other.count}; }
  constexpr Bytes& operator+=(Bytes other) { return count += other.count, *this; }
  constexpr Bytes& operator-=(Bytes other) { return count -= other.count, *this; }
};

constexpr Bytes operator*(int64_t n, Bytes bytes) { return {n * bytes.count}; }

constexpr Bytes round_up(Bytes bytes, Bytes unit) {
  return {(bytes.count + unit.count - 1) / unit.count * unit.count};
}

// "412 B", "3.25 KiB", "15.7 GiB".
std::string human(Bytes bytes);

// 1234567 -> "1,234,567".
std::string with_commas(int64_t number);

}  // namespace adjoint
