// The numbers of a model's text: axes, numbers and presets, with the user's overrides, resolved to
// values; and the arithmetic that settings and the sizes in boxes share.
#pragma once
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "scheme/document.h"

namespace adjoint {

struct ModelConfig {
  std::string preset = {};                      // of the document; "" is none
  std::map<std::string, double> settings = {};  // axes and numbers by name, and batch and seq
};

using Settings = std::map<std::string, double>;

// All axes and numbers with their values. `batch` is 1 and `seq` is the axis `context`, if there is
// one, unless they are set. Values may refer to each other in any order.
Settings resolve_settings(const Document& document, std::string_view file,
                          const ModelConfig& config);

// A size of an axis: a whole number in this range.
constexpr int64_t kLargestSize = int64_t{1} << 40;

template <class... Parts>
[[noreturn]] void fail_at(std::string_view file, Position at, const Parts&... parts) {
  fail(at.file ? std::string_view(*at.file) : file, ":", at.line, ":", at.column, ": ", parts...);
}

// What a term is that has numbers only: arithmetic, functions, comparisons (1 or 0), choices. Names
// are looked up; whatever is no finite number is an Error at its place.
using Lookup = std::function<double(const Term& name)>;
double evaluate_number(const Term& term, std::string_view file, const Lookup& lookup);
// Which operand of `a when condition else b` holds: 0 is a, 2 is b.
size_t chosen(const Term& when, std::string_view file, const Lookup& lookup);
double arithmetic(const Term& binary, double a, double b, std::string_view file);
bool is_number_function(std::string_view name);
std::vector<std::string> number_functions();

}  // namespace adjoint
