// Reverse mode on an expression. A node has one value per element or, if it is the same along the
// row, one per row; a gradient that flows from the first kind to the second is summed over the row.
// RowMax passes no gradient: bodies use it only as a shift that cancels (softmax).
#include "base/error.h"
#include "body/body.h"

namespace adjoint {

namespace {

// Whether the node takes different values along the row.
bool varies(const ExprNode& n, const std::vector<bool>& arg_varies, const std::vector<Type>& inputs,
            int64_t row) {
  switch (n.kind) {
    case ExprKind::kInput: {
      const Type& t = inputs[n.index];
      return row == 1 || (t.rank() > 0 && t.dim(-1) != 1);
    }
    case ExprKind::kConst:
      return false;
    case ExprKind::kIndex:
      return n.index == 0;
    case ExprKind::kRandom:
    case ExprKind::kRotate:
      return true;
    case ExprKind::kRowSum:
    case ExprKind::kRowMax:
      return false;
    default:
      for (int a = 0; a < facts(n.kind).arity; ++a) {
        if (arg_varies[n.args[a]]) return true;
      }
      return false;
  }
}

class Reverse {
 public:
  Reverse(const Body& body, const std::vector<Type>& inputs, int64_t row, int shift)
      : row_(row), adjoint_(body.nodes.size()) {
    for (const ExprNode& n : body.nodes) {
      varies_.push_back(varies(n, varies_, inputs, row));
      ExprNode copy = n;
      if (n.kind == ExprKind::kInput || n.kind == ExprKind::kRandom) copy.index += shift;
      for (int a = 0; a < facts(n.kind).arity; ++a) copy.args[a] = renamed_[n.args[a]].node;
      renamed_.push_back({&out, out.add(std::move(copy))});
    }
  }

  void seed(int node, Expr gradient, bool gradient_varies) {
    accumulate(node, gradient, gradient_varies);
  }

  void run(const Body& body) {
    for (size_t i = body.nodes.size(); i-- > 0;) {
      if (adjoint_[i]) node(body.nodes[i], *adjoint_[i], renamed_[i], varies_[i]);
    }
  }

  std::optional<Expr> gradient(int node) const { return adjoint_[node]; }
  bool node_varies(int node) const { return varies_[node]; }

  Body out;

 private:
  void accumulate(int node, Expr gradient, bool gradient_varies) {
    if (gradient_varies && !varies_[node]) gradient = row_sum(gradient);
    adjoint_[node] = adjoint_[node] ? *adjoint_[node] + gradient : gradient;
  }

  void node(const ExprNode& n, Expr g, Expr y, bool y_varies) {
    const auto arg = [&](int i) { return renamed_[n.args[i]]; };
    const auto give = [&](int i, Expr gradient) { accumulate(n.args[i], gradient, y_varies); };
    switch (n.kind) {
      case ExprKind::kAdd:
        give(0, g), give(1, g);
        return;
      case ExprKind::kSub:
        give(0, g), give(1, -g);
        return;
      case ExprKind::kMul:
        give(0, g * arg(1)), give(1, g * arg(0));
        return;
      case ExprKind::kDiv:
        give(0, g / arg(1)), give(1, -(g * y / arg(1)));
        return;
      case ExprKind::kMin:
        give(0, select(less(arg(1), arg(0)), constant(out, 0), g));
        give(1, select(less(arg(1), arg(0)), g, 0));
        return;
      case ExprKind::kMax:
        give(0, select(less(arg(0), arg(1)), constant(out, 0), g));
        give(1, select(less(arg(0), arg(1)), g, 0));
        return;
      case ExprKind::kNeg:
        give(0, -g);
        return;
      case ExprKind::kExp:
        give(0, g * y);
        return;
      case ExprKind::kLog:
        give(0, g / arg(0));
        return;
      case ExprKind::kSqrt:
        give(0, g * 0.5 / y);
        return;
      case ExprKind::kTanh:
        give(0, g * (1.0 - y * y));
        return;
      case ExprKind::kSigmoid:
        give(0, g * (y * (1.0 - y)));
        return;
      case ExprKind::kErf:
        give(0, g * 1.1283791670955126 * exp(-(arg(0) * arg(0))));
        return;
      case ExprKind::kSin:
        give(0, g * cos(arg(0)));
        return;
      case ExprKind::kCos:
        give(0, -(g * sin(arg(0))));
        return;
      case ExprKind::kSelect:
        give(1, select(arg(0), g, 0));
        give(2, select(arg(0), constant(out, 0), g));
        return;
      case ExprKind::kRound:
      case ExprKind::kWhole:
        give(0, g);
        return;  // a rounding passes the gradient unchanged
      case ExprKind::kRowSum:
        if (varies_[n.args[0]]) {
          adjoint_[n.args[0]] = adjoint_[n.args[0]] ? *adjoint_[n.args[0]] + g : g;
        } else {
          give(0, g * static_cast<double>(row_));
        }
        return;
      case ExprKind::kRotate:
        give(0, -rotate(g));
        return;
      default:
        return;  // leaves, comparisons, RowMax
    }
  }

  int64_t row_;
  std::vector<bool> varies_;
  std::vector<Expr> renamed_;
  std::vector<std::optional<Expr>> adjoint_;
};

}  // namespace

Body differentiate(const Body& body, const std::vector<Axis>& space,
                   const std::vector<Type>& inputs, const std::vector<int>& present,
                   const std::vector<int>& wanted) {
  const int rank = static_cast<int>(space.size());
  const int64_t row = rank ? space.back().size : 1;
  Reverse reverse(body, inputs, row, static_cast<int>(present.size()));
  for (size_t k = 0; k < present.size(); ++k) {
    const BodyOutput& out = body.outputs[present[k]];
    const bool whole = out.row == BodyOutput::Row::kWhole;
    const Expr seed = input(reverse.out, static_cast<int>(k));
    reverse.seed(out.node, seed, whole);
  }
  reverse.run(body);
  for (const int want : wanted) {
    Expr gradient = constant(reverse.out, 0);
    for (size_t i = 0; i < body.nodes.size(); ++i) {
      if (body.nodes[i].kind != ExprKind::kInput || body.nodes[i].index != want) continue;
      if (const auto g = reverse.gradient(static_cast<int>(i))) gradient = *g;
    }
    const Type& t = inputs[want];
    BodyOutput result{.node = gradient.node, .dtype = t.dtype};
    if (t.rank() == 0) {
      result.summed_axes = std::max(0, rank - 1);
      result.row = BodyOutput::Row::kDropped;
    } else {
      result.summed_axes = rank - t.rank();
      if (t.dim(-1) == 1 && row > 1) result.row = BodyOutput::Row::kOne;
      for (int a = 0; a + 1 < t.rank(); ++a) {
        if (t.dim(a) != space[a + result.summed_axes].size) {
          fail("the gradient of an operand that is stretched along an inner axis (", t.axes[a].name,
               ") is not supported");
        }
      }
    }
    reverse.out.outputs.push_back(result);
  }
  return without_dead_nodes(reverse.out);
}

}  // namespace adjoint
