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

  // A row of a leaf that is no operand.
  void leaf(const ExprNode& n, int64_t first, std::vector<double>& y) {
    const auto row = static_cast<int64_t>(y.size());
    switch (n.kind) {
      case ExprKind::kConst:
        std::fill(y.begin(), y.end(), n.value);
        return;
      case ExprKind::kIndex:
        for (int64_t c = 0; c < row; ++c) {
          y[c] = static_cast<double>(n.index == 0 ? c : where[where.size() - 1 - n.index]);
        }
        return;
      default:
        break;
    }
    const auto* counter = static_cast<const int64_t*>(at.in[n.index]);
    int64_t sample = 1;
    for (size_t a = 1; a < space.size(); ++a) sample *= space[a].size;
    const RandomStream stream{random_key(counter[0], n.text), static_cast<uint64_t>(counter[1])};
    for (int64_t c = 0; c < row; ++c) y[c] = stream.uniform(counter[2] * sample + first + c);
  }

  // A row of an expression of its arguments' rows.
  static void evaluate(const ExprNode& n, const double* a, const double* b, const double* c,
                       std::vector<double>& y) {
    const auto each = [&](const auto& value) {
      for (size_t i = 0; i < y.size(); ++i) y[i] = value(i);
    };
    switch (n.kind) {
      case ExprKind::kAdd:
        return each([&](size_t i) { return a[i] + b[i]; });
      case ExprKind::kSub:
        return each([&](size_t i) { return a[i] - b[i]; });
      case ExprKind::kMul:
        return each([&](size_t i) { return a[i] * b[i]; });
      case ExprKind::kDiv:
        return each([&](size_t i) { return a[i] / b[i]; });
      case ExprKind::kMin:
        return each([&](size_t i) { return b[i] < a[i] ? b[i] : a[i]; });
      case ExprKind::kMax:
        return each([&](size_t i) { return a[i] < b[i] ? b[i] : a[i]; });
      case ExprKind::kLess:
        return each([&](size_t i) { return static_cast<double>(a[i] < b[i]); });
      case ExprKind::kEqual:
        return each([&](size_t i) { return static_cast<double>(a[i] == b[i]); });
      case ExprKind::kNeg:
        return each([&](size_t i) { return -a[i]; });
      case ExprKind::kExp:
        return each([&](size_t i) { return std::exp(a[i]); });
      case ExprKind::kLog:
        return each([&](size_t i) { return std::log(a[i]); });
      case ExprKind::kSqrt:
        return each([&](size_t i) { return std::sqrt(a[i]); });
      case ExprKind::kTanh:
        return each([&](size_t i) { return std::tanh(a[i]); });
      case ExprKind::kSigmoid:
        return each([&](size_t i) { return 1 / (1 + std::exp(-a[i])); });
      case ExprKind::kErf:
        return each([&](size_t i) { return std::erf(a[i]); });
      case ExprKind::kSin:
        return each([&](size_t i) { return std::sin(a[i]); });
      case ExprKind::kCos:
        return each([&](size_t i) { return std::cos(a[i]); });
      case ExprKind::kFinite:
        return each([&](size_t i) { return static_cast<double>(std::isfinite(a[i])); });
      case ExprKind::kSelect:
        return each([&](size_t i) { return a[i] != 0 ? b[i] : c[i]; });
      case ExprKind::kRound:
        return each([&](size_t i) { return round_element(a[i], static_cast<Dtype>(n.index)); });
      default:
        break;
    }
    CHECK(false, "an expression that can be evaluated");
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
        const int64_t begin = row_offset(out[k]), step = space.empty() ? 0 : out[k].back();
        for (int64_t c = 0; c < count; ++c) {
          const int64_t offset = begin + c * step;
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

  // Where the row that `where` names begins.
  int64_t row_offset(const Strides& strides) const {
    int64_t offset = 0;
    for (size_t a = 0; a + 1 < space.size(); ++a) offset += where[a] * strides[a];
    return offset;
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
      const int64_t offset = row_offset(in[n.index]);
      const int64_t step = space.empty() ? 0 : in[n.index].back();
      const Dtype dtype = in_types[n.index].dtype;
      if (dtype == Dtype::kF64) {
        const double* from = static_cast<const double*>(at.in[n.index]) + offset;
        for (int64_t c = 0; c < row; ++c) y[c] = from[c * step];
        return;
      }
      for (int64_t c = 0; c < row; ++c) {
        y[c] = load_element(at.in[n.index], dtype, offset + c * step);
      }
    } else if (facts(n.kind).arity == 0) {
      leaf(n, r * row, y);
    } else {
      const auto of = [&](int a) { return n.args[a] < 0 ? nullptr : values[n.args[a]].data(); };
      evaluate(n, of(0), of(1), of(2), y);
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
