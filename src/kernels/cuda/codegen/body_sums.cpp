#include "kernels/cuda/codegen/body_sums.h"

#include "body/facts.h"
#include "kernels/cuda/codegen/source.h"

namespace adjoint::cuda_source {

namespace {

class SumsWriter : Lines {
 public:
  explicit SumsWriter(const CudaCut& cut) : cut_(cut), s_(cut.space) {}

  std::string declared() {
    for_sums([&](size_t k, bool row) {
      row ? line("real acc{}[{}] = {{}};", k, cut_.chunks * kChunk) : line("real acc{} = 0;", k);
    });
    return std::move(out_);
  }

  // Of the group's rows, to the workspace, or where they belong if nobody else has any.
  std::string left(const std::vector<bool>& out_chunks) {
    line("{{");
    out_ += position(s_, "suffix");
    for_sums([&](size_t k, bool row) {
      const bool direct = cut_.direct(k);
      const std::string_view type = direct ? element_of(cut_.out_types[k].dtype) : "real";
      line("{0}* to{1} = {2};", type, k,
           direct ? fmt::format("({}*)a.out[{}] + {}", type, k, offset(s_.out[k]))
                  : fmt::format("a.partial[{}] + (block * {}ll + suffix) * {}ll", k,
                                s_.suffix_rows(), row ? s_.row() : 1));
      if (!row) {
        line("if (lane == 0 && tile == 0) *to{0} = To<{1}>::of(acc{0});", k, type);
        return;
      }
      out_ += chunk_loop(cut_);
      line(
          "real y{0}[8];\n#pragma unroll\nfor (int v = 0; v < 8; ++v) y{0}[v] = acc{0}[c * 8 + v];",
          k);
      out_ += direct ? stored(k, "to", "y", type, out_chunks[k], s_.out[k].back())
                     : stored(k, "to", "y", type, s_.row() % kChunk == 0, 1);
      line("}}");
    });
    line("}}");
    return std::move(out_);
  }

  // Adds up the sums of all blocks: 32 elements at a time, by 32 threads each.
  std::string finish() {
    bool any = false;
    for_sums([&](size_t k, bool) { any = any || !cut_.direct(k); });
    if (!any) return "";
    line(
        "extern \"C\" __global__ void __launch_bounds__(1024) finish(const __grid_constant__ Args "
        "a) {{");
    line("await_earlier();");
    line("__shared__ real sums[32][33];");
    line("const int x = threadIdx.x % 32, y = threadIdx.x / 32;");
    line("const i64 j = (i64)blockIdx.x * 32 + x;");
    line("real sum = 0;");
    for_sums([&](size_t k, bool) {
      if (cut_.direct(k)) return;
      const int64_t terms = cut_.blocks * cut_.partial_size[k] / s_.sum_size[k];
      line("if (blockIdx.y == {} && j < {}ll) {{", k, s_.sum_size[k]);
      line("const real* from = a.partial[{}] + y * {}ll + j;", k, s_.sum_size[k]);
      line("#pragma unroll 16\nfor (int t = 0; t < {}; ++t, from += {}ll) sum += *from;",
           terms / 32, 32 * s_.sum_size[k]);
      if (terms % 32 > 0) line("if (y < {}) sum += *from;", terms % 32);
      line("}}");
    });
    line("sums[y][x] = sum;\n__syncthreads();\nif (y > 0) return;");
    line("#pragma unroll\nfor (int i = 1; i < 32; ++i) sum += sums[i][x];");
    for_sums([&](size_t k, bool row) {
      if (cut_.direct(k)) return;
      const std::string_view type = element_of(cut_.out_types[k].dtype);
      line("if (blockIdx.y == {} && j < {}ll) {{", k, s_.sum_size[k]);
      line("const idx suffix = j / {0}ll, col = j % {0}ll;", row ? s_.row() : 1);
      out_ += position(s_, "suffix");
      line("(({0}*)a.out[{1}])[{2} + col * {3}ll] = To<{0}>::of(sum);\n}}", type, k,
           offset(s_.out[k]), row ? s_.out[k].back() : 0);
    });
    line("}}");
    return std::move(out_);
  }

 private:
  // Calls f(output, whether it has a whole row).
  template <class F>
  void for_sums(const F& f) {
    const std::vector<BodyOutput>& outputs = s_.body.outputs;
    for (size_t k = 0; k < outputs.size(); ++k) {
      if (is_sum(outputs[k])) f(k, outputs[k].row == BodyOutput::Row::kWhole);
    }
  }

  const CudaCut& cut_;
  const BodySpace& s_;
};

}  // namespace

std::string declared_sums(const CudaCut& cut) { return SumsWriter(cut).declared(); }

std::string left_sums(const CudaCut& cut, const std::vector<bool>& out_chunks) {
  return SumsWriter(cut).left(out_chunks);
}

std::string finish_kernel(const CudaCut& cut) { return SumsWriter(cut).finish(); }

}  // namespace adjoint::cuda_source
