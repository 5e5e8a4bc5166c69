#include "ops/quantize.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/error.h"

namespace adjoint {

namespace {
constexpr std::string_view kKinds[] = {"int8", "int4", "nf4"};
}

std::string_view name(CodeFormat::Kind kind) { return kKinds[static_cast<size_t>(kind)]; }

std::optional<CodeFormat::Kind> code_kind(std::string_view name) {
  const auto* const found = std::find(std::begin(kKinds), std::end(kKinds), name);
  if (found == std::end(kKinds)) return std::nullopt;
  return static_cast<CodeFormat::Kind>(found - std::begin(kKinds));
}

std::string to_string(const CodeFormat& format) {
  const std::string kind = std::string(name(format.kind)) + "/";
  switch (format.per) {
    case CodeFormat::Per::kTensor:
      return kind + "tensor";
    case CodeFormat::Per::kChannel:
      return kind + "channel";
    case CodeFormat::Per::kGroup:
      break;
  }
  return kind + std::to_string(format.group);
}

std::optional<CodeFormat> code_format(std::string_view text) {
  CodeFormat format;
  const size_t slash = text.find('/');
  if (slash == std::string_view::npos) return std::nullopt;
  const std::string_view kind = text.substr(0, slash), per = text.substr(slash + 1);
  const auto known = code_kind(kind);
  if (!known) return std::nullopt;
  format.kind = *known;
  if (per == "tensor") return format;
  format.per = CodeFormat::Per::kChannel;
  if (per == "channel") return format;
  format.per = CodeFormat::Per::kGroup;
  const auto [end, error] = std::from_chars(per.data(), per.data() + per.size(), format.group);
  if (error != std::errc() || end != per.data() + per.size() || format.group < 1) {
    return std::nullopt;
  }
  return format;
}

bool fits(int64_t row, const CodeFormat& format) {
  const int64_t per_byte = codes_per_byte(format.kind);
  if (row % per_byte) return false;
  return format.per != CodeFormat::Per::kGroup ||
         (row % format.group == 0 && format.group % per_byte == 0);
}

int64_t nearest_group(int64_t row, const CodeFormat& format) {
  int64_t best = row;
  for (CodeFormat other = format; other.group <= row; ++other.group) {
    if (fits(row, other)) {
      best = other.group;
      break;
    }
  }
  for (CodeFormat other = format; other.group >= 1; --other.group) {
    if (!fits(row, other)) continue;
    if (best < format.group || format.group - other.group <= best - format.group) {
      best = other.group;
    }
    break;
  }
  return best;
}

Type codes_type(const Type& matrix, const CodeFormat& format) {
  const bool packed = codes_per_byte(format.kind) > 1;
  Type type{packed ? Dtype::kU8 : Dtype::kI8, matrix.axes};
  type.axes.back().size /= codes_per_byte(format.kind);
  return type;
}

Type scales_type(const Type& matrix, const CodeFormat& format) {
  Type type{.dtype = Dtype::kF32};
  if (format.per == CodeFormat::Per::kTensor) return type;
  type.axes.assign(matrix.axes.begin(), matrix.axes.end() - 1);
  if (format.per == CodeFormat::Per::kGroup) {
    type.axes.push_back({"groups", matrix.dim(-1) / format.group});
  }
  return type;
}

}  // namespace adjoint
