// The reference reading: every expression in float64, a row at a time, in plain loops. It shares
// nothing with the fast reading but the body itself.
#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>

#include "base/philox.h"
#include "body/facts.h"
#include "device/parallel.h"
#include "kernels/body_readings.h"
#include "scheme/elements.h"

namespace adjoint {

namespace {

constexpr int64_t kWorkOfThread = 1 << 14;  // elements of all nodes: less is not worth a thread

// A row of an expression of its arguments' rows.
ADJOINT_SIMD void evaluate(const ExprNode& n, const double* a, const double* b, const double* c,
                           double* __restrict y, int64_t row) {
  const auto each = [&](const auto& value) {
    for (int64_t i = 0; i < row; ++i) y[i] = value(i);
  };
  switch (n.kind) {
    case ExprKind::kAdd:
      return each([&](int64_t i) { return a[i] + b[i]; });
    case ExprKind::kSub:
      return each([&](int64_t i) { return a[i] - b[i]; });
    case ExprKind::kMul:
      return each([&](int64_t i) { return a[i] * b[i]; });
    case ExprKind::kDiv:
      return each([&](int64_t i) { return a[i] / b[i]; });
    case ExprKind::kMin:
      return each([&](int64_t i) { return b[i] < a[i] ? b[i] : a[i]; });
    case ExprKind::kMax:
      return each([&](int64_t i) { return a[i] < b[i] ? b[i] : a[i]; });
    case ExprKind::kLess:
      return each([&](int64_t i) { return static_cast<double>(a[i] < b[i]); });
    case ExprKind::kEqual:
      return each([&](int64_t i) { return static_cast<double>(a[i] == b[i]); });
    case ExprKind::kNeg:
      return each([&](int64_t i) { return -a[i]; });
    case ExprKind::kExp:
      return each([&](int64_t i) { return std::exp(a[i]); });
    case ExprKind::kLog:
      return each([&](int64_t i) { return std::log(a[i]); });
    case ExprKind::kSqrt:
      return each([&](int64_t i) { return std::sqrt(a[i]); });
    case ExprKind::kTanh:
      return each([&](int64_t i) { return std::tanh(a[i]); });
    case ExprKind::kSigmoid:
      return each([&](int64_t i) { return 1 / (1 + std::exp(-a[i])); });
    case ExprKind::kErf:
      return each([&](int64_t i) { return std::erf(a[i]); });
    case ExprKind::kSin:
      return each([&](int64_t i) { return std::sin(a[i]); });
    case ExprKind::kCos:
      return each([&](int64_t i) { return std::cos(a[i]); });
    case ExprKind::kFinite:
      return each([&](int64_t i) { return static_cast<double>(std::isfinite(a[i])); });
    case ExprKind::kWhole:
      return each([&](int64_t i) { return std::nearbyint(a[i]); });
    case ExprKind::kSelect:
      return each([&](int64_t i) { return a[i] != 0 ? b[i] : c[i]; });
    case ExprKind::kRound:
      return each([&](int64_t i) { return round_element(a[i], static_cast<Dtype>(n.index)); });
    default:
      break;
  }
  CHECK(false, "an expression that can be evaluated");
}

struct Reference {
  // What one thread works with.
  struct Worker {
    std::vector<std::vector<double>> values;  // per node: a row
    std::vector<int64_t> where;               // the row's place along the other axes
  };

  Body body;
  std::vector<Axis> space;
  std::vector<Type> in_types, out_types;
  std::vector<Strides> in, out;  // along the axes of the space
  Pointers at;
  int64_t row = 1, rows = 1;
  std::vector<std::vector<double>> sums = {};  // per output
  std::vector<Worker> workers = {};

  // What a run needs, before any: a step allocates nothing.
  void make_room(int threads) {
    if (!space.empty()) row = space.back().size;
    for (size_t a = 0; a + 1 < space.size(); ++a) rows *= space[a].size;
    // Sums over leading axes are kept in float64 until the end.
    bool any_summed = false;
    sums.resize(body.outputs.size());
    for (size_t k = 0; k < body.outputs.size(); ++k) {
      if (summed(k)) sums[k].resize(out_types[k].num_physical());
      any_summed |= summed(k);
    }
    // Rows are independent of each other unless they are summed.
    workers.resize(any_summed ? 1 : threads);
    for (Worker& worker : workers) {
      worker.values.assign(body.nodes.size(), std::vector<double>(row));
      worker.where.assign(space.size(), 0);
      for (size_t i = 0; i < body.nodes.size(); ++i) {
        const ExprNode& n = body.nodes[i];
        if (n.kind == ExprKind::kConst) worker.values[i].assign(row, n.value);
      }
    }
  }

  void run() {
    for (std::vector<double>& sum : sums) std::fill(sum.begin(), sum.end(), 0.0);
    const int64_t work = rows * row * static_cast<int64_t>(body.nodes.size());
    const auto most = static_cast<int64_t>(workers.size());
    const int64_t ranges = std::clamp<int64_t>(work / kWorkOfThread, 1, most);
    parallel_for(ranges, 1, [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) {
        run_rows(workers[i], rows * i / ranges, rows * (i + 1) / ranges);
      }
    });
    for (size_t k = 0; k < sums.size(); ++k) {
      for (size_t i = 0; i < sums[k].size(); ++i) {
        store_element(at.out[k], out_types[k].dtype, i, sums[k][i]);
      }
    }
  }

  void run_rows(Worker& worker, int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      int64_t rest = r;
      for (size_t a = space.size(); a-- > 1;) {
        worker.where[a - 1] = rest % space[a - 1].size;
        rest /= space[a - 1].size;
      }
      for (size_t i = 0; i < body.nodes.size(); ++i) evaluate_row(worker, i, r);
      for (size_t k = 0; k < body.outputs.size(); ++k) store_row(worker, k);
    }
  }

  void store_row(const Worker& worker, size_t k) {
    const BodyOutput& o = body.outputs[k];
    const int64_t count = o.row == BodyOutput::Row::kWhole ? row : 1;
    const int64_t begin = row_offset(worker, out[k]), step = space.empty() ? 0 : out[k].back();
    const double* from = worker.values[o.node].data();
    const Dtype dtype = out_types[k].dtype;
    if (summed(k)) {
      for (int64_t c = 0; c < count; ++c) sums[k][begin + c * step] += from[c];
    } else if (dtype == Dtype::kF64 && step == 1) {
      std::copy(from, from + count, static_cast<double*>(at.out[k]) + begin);
    } else {
      for (int64_t c = 0; c < count; ++c) {
        store_element(at.out[k], dtype, begin + c * step, from[c]);
      }
    }
  }

  // Where the worker's row begins.
  int64_t row_offset(const Worker& worker, const Strides& strides) const {
    int64_t offset = 0;
    for (size_t a = 0; a + 1 < space.size(); ++a) offset += worker.where[a] * strides[a];
    return offset;
  }

  bool summed(size_t k) const {
    return body.outputs[k].summed_axes > 0 || body.outputs[k].row == BodyOutput::Row::kDropped;
  }

  void evaluate_row(Worker& worker, size_t i, int64_t r) const {
    const ExprNode& n = body.nodes[i];
    double* y = worker.values[i].data();
    const auto of = [&](int a) -> const double* {
      return n.args[a] < 0 ? nullptr : worker.values[n.args[a]].data();
    };
    switch (n.kind) {
      case ExprKind::kConst:  // is there since make_room
        return;
      case ExprKind::kRowSum:
        return std::fill(y, y + row, std::accumulate(of(0), of(0) + row, 0.0));
      case ExprKind::kRowMax: {
        double most = -INFINITY;
        for (int64_t c = 0; c < row; ++c) most = std::max(most, of(0)[c]);
        return std::fill(y, y + row, most);
      }
      case ExprKind::kRotate:
        for (int64_t c = 0; c < row / 2; ++c) {
          y[c] = -of(0)[c + row / 2];
          y[c + row / 2] = of(0)[c];
        }
        return;
      case ExprKind::kInput:
        return load_row(worker, n.index, y);
      case ExprKind::kIndex:
        for (int64_t c = 0; c < row; ++c) {
          y[c] = static_cast<double>(
              n.index == 0 ? c : worker.where[worker.where.size() - 1 - n.index]);
        }
        return;
      default:
        break;
    }
    if (facts(n.kind).arity == 0) return draw_row(n, r * row, y);
    evaluate(n, of(0), of(1), of(2), y, row);
  }

  void load_row(const Worker& worker, int index, double* y) const {
    const int64_t offset = row_offset(worker, in[index]);
    const int64_t step = space.empty() ? 0 : in[index].back();
    const Dtype dtype = in_types[index].dtype;
    if (dtype == Dtype::kF64) {
      const double* from = static_cast<const double*>(at.in[index]) + offset;
      if (step == 1) {
        std::copy(from, from + row, y);
      } else {
        for (int64_t c = 0; c < row; ++c) y[c] = from[c * step];
      }
      return;
    }
    for (int64_t c = 0; c < row; ++c) y[c] = load_element(at.in[index], dtype, offset + c * step);
  }

  // Random numbers, of which `first` elements came before.
  void draw_row(const ExprNode& n, int64_t first, double* y) const {
    const auto* counter = static_cast<const int64_t*>(at.in[n.index]);
    int64_t sample = 1;
    for (size_t a = 1; a < space.size(); ++a) sample *= space[a].size;
    const RandomStream stream{random_key(counter[0], n.text), static_cast<uint64_t>(counter[1])};
    for (int64_t c = 0; c < row; ++c) y[c] = stream.uniform(counter[2] * sample + first + c);
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
  reference->make_room(call.threads);
  return [reference] { reference->run(); };
}

}  // namespace adjoint
