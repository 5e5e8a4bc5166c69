// The source of many calls of one body in one launch. Blocks of CUDA's are numbered over all calls,
// and each finds whose it is.
//   struct Member { void* at[own + outputs]; i64 size; u32 first, unused; };
//   struct Args { Member members[..]; const void* shared[..]; i64 count; };
// Sums share nothing, and have instead the place where blocks leave theirs: real* partial.
#include <algorithm>

#include "kernels/cuda/codegen/body_prelude.h"
#include "kernels/cuda/codegen/source.h"

namespace adjoint {

namespace {

using namespace cuda_source;

class GangWriter : Lines {
 public:
  explicit GangWriter(const CudaGang& gang) : gang_(gang), body_(gang.body) {
    for (const ExprNode& n : body_.nodes) {
      bool any = n.kind == ExprKind::kInput && n.index < static_cast<int>(own());
      for (int a = 0; a < facts(n.kind).arity; ++a) any = any || varies_[n.args[a]];
      varies_.push_back(any);
    }
  }

  std::string text() {
    line("typedef float real;");
    out_ += cuda_instructions();
    out_ += cuda_prelude();
    line("struct Member {{ void* at[{}]; i64 size; u32 first, unused; }};",
         own() + gang_.outputs.size());
    line("struct Args {{ Member members[{}]; {}i64 count; }};", gang_.members,
         gang_.sums             ? "real* partial; "
         : gang_.shared.empty() ? ""
                                : fmt::format("const void* shared[{}]; ", gang_.shared.size()));
    if (gang_.sums) {
      write_sums();
      write_finish();
    } else {
      write_gang();
    }
    return std::move(out_);
  }

 private:
  size_t own() const { return gang_.own.size(); }

  void open_kernel(const char* name) {
    line("extern \"C\" __global__ void __launch_bounds__({}) {}(const __grid_constant__ Args a) {{",
         CudaGang::kThreads, name);
  }

  // The last member that begins at this block or before it.
  void find_member() {
    line("int low = 0, high = (int)a.count - 1;");
    line(
        "while (low < high) {{ const int middle = (low + high + 1) / 2; "
        "if (a.members[middle].first <= blockIdx.x) low = middle; else high = middle - 1; }}");
    line("const Member& m = a.members[low];");
    line("const i64 begin = (i64)(blockIdx.x - m.first) * {};", gang_.block_elements());
  }

  std::string node(int i) const {
    const ExprNode& n = body_.nodes[i];
    return n.kind == ExprKind::kConst ? literal(n.value, false) : fmt::format("n{}", i);
  }
  std::string written(const ExprNode& n) const {
    const auto arg = [&](int a) { return n.args[a] < 0 ? std::string() : node(n.args[a]); };
    return expression(n, arg(0), arg(1), arg(2));
  }

  // What is the same for all elements.
  void write_shared() {
    for (size_t i = 0; i < body_.nodes.size(); ++i) {
      const ExprNode& n = body_.nodes[i];
      if (varies_[i] || n.kind == ExprKind::kConst || n.kind == ExprKind::kRowSum) continue;
      const size_t k = n.kind == ExprKind::kInput ? n.index - own() : 0;
      line("const real n{} = {};", i,
           n.kind == ExprKind::kInput
               ? fmt::format("get(*(const {}*)a.shared[{}])", element_of(gang_.shared[k]), k)
               : written(n));
    }
  }

  void load_chunks(const char* whole) {
    for (size_t k = 0; k < own(); ++k) {
      const bool used = std::any_of(body_.nodes.begin(), body_.nodes.end(), [&](const ExprNode& n) {
        return n.kind == ExprKind::kInput && n.index == static_cast<int>(k);
      });
      if (!used) continue;
      line("const Chunk<{0}> x{1} = load<{2}>((const {0}*)m.at[{1}] + col, 1, n);",
           element_of(gang_.own[k]), k, whole);
    }
  }

  // Of element v of the chunks.
  void write_nodes() {
    for (size_t i = 0; i < body_.nodes.size(); ++i) {
      const ExprNode& n = body_.nodes[i];
      if (!varies_[i] || n.kind == ExprKind::kRowSum) continue;
      line("const real n{} = {};", i,
           n.kind == ExprKind::kInput ? fmt::format("x{}.get(v)", n.index) : written(n));
    }
  }

  void write_gang() {
    open_kernel("gang");
    find_member();
    line("const i64 col = begin + threadIdx.x * 8;");
    line("if (col >= m.size) return;");
    line("const int n = m.size - col > 8 ? 8 : (int)(m.size - col);");
    write_shared();
    line("if (n == 8 && {})", gang_.chunks);
    write_chunk("true");
    line("else");
    write_chunk("false");
    line("}}");
  }

  void write_chunk(const char* whole) {
    line("{{");
    load_chunks(whole);
    for (size_t k = 0; k < gang_.outputs.size(); ++k) {
      line("real y{}[8];", k);
    }
    line("#pragma unroll\nfor (int v = 0; v < 8; ++v) {{");
    write_nodes();
    for (size_t k = 0; k < gang_.outputs.size(); ++k) {
      line("y{}[v] = {};", k, node(body_.outputs[k].node));
    }
    line("}}");
    for (size_t k = 0; k < gang_.outputs.size(); ++k) {
      line("store<{0}>(({1}*)m.at[{2}] + col, 1, n, Chunk<{1}>::of(y{3}));", whole,
           element_of(gang_.outputs[k]), own() + k, k);
    }
    line("}}");
  }

  // Every thread adds its chunks in order, then threads add theirs by a tree.
  void write_sums() {
    line("__device__ inline real block_sum(real x) {{");
    line("#pragma unroll");
    line("for (int m = 16; m > 0; m /= 2) x += __shfl_xor_sync(0xffffffffu, x, m);");
    line("__shared__ real parts[{}];", CudaGang::kThreads / 32);
    line("__syncthreads();");
    line("if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = x;");
    line("__syncthreads();");
    line("x = parts[0];");
    line("#pragma unroll");
    line("for (int i = 1; i < {}; ++i) x += parts[i];", CudaGang::kThreads / 32);
    line("return x;\n}}");
    open_kernel("sums");
    find_member();
    write_shared();
    for_outputs([&](size_t k) { line("real r{} = 0;", k); });
    // A whole block's loads wait for nothing.
    line("if ({} && begin + {} <= m.size) {{", gang_.chunks, gang_.block_elements());
    write_added("true", "8");
    line("}} else {{");
    write_added("false", "m.size - col > 8 ? 8 : (int)(m.size - col)");
    line("}}");
    for_outputs([&](size_t k) { line("r{0} = block_sum(r{0});", k); });
    line("if (threadIdx.x != 0) return;");
    for_outputs([&](size_t k) {
      line("a.partial[(i64)blockIdx.x * {} + {}] = r{};", gang_.outputs.size(), k, k);
    });
    line("}}");
  }

  void write_added(const char* whole, const char* elements) {
    line("#pragma unroll 4\nfor (int i = 0; i < {}; ++i) {{", CudaGang::kSumChunks);
    line("const i64 col = begin + (i * {} + threadIdx.x) * 8;", CudaGang::kThreads);
    line("const int n = {};", elements);
    load_chunks(whole);
    line("#pragma unroll\nfor (int v = 0; v < 8; ++v) if (v < n) {{");
    write_nodes();
    for_outputs(
        [&](size_t k) { line("r{} += {};", k, node(body_.nodes[body_.outputs[k].node].args[0])); });
    line("}}\n}}");
  }

  // One block a member: the sums of its blocks.
  void write_finish() {
    open_kernel("finish");
    line("const Member& m = a.members[blockIdx.x];");
    line("const i64 blocks = (m.size + {0} - 1) / {0};", gang_.block_elements());
    for_outputs([&](size_t k) {
      line("{{\nreal sum = 0;");
      line(
          "for (i64 t = threadIdx.x; t < blocks; t += {}) sum += a.partial[(m.first + t) * {} + "
          "{}];",
          CudaGang::kThreads, gang_.outputs.size(), k);
      line("sum = block_sum(sum);");
      line("if (threadIdx.x == 0) *({0}*)m.at[{1}] = To<{0}>::of(sum);\n}}",
           element_of(gang_.outputs[k]), own() + k);
    });
    line("}}");
  }

  template <class F>
  void for_outputs(const F& f) {
    for (size_t k = 0; k < gang_.outputs.size(); ++k) f(k);
  }

  const CudaGang& gang_;
  const Body& body_;
  std::vector<bool> varies_;  // per node: from element to element
};

}  // namespace

std::string cuda_gang_text(const CudaGang& gang) { return GangWriter(gang).text(); }

}  // namespace adjoint
