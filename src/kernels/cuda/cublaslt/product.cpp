#include "kernels/cuda/cublaslt/product.h"

#include <algorithm>

#include "base/error.h"

namespace adjoint {

namespace {

using Epilogue = Product::Epilogue;
using Matrix = ProductCall::Matrix;

constexpr int64_t kMostCalls = 256;  // that one product is cut into

// Reached by one leading stride, row by row or column by column; the way that has real neighbours
// is tried first. An axis of size 1 has any stride.
std::optional<Matrix> matrix(int64_t rows, int64_t columns, int64_t row_step, int64_t column_step) {
  const auto way = [](bool by_rows, int64_t lines, int64_t step, int64_t length,
                      int64_t unit) -> std::optional<Matrix> {
    if (length > 1 && unit != 1) return std::nullopt;
    if (lines == 1) return Matrix{.by_rows = by_rows, .leading = std::max(length, step)};
    if (step < length) return std::nullopt;
    return Matrix{.by_rows = by_rows, .leading = step};
  };
  const auto by_rows = way(true, rows, row_step, columns, column_step);
  const auto by_columns = way(false, columns, column_step, rows, row_step);
  return by_rows && (columns > 1 || !by_columns) ? by_rows : by_columns;
}

bool takes_dtypes(const Product& p) {
  const bool half = p.dtype == Dtype::kBF16 || p.dtype == Dtype::kF16;
  return p.out_dtype == Dtype::kF32 ? half || p.dtype == Dtype::kF32
                                    : half && p.out_dtype == p.dtype;
}

// A vector goes along the whole of n or m, and a sum must be whole when an epilogue reads it.
bool takes_epilogue(const Product& p) {
  const bool alone = p.outer.empty() && p.batch.empty();
  if (is_bias_grad(p.epilogue) && (!alone || p.bias)) return false;
  if (has_aux(p.epilogue) && p.accumulate) return false;
  if (p.epilogue == Epilogue::kGeluGrad && p.bias) return false;
  return std::none_of(p.outer.begin(), p.outer.end(), [&](const Product::Outer& axis) {
    return axis.summed ? p.epilogue != Epilogue::kNone : p.bias && axis.b != 0;
  });
}

Product transposed(const Product& p) {
  Product q = p;
  std::swap(q.m, q.n);
  std::swap(q.a_batch, q.b_batch);
  q.a_m = p.b_n, q.a_k = p.b_k, q.b_k = p.a_k, q.b_n = p.a_m;
  std::swap(q.c_m, q.c_n);
  for (Product::Outer& axis : q.outer) std::swap(axis.a, axis.b);
  if (p.epilogue == Epilogue::kBiasGradA) q.epilogue = Epilogue::kBiasGradB;
  if (p.epilogue == Epilogue::kBiasGradB) q.epilogue = Epilogue::kBiasGradA;
  return q;
}

// The axes that are taken one step at a time, and the one that is the library's batch.
struct Axes {
  std::vector<Product::Outer> steps;
  Product::Outer batch = {1, 0, 0, 0, false};
};
Axes axes_of(const Product& p) {
  Axes axes{.steps = p.outer};
  for (size_t i = 0; i < p.batch.size(); ++i) {
    Product::Outer axis{p.batch[i], p.a_batch[i], p.b_batch[i], p.c_batch[i], false};
    if (axis.size >= axes.batch.size) std::swap(axis, axes.batch);
    if (axis.size > 1) axes.steps.push_back(axis);
  }
  return axes;
}

// The call that the steps repeat, before any of them.
std::optional<ProductCall> first_call(const Product& p, const Axes& axes) {
  const auto a = matrix(p.m, p.k, p.a_m, p.a_k), b = matrix(p.k, p.n, p.b_k, p.b_n);
  const auto c = matrix(p.m, p.n, p.c_m, p.c_n);
  const int64_t most = std::max({p.m, p.n, p.k, axes.batch.size});
  if (!a || !b || !c || std::min({p.m, p.n, p.k}) < 1 || most > INT32_MAX) return std::nullopt;
  // A single column of c is as good as rows of one element, if they are apart.
  const bool rows_of_one = p.n == 1 && (p.m == 1 || p.c_m >= 1);
  if (!c->by_rows && !rows_of_one) return std::nullopt;
  ProductCall call{.batch = axes.batch.size,
                   .m = p.m,
                   .n = p.n,
                   .k = p.k,
                   .a = *a,
                   .b = *b,
                   .c = c->by_rows ? *c : Matrix{.leading = p.m == 1 ? 1 : p.c_m},
                   .dtype = p.dtype,
                   .out_dtype = p.out_dtype,
                   .tf32 = p.tf32 && p.dtype == Dtype::kF32,
                   .bias = p.bias,
                   .accumulate = p.accumulate,
                   .epilogue = p.epilogue,
                   .workspace = product_cuda_workspace(p)};
  if (call.batch > 1) {
    call.a.to_next = axes.batch.a, call.b.to_next = axes.batch.b, call.c.to_next = axes.batch.c;
    if (std::min({axes.batch.a, axes.batch.b, axes.batch.c - 1}) < 0) return std::nullopt;
  }
  // The library needs every row of the auxiliary output to begin at a multiple of 8 elements.
  const bool by_eights = call.c.leading % 8 == 0 && call.c.to_next % 8 == 0;
  if (has_aux(p.epilogue) && !by_eights) return std::nullopt;
  return call;
}

std::string text_of(const Matrix& m, bool batched) {
  const std::string lies = join_parts(m.by_rows ? "rows:" : "columns:", m.leading);
  return batched ? join_parts(lies, ":", m.to_next) : lies;
}

const char* name(Epilogue epilogue) {
  switch (epilogue) {
    case Epilogue::kNone:
      return "";
    case Epilogue::kGelu:
      return " gelu";
    case Epilogue::kGeluGrad:
      return " gelu_grad";
    case Epilogue::kGeluGradBiasGrad:
      return " gelu_grad_bias_grad";
    case Epilogue::kBiasGradA:
      return " bias_grad_a";
    case Epilogue::kBiasGradB:
      return " bias_grad_b";
  }
  return "";
}

}  // namespace

bool is_bias_grad(Epilogue epilogue) {
  return epilogue == Epilogue::kBiasGradA || epilogue == Epilogue::kBiasGradB ||
         epilogue == Epilogue::kGeluGradBiasGrad;
}

bool has_aux(Epilogue epilogue) {
  return epilogue == Epilogue::kGelu || epilogue == Epilogue::kGeluGrad ||
         epilogue == Epilogue::kGeluGradBiasGrad;
}

std::optional<std::vector<ProductCall>> cublaslt_calls(const Product& p) {
  if (!takes_dtypes(p) || !takes_epilogue(p)) return std::nullopt;
  Product q = p;
  auto first = first_call(q, axes_of(q));
  // A vector along n is one along the rows of the library's c: not where c is transposed.
  const bool along_n = p.bias || p.epilogue == Epilogue::kGeluGradBiasGrad;
  if (!first && !along_n) {
    q = transposed(p);
    first = first_call(q, axes_of(q));
    if (first) first->transposed = true;
  }
  if (!first) return std::nullopt;
  const Axes axes = axes_of(q);
  int64_t count = 1;
  for (const Product::Outer& axis : axes.steps) {
    if (axis.size < 1 || axis.size > kMostCalls) return std::nullopt;
    count *= axis.size;
    if (count > kMostCalls) return std::nullopt;
  }
  std::vector<ProductCall> calls;
  for (int64_t i = 0; i < count; ++i) {
    ProductCall call = *first;
    int64_t rest = i;
    for (size_t axis = axes.steps.size(); axis-- > 0;) {
      const Product::Outer& step = axes.steps[axis];
      const int64_t at = rest % step.size;
      call.a.begin += at * step.a, call.b.begin += at * step.b, call.c.begin += at * step.c;
      call.continues = call.continues || (step.summed && at > 0);
      rest /= step.size;
    }
    call.accumulate = p.accumulate || call.continues;
    call.bias = p.bias && !call.continues;
    calls.push_back(call);
  }
  return calls;
}

bool cublaslt_takes(const Product& p) { return cublaslt_calls(p).has_value(); }

std::string product_key(const ProductCall& call, const ProductAlignments& aligned) {
  const bool batched = call.batch > 1;
  std::string key = join_parts(name(call.dtype), "->", name(call.out_dtype), " batch=", call.batch,
                               " m=", call.m, " n=", call.n, " k=", call.k,
                               " a=", text_of(call.a, batched), " b=", text_of(call.b, batched),
                               " c=", text_of(call.c, batched), name(call.epilogue));
  if (call.bias) key += " bias";
  if (call.accumulate) key += " accumulate";
  if (call.tf32) key += " tf32";
  key += join_parts(" workspace=", call.workspace.count, " aligned=", aligned.a, ",", aligned.b,
                    ",", aligned.c);
  if (call.accumulate) key += join_parts(" addend:", aligned.addend);
  if (call.bias || is_bias_grad(call.epilogue)) key += join_parts(" bias:", aligned.bias);
  if (has_aux(call.epilogue)) key += join_parts(" aux:", aligned.aux);
  return key;
}

Bytes product_cuda_workspace(const Product& p) {
  // As a float: a product of sizes may exceed an integer, and only its magnitude matters.
  const double work = static_cast<double>(p.m) * static_cast<double>(p.n) *
                      static_cast<double>(p.k) * static_cast<double>(axes_of(p).batch.size);
  // NVIDIA recommends 32 MiB on Hopper and 4 MiB before; below a billion multiplications there
  // are too few pieces of a sum to fill even that.
  constexpr int64_t kMiB = 1 << 20;
  const int64_t wanted = work >= 1e9 ? 32 * kMiB : work >= 1e7 ? 4 * kMiB : kMiB;
  return std::min(Bytes{wanted + kWorkspaceAligned}, p.workspace_cap);
}

}  // namespace adjoint
