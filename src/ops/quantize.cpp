#include "ops/quantize.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/error.h"
#include "device/parallel.h"

namespace adjoint {

std::string_view name(CodeFormat::Kind kind) {
  return kind == CodeFormat::Kind::kNF4 ? "nf4" : "int8";
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
  if (kind == "nf4") {
    format.kind = CodeFormat::Kind::kNF4;
  } else if (kind != "int8") {
    return std::nullopt;
  }
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

namespace {

float largest(const float* x, int64_t n) {
  float all = 0;
  for (int64_t i = 0; i < n; ++i) all = std::max(all, std::abs(x[i]));
  return all;
}

int8_t int8_code(float x, float scale) {
  if (scale == 0) return 0;
  return static_cast<int8_t>(std::clamp(std::nearbyint(x / scale), -127.0f, 127.0f));
}

uint8_t nf4_code(float x, float scale) {
  const float y = scale == 0 ? 0 : x / scale;
  size_t best = 0;
  for (size_t i = 1; i < kNormalLevels.size(); ++i) {
    if (std::abs(kNormalLevels[i] - y) < std::abs(kNormalLevels[best] - y)) best = i;
  }
  return best;
}

}  // namespace

void quantize(const float* matrix, const Type& type, const CodeFormat& format, void* codes,
              float* scales) {
  const int64_t row = type.dim(-1), count = type.num_elements();
  CHECK(fits(row, format), "groups divide a row");
  const int64_t run = format.per == CodeFormat::Per::kTensor    ? count
                      : format.per == CodeFormat::Per::kChannel ? row
                                                                : format.group;
  const bool packed = format.kind == CodeFormat::Kind::kNF4;
  auto* bytes = static_cast<uint8_t*>(codes);
  parallel_for(count / run, 64, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      const float* x = matrix + i * run;
      scales[i] = packed ? largest(x, run) : largest(x, run) / 127;
      for (int64_t k = 0; k < run; ++k) {
        const int64_t at = i * run + k;
        if (!packed) {
          bytes[at] = static_cast<uint8_t>(int8_code(x[k], scales[i]));
        } else if (k % 2 == 0) {
          const int high = nf4_code(x[k + 1], scales[i]);
          bytes[at / 2] = static_cast<uint8_t>(nf4_code(x[k], scales[i]) | high << 4);
        }
      }
    }
  });
}

}  // namespace adjoint
