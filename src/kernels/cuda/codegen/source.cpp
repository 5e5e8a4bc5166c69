#include "kernels/cuda/codegen/source.h"

#include <bit>
#include <cmath>

#include "base/error.h"

namespace adjoint::cuda_source {

std::string_view element_of(Dtype dtype) {
  constexpr std::string_view names[] = {"double", "float", "bf16",        "f16",
                                        "i64",    "int",   "signed char", "unsigned char"};
  return names[static_cast<size_t>(dtype)];
}

std::string literal(double value, bool wide) {
  if (wide) return fmt::format("__longlong_as_double({:#x}ll)", std::bit_cast<uint64_t>(value));
  const auto narrow = static_cast<float>(value);
  if (!std::signbit(narrow) && narrow < 1e6f &&
      narrow == static_cast<float>(static_cast<int>(narrow))) {
    return fmt::format("{}.0f", static_cast<int>(narrow));
  }
  return fmt::format("__uint_as_float({:#x}u)", std::bit_cast<uint32_t>(narrow));
}

std::string expression(const ExprNode& n, const std::string& a, const std::string& b,
                       const std::string& c) {
  const auto infix = [&](const char* op) { return fmt::format("{} {} {}", a, op, b); };
  const auto call = [&](const char* name) { return fmt::format("{}({})", name, a); };
  switch (n.kind) {
    case ExprKind::kAdd:
      return infix("+");
    case ExprKind::kSub:
      return infix("-");
    case ExprKind::kMul:
      return infix("*");
    case ExprKind::kDiv:
      return fmt::format("divide({}, {})", a, b);
    case ExprKind::kMin:
      return fmt::format("{1} < {0} ? {1} : {0}", a, b);
    case ExprKind::kMax:
      return fmt::format("{0} < {1} ? {1} : {0}", a, b);
    case ExprKind::kLess:
      return fmt::format("(real)({} < {})", a, b);
    case ExprKind::kEqual:
      return fmt::format("(real)({} == {})", a, b);
    case ExprKind::kNeg:
      return "-" + a;
    case ExprKind::kExp:
      return call("fexp");
    case ExprKind::kLog:
      return call("flog");
    case ExprKind::kSqrt:
      return call("root");
    case ExprKind::kTanh:
      return call("ftanh");
    case ExprKind::kSigmoid:
      return call("sigmoid");
    case ExprKind::kErf:
      return call("ferf");
    case ExprKind::kSin:
      return call("fsin");
    case ExprKind::kCos:
      return call("fcos");
    case ExprKind::kFinite:
      return fmt::format("(real)(isfinite({}) != 0)", a);
    case ExprKind::kWhole:
      return call("whole_near");
    case ExprKind::kSelect:
      return fmt::format("{} != 0 ? {} : {}", a, b, c);
    case ExprKind::kRound:
      return fmt::format("rounded<{}>({})", element_of(static_cast<Dtype>(n.index)), a);
    default:
      break;
  }
  CHECK(false, "an expression that can be written down");
  return "";
}

std::string position(const BodySpace& space, std::string_view row) {
  std::string text = fmt::format("idx rest = {};\n", row);
  for (size_t a = space.dims.size() - 1; a-- > 1;) {
    text += fmt::format("const idx i{0} = rest % {1}; rest /= {1};\n", a, space.dims[a]);
  }
  if (space.dims.size() > 1) text += "const idx i0 = rest;\n";
  return text;
}

std::string offset(const Strides& strides) {
  std::string text = "0";
  for (size_t a = 0; a + 1 < strides.size(); ++a) {
    if (strides[a] != 0) text += fmt::format(" + i{} * {}ll", a, strides[a]);
  }
  return text;
}

std::string chunk_loop(const CudaCut& cut) {
  const int64_t row = cut.space.row();
  const int64_t covered = cut.tiles * cut.chunks * cut.group * kChunk;
  return fmt::format("{}for (int c = 0; c < {}; ++c) {{\n", cut.loops ? "" : "#pragma unroll\n",
                     cut.chunks) +
         fmt::format("const idx col = ((tile * {} + c) * {} + lane) * 8;\n", cut.chunks,
                     cut.group) +
         fmt::format("const int n = {};\n",
                     row == covered ? "8"
                     : row % kChunk == 0
                         ? fmt::format("col < {} ? 8 : 0", row)
                         : fmt::format("{0} - col > 8 ? 8 : (int)({0} - col)", row));
}

std::string stored(size_t output, const char* to, const char* from, std::string_view type,
                   bool whole, int64_t stride) {
  return fmt::format(
      "if (n > 0) store<{0}>({1}{2} + col * {3}ll, {3}ll, n, Chunk<{4}>::of({5}{2}));\n", whole, to,
      output, stride, type, from);
}

}  // namespace adjoint::cuda_source
