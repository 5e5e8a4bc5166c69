// Small text helpers that several rooms need.
#pragma once
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"

namespace adjoint {

std::string join(const std::vector<std::string>& parts, std::string_view between);

// With small letters for A to Z.
std::string lowered(std::string_view text);

// The candidate that is meant, for "did you mean": one that begins with the word, or else the one
// with the fewest mistyped letters, or else one that has the word in it or its parts' first
// letters; empty when none is near.
std::string nearest(std::string_view word, const std::vector<std::string>& candidates);

// "; did you mean 'x'?" or nothing.
std::string did_you_mean(std::string_view word, const std::vector<std::string>& candidates);

// Shortest decimal text that reads back as the same double.
std::string shortest(double number);

// "24GB" is 24e9 bytes, "1.5 GiB" is 1.5 * 2^30, "1000" is 1000; nothing if it is not a size, or
// negative.
std::optional<Bytes> parse_bytes(std::string_view text);

}  // namespace adjoint
