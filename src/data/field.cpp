#include "data/field.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>

#include "base/bytes.h"
#include "base/error.h"
#include "base/half.h"

namespace adjoint {

namespace {

const std::map<std::string_view, Element> kElements = {
    {"BOOL", Element::kU8}, {"I8", Element::kI8},   {"U8", Element::kU8},
    {"I16", Element::kI16}, {"U16", Element::kU16}, {"I32", Element::kI32},
    {"U32", Element::kU32}, {"I64", Element::kI64}, {"BF16", Element::kBF16},
    {"F16", Element::kF16}, {"F32", Element::kF32}, {"F64", Element::kF64}};

// Calls f.template operator()<T>() with the type of an element.
template <class F>
decltype(auto) with_element(Element element, const F& f) {
  switch (element) {
    case Element::kI8:
      return f.template operator()<int8_t>();
    case Element::kU8:
      return f.template operator()<uint8_t>();
    case Element::kI16:
      return f.template operator()<int16_t>();
    case Element::kU16:
      return f.template operator()<uint16_t>();
    case Element::kU32:
      return f.template operator()<uint32_t>();
    case Element::kI64:
      return f.template operator()<int64_t>();
    case Element::kBF16:
      return f.template operator()<BFloat16>();
    case Element::kF16:
      return f.template operator()<Float16>();
    case Element::kF32:
      return f.template operator()<float>();
    case Element::kF64:
      return f.template operator()<double>();
    case Element::kI32:
      break;
  }
  return f.template operator()<int32_t>();
}

// Files do not promise alignment.
template <class T>
T element_at(const std::byte* data, int64_t i) {
  T value;
  std::memcpy(&value, data + i * static_cast<int64_t>(sizeof(T)), sizeof(T));
  return value;
}

template <class To, class From>
void convert(const std::byte* from, int64_t count, void* to) {
  auto* out = static_cast<To*>(to);
  if constexpr (std::is_same_v<To, From>) {
    // A crop of nothing may be copied from nowhere, which memcpy does not allow.
    std::copy_n(from, count * sizeof(To), static_cast<std::byte*>(to));
  } else {
    // An i8 is a number. NOLINTNEXTLINE(bugprone-signed-char-misuse)
    for (int64_t i = 0; i < count; ++i) out[i] = static_cast<To>(element_at<From>(from, i));
  }
}

}  // namespace

std::optional<Element> element_named(std::string_view dtype) {
  const auto found = kElements.find(dtype);
  return found == kElements.end() ? std::nullopt : std::optional(found->second);
}

bool is_floating(Element element) { return element >= Element::kBF16; }

int64_t bytes_of(Element element) {
  return with_element(element, []<class T>() { return static_cast<int64_t>(sizeof(T)); });
}

void copy_crop(const Field& field, int64_t start, int64_t count, void* to) noexcept {
  const int64_t first = (start + field.ahead) * field.width;
  const std::byte* from = field.data + first * bytes_of(field.element);
  with_element(field.element, [&]<class T>() {
    using To = std::conditional_t<std::is_integral_v<T>, int32_t, float>;
    convert<To, T>(from, count * field.width, to);
  });
}

void check_whole_numbers(const std::string& file, const Field& field, int64_t count, int64_t least,
                         int64_t below, std::optional<int64_t> also, std::string_view why) {
  with_element(field.element, [&]<class T>() {
    if constexpr (std::is_integral_v<T>) {
      for (int64_t i = 0; i < count * field.width; ++i) {
        // An i8 is a number. NOLINTNEXTLINE(bugprone-signed-char-misuse)
        const auto value = static_cast<int64_t>(element_at<T>(field.data, i));
        if ((value >= least && value < below) || value == also) continue;
        fail(file, ": field '", field.name, "' holds ", value, " at token ",
             with_commas(i / field.width), ", wanted ", least, " to ", below - 1,
             also && (*also < least || *also >= below) ? join_parts(", or ", *also, " to ignore it")
                                                       : "",
             why);
      }
    }
  });
}

void check_floating_numbers(const std::string& file, const Field& field, int64_t count,
                            bool masks) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  with_element(field.element, [&]<class T>() {
    if constexpr (!std::is_integral_v<T>) {
      for (int64_t i = 0; i < count * field.width; ++i) {
        const auto value = element_at<T>(field.data, i);
        if (std::isfinite(static_cast<float>(value))) continue;
        const auto number = static_cast<double>(value);
        if (masks && number == -kInfinity) continue;
        const char* const wanted = std::isnan(number)      ? ", wanted numbers"
                                   : std::isfinite(number) ? ", which float32 has not"
                                   : masks                 ? ", wanted finite numbers or -inf"
                                                           : ", wanted finite numbers";
        fail(file, ": field '", field.name, "' holds ", number, " at token ",
             with_commas(i / field.width), wanted);
      }
    }
  });
}

}  // namespace adjoint
