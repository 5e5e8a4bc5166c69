// The reference reading: every expression in float64, a row at a time, in plain loops. It shares
// nothing with the fast reading but the body itself.
#include <cmath>
#include <memory>

#include "base/philox.h"
#include "ops/body_readings.h"
#include "ops/elements.h"

namespace adjoint {

namespace {

struct Reference {
  Body body;
  std::vector<Axis> space;
  std::vector<Type> in_types, out_types;
  std::vector<Strides> in, out;  // along the axes of the space
  Pointers at;
  std::vector<std::vector<double>> sums = {}, values = {};  // per output, per node
  std::vector<int64_t> where = {};

  // A leaf that is no operand.
  double leaf(const ExprNode& n, const std::vector<int64_t>& where, int64_t linear) const {
    switch (n.kind) {
      case ExprKind::kConst:
        return n.value;
      case ExprKind::kIndex:
        return static_cast<double>(where[where.size() - 1 - n.index]);
      default:
        break;
    }
    const auto* counter = static_cast<const int64_t*>(at.in[n.index]);
    int64_t sample = 1;
    for (size_t a = 1; a < space.size(); ++a) sample *= space[a].size;
    const RandomStream stream{random_key(counter[0], n.text), static_cast<uint64_t>(counter[1])};
    return stream.uniform(counter[2] * sample + linear);
  }

  static double evaluate(const ExprNode& n, double a, double b, double c) {
    switch (n.kind) {
      case ExprKind::kAdd:
        return a + b;
      case ExprKind::kSub:
        return a - b;
      case ExprKind::kMul:
        return a * b;
      case ExprKind::kDiv:
        return a / b;
      case ExprKind::kMin:
        return b < a ? b : a;
      case ExprKind::kMax:
        return a < b ? b : a;
      case ExprKind::kLess:
        return a < b;
      case ExprKind::kEqual:
        return a == b;
      case ExprKind::kNeg:
        return -a;
      case ExprKind::kExp:
        return std::exp(a);
      case ExprKind::kLog:
        return std::log(a);
      case ExprKind::kSqrt:
        return std::sqrt(a);
      case ExprKind::kTanh:
        return std::tanh(a);
      case ExprKind::kSigmoid:
        return 1 / (1 + std::exp(-a));
      case ExprKind::kErf:
        return std::erf(a);
      case ExprKind::kSin:
        return std::sin(a);
      case ExprKind::kCos:
        return std::cos(a);
      case ExprKind::kFinite:
        return std::isfinite(a);
      case ExprKind::kSelect:
        return a != 0 ? b : c;
      case ExprKind::kRound:
        return round_element(a, static_cast<Dtype>(n.index));
      default:
        break;
    }
    CHECK(false, "an expression that can be evaluated");
    return 0;
  }

  // What a run needs, before any: a step allocates nothing.
  void make_room() {
    // Sums over leading axes are kept in float64 until the end.
    sums.resize(body.outputs.size());
    for (size_t k = 0; k < body.outputs.size(); ++k) {
      if (summed(k)) sums[k].resize(out_types[k].num_physical());
    }
    values.assign(body.nodes.size(), std::vector<double>(space.empty() ? 1 : space.back().size));
    where.assign(space.size(), 0);
  }

  void run() {
    const int64_t row = space.empty() ? 1 : space.back().size;
    int64_t rows = 1;
    for (size_t a = 0; a + 1 < space.size(); ++a) rows *= space[a].size;
    for (std::vector<double>& sum : sums) std::fill(sum.begin(), sum.end(), 0.0);
    for (int64_t r = 0; r < rows; ++r) {
      int64_t rest = r;
      for (size_t a = space.size(); a-- > 1;) {
        where[a - 1] = rest % space[a - 1].size;
        rest /= space[a - 1].size;
      }
      for (size_t i = 0; i < body.nodes.size(); ++i) evaluate_row(i, r, row);
      for (size_t k = 0; k < body.outputs.size(); ++k) {
        const BodyOutput& o = body.outputs[k];
        const int64_t count = o.row == BodyOutput::Row::kWhole ? row : 1;
        for (int64_t c = 0; c < count; ++c) {
          if (!space.empty()) where.back() = c;
          int64_t offset = 0;
          for (size_t a = 0; a < space.size(); ++a) offset += where[a] * out[k][a];
          const double value = values[o.node][c];
          if (summed(k)) {
            sums[k][offset] += value;
          } else {
            store_element(at.out[k], out_types[k].dtype, offset, value);
          }
        }
      }
    }
    for (size_t k = 0; k < sums.size(); ++k) {
      for (size_t i = 0; i < sums[k].size(); ++i) {
        store_element(at.out[k], out_types[k].dtype, i, sums[k][i]);
      }
    }
  }

  bool summed(size_t k) const {
    return body.outputs[k].summed_axes > 0 || body.outputs[k].row == BodyOutput::Row::kDropped;
  }

  void evaluate_row(size_t i, int64_t r, int64_t row) {
    const ExprNode& n = body.nodes[i];
    std::vector<double>& y = values[i];
    const auto arg = [&](int a, int64_t c) { return n.args[a] < 0 ? 0.0 : values[n.args[a]][c]; };
    if (n.kind == ExprKind::kRowSum || n.kind == ExprKind::kRowMax) {
      double all = n.kind == ExprKind::kRowSum ? 0 : -INFINITY;
      for (int64_t c = 0; c < row; ++c) {
        all = n.kind == ExprKind::kRowSum ? all + arg(0, c) : std::max(all, arg(0, c));
      }
      std::fill(y.begin(), y.end(), all);
    } else if (n.kind == ExprKind::kRotate) {
      for (int64_t c = 0; c < row / 2; ++c) {
        y[c] = -arg(0, c + row / 2);
        y[c + row / 2] = arg(0, c);
      }
    } else if (n.kind == ExprKind::kInput) {
      int64_t offset = 0;
      for (size_t a = 0; a + 1 < space.size(); ++a) offset += where[a] * in[n.index][a];
      const int64_t step = space.empty() ? 0 : in[n.index].back();
      const Dtype dtype = in_types[n.index].dtype;
      for (int64_t c = 0; c < row; ++c) {
        y[c] = load_element(at.in[n.index], dtype, offset + c * step);
      }
    } else if (facts(n.kind).arity == 0) {
      for (int64_t c = 0; c < row; ++c) {
        if (!space.empty()) where.back() = c;
        y[c] = leaf(n, where, r * row + c);
      }
    } else {
      for (int64_t c = 0; c < row; ++c) y[c] = evaluate(n, arg(0, c), arg(1, c), arg(2, c));
    }
  }
};

}  // namespace

Launch prepare_body_reference(const KernelCall& call, const Pointers& at) {
  auto reference = std::make_shared<Reference>();
  reference->body = body_of(call.call);
  reference->space = space_of(call.call);
  reference->in_types = call.call.inputs;
  reference->out_types = call.outputs;
  reference->at = at;
  for (size_t i = 0; i < call.call.inputs.size(); ++i) {
    reference->in.push_back(stretch(call.in_strides[i], call.call.inputs[i], reference->space));
  }
  for (size_t k = 0; k < call.outputs.size(); ++k) {
    reference->out.push_back(
        stretch_output(call.out_strides[k], reference->body.outputs[k], reference->space.size()));
  }
  reference->make_room();
  return [reference] { reference->run(); };
}

}  // namespace adjoint
