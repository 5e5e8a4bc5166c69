// The body of an elementwise or row op, stated once as an expression over scalars and reductions of
// the last axis (the row). Everything else is derived from it: the float64 reference, the kernels
// of CPU and CUDA, the gradient, FLOPs, the shape rule and the index map. Chains of bodies are
// fused by joining their expressions.
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "scheme/type.h"

namespace adjoint {

enum class ExprKind : uint8_t {
  kInput,   // operand `index`, broadcast to the iteration space
  kConst,   // value
  kIndex,   // position along the index-th axis from the end
  kRandom,  // uniform in [0, 1); operand `index` is the random counter, `text` the source path
  kAdd,
  kSub,
  kMul,
  kDiv,
  kMin,
  kMax,
  kLess,
  kEqual,
  kNeg,
  kExp,
  kLog,
  kSqrt,
  kTanh,
  kSigmoid,  // 1 / (1 + exp(-a)): nothing overflows, and no gradient is 0 * infinity
  kErf,
  kSin,
  kCos,
  kFinite,
  kWhole,   // the nearest whole number, an even one at ties
  kSelect,  // a != 0 ? b : c
  kRound,   // to the dtype whose number is `index`, and back
  kRowSum,
  kRowMax,
  kRotate,  // halves of the row swapped, the new first half negated: (a, b) -> (-b, a)
};
struct ExprFacts {
  std::string_view name;
  int arity;
};
const ExprFacts& facts(ExprKind kind);

struct ExprNode {
  ExprKind kind = ExprKind::kConst;
  std::array<int, 3> args = {-1, -1, -1};
  double value = 0;
  int index = 0;
  std::string text = {};
  bool operator==(const ExprNode&) const = default;
};

// One result. Leading axes may be summed away (a weight's gradient). The row may be reduced to one
// value, as an axis of size 1 or without an axis; the expression must then have the same value all
// along the row.
struct BodyOutput {
  enum class Row : uint8_t { kWhole, kOne, kDropped };
  int node = 0;
  int summed_axes = 0;
  Row row = Row::kWhole;
  std::optional<Dtype> dtype = {};  // none: that of the first floating operand
  bool operator==(const BodyOutput&) const = default;
};

struct Body {
  std::vector<ExprNode> nodes = {};  // every node after its operands
  std::vector<BodyOutput> outputs = {};

  int add(ExprNode node);  // reuses an equal node, and folds constants
  int num_inputs() const;
  bool needs_whole_rows() const;  // a reduction or rotation of the row
  bool uses_index() const;
  bool operator==(const Body&) const = default;
};

// A handle that lets a body be written as algebra: x * rsqrt(row_mean(x * x) + eps).
struct Expr {
  Body* body = nullptr;
  int node = -1;
};
Expr input(Body& body, int index);
Expr constant(Body& body, double value);
Expr index_along(Body& body, int axis_from_end);
Expr random_uniform(Body& body, int counter_input, std::string path);
Expr apply(ExprKind kind, Expr a);
Expr apply(ExprKind kind, Expr a, Expr b);
Expr apply(ExprKind kind, Expr a, double b);
Expr select(Expr condition, Expr yes, Expr no);
Expr select(Expr condition, Expr yes, double no);
Expr round_to(Expr a, Dtype dtype);

inline Expr operator+(Expr a, Expr b) { return apply(ExprKind::kAdd, a, b); }
inline Expr operator-(Expr a, Expr b) { return apply(ExprKind::kSub, a, b); }
inline Expr operator*(Expr a, Expr b) { return apply(ExprKind::kMul, a, b); }
inline Expr operator/(Expr a, Expr b) { return apply(ExprKind::kDiv, a, b); }
inline Expr operator+(Expr a, double b) { return apply(ExprKind::kAdd, a, b); }
inline Expr operator-(Expr a, double b) { return apply(ExprKind::kSub, a, b); }
inline Expr operator*(Expr a, double b) { return apply(ExprKind::kMul, a, b); }
inline Expr operator/(Expr a, double b) { return apply(ExprKind::kDiv, a, b); }
inline Expr operator*(double a, Expr b) { return constant(*b.body, a) * b; }
inline Expr operator-(double a, Expr b) { return constant(*b.body, a) - b; }
inline Expr operator/(double a, Expr b) { return constant(*b.body, a) / b; }
inline Expr operator-(Expr a) { return apply(ExprKind::kNeg, a); }
inline Expr exp(Expr a) { return apply(ExprKind::kExp, a); }
inline Expr log(Expr a) { return apply(ExprKind::kLog, a); }
inline Expr sqrt(Expr a) { return apply(ExprKind::kSqrt, a); }
inline Expr rsqrt(Expr a) { return 1.0 / sqrt(a); }
inline Expr tanh(Expr a) { return apply(ExprKind::kTanh, a); }
inline Expr sigmoid(Expr a) { return apply(ExprKind::kSigmoid, a); }
inline Expr erf(Expr a) { return apply(ExprKind::kErf, a); }
inline Expr sin(Expr a) { return apply(ExprKind::kSin, a); }
inline Expr cos(Expr a) { return apply(ExprKind::kCos, a); }
inline Expr is_finite(Expr a) { return apply(ExprKind::kFinite, a); }
inline Expr nearest_whole(Expr a) { return apply(ExprKind::kWhole, a); }
inline Expr min(Expr a, Expr b) { return apply(ExprKind::kMin, a, b); }
inline Expr max(Expr a, Expr b) { return apply(ExprKind::kMax, a, b); }
inline Expr less(Expr a, Expr b) { return apply(ExprKind::kLess, a, b); }
inline Expr equal(Expr a, Expr b) { return apply(ExprKind::kEqual, a, b); }
inline Expr row_sum(Expr a) { return apply(ExprKind::kRowSum, a); }
inline Expr row_max(Expr a) { return apply(ExprKind::kRowMax, a); }
inline Expr rotate(Expr a) { return apply(ExprKind::kRotate, a); }

// A body as text, for a morphism's attribute: print(parse(t)) == t.
std::string print(const Body& body);
Body parse_body(std::string_view text);

// The iteration space: operands aligned at their last axis, sizes 1 stretched (NumPy's rule). The
// random counter (the one operand of i64) has axes of its own and takes no part.
// An Error names `op` and the axes that do not fit.
std::vector<Axis> broadcast(std::string_view op, const std::vector<Type>& inputs);
std::vector<Type> output_types(const Body& body, const std::vector<Axis>& space,
                               const std::vector<Type>& inputs);

// The gradient of `body` with respect to the operands in `wanted`, as a body whose operands are
// the gradients of the outputs in `present`, then all operands of `body` itself.
Body differentiate(const Body& body, const std::vector<Axis>& space,
                   const std::vector<Type>& inputs, const std::vector<int>& present,
                   const std::vector<int>& wanted);
// Drops operands that nothing reads; returns the old numbers of those that stay.
std::vector<int> drop_unused_inputs(Body& body);
// Drops nodes that no output needs.
Body without_dead_nodes(const Body& body);

}  // namespace adjoint
