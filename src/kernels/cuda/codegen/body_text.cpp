// The CUDA reading of a body: its source, with every size and stride written into it.
#include <algorithm>
#include <set>

#include "base/error.h"
#include "base/philox.h"
#include "body/facts.h"
#include "kernels/cuda/codegen/body_prelude.h"
#include "kernels/cuda/codegen/body_sums.h"
#include "kernels/cuda/codegen/source.h"

namespace adjoint {

namespace {

using namespace cuda_source;

constexpr int kMostLanes = 1024;  // of a group

bool is_reduction(ExprKind kind) { return kind == ExprKind::kRowSum || kind == ExprKind::kRowMax; }

class Writer : Lines {
 public:
  Writer(const CudaCut& cut, const std::vector<bool>& in_chunks,
         const std::vector<bool>& out_chunks)
      : cut_(cut),
        s_(cut.space),
        body_(cut.space.body),
        in_chunks_(in_chunks),
        out_chunks_(out_chunks) {
    for (const ExprNode& n : body_.nodes) {
      int level = is_reduction(n.kind);
      for (int a = 0; a < facts(n.kind).arity; ++a) {
        level = std::max(level, level_[n.args[a]] + is_reduction(n.kind));
      }
      level_.push_back(level);
      passes_ = std::max(passes_, level);
      rotates_ = rotates_ || n.kind == ExprKind::kRotate;
    }
    if (cut.loops && rotates_) {
      throw MachineError(
          join_parts("a row of ", s_.row(), " elements is too long to rotate on a GPU"));
    }
    for (size_t k = 0; k < body_.outputs.size(); ++k) {
      if (cut.loops && is_sum(body_.outputs[k]) &&
          body_.outputs[k].row == BodyOutput::Row::kWhole) {
        throw MachineError(
            join_parts("rows of ", s_.row(), " elements are too long to add up on a GPU"));
      }
    }
    // Rows of a sum follow each other in one thread: some are read before the first is computed.
    batch_ = !s_.sums || cut.loops ? 1 : cut.whole ? 2 : 4;
    cached_ = !cut.loops && (passes_ > 0 || rotates_ || batch_ > 1);
    constexpr int64_t kMost = INT32_MAX / 2;  // positions past the end are counted, too
    narrow_ = s_.rows <= kMost && s_.row() <= kMost && cut.units() <= kMost / cut.group;
  }

  std::string text() {
    line("typedef {} real;", cut_.wide ? "double" : "float");
    out_ += cuda_instructions();
    out_ += cuda_prelude();
    line("typedef {} idx;", narrow_ ? "int" : "i64");
    line("struct Args {{ const void* in[{}]; void* out[{}]; real* partial[{}]; }};",
         std::max<size_t>(1, s_.in.size()), s_.out.size(), s_.out.size());
    if (passes_ > 0) write_reductions();
    write_kernel();
    out_ += finish_kernel(cut_);
    return std::move(out_);
  }

 private:
  using Node = std::pair<int, int>;  // a node, and whether it is that of the other half's element

  void write_reductions() {
    for (const char* op : {"sum", "max"}) {
      line("__device__ inline real reduce_{}(real x, u32 mask) {{", op);
      for (int64_t m = std::min<int64_t>(cut_.group, 32) / 2; m > 0; m /= 2) {
        line("  x = {}_op(x, __shfl_xor_sync(mask, x, {}));", op, m);
      }
      if (cut_.group > 32) {
        line("  __shared__ real parts[{}];", cut_.group / 32);
        line("  __syncthreads();");
        line("  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = x;");
        line("  __syncthreads();");
        line("  x = parts[0];");
        line("#pragma unroll");
        line("  for (int i = 1; i < {}; ++i) x = {}_op(x, parts[i]);", cut_.group / 32, op);
      }
      line("  return x;\n}}");
    }
  }

  void write_kernel() {
    line(
        "extern \"C\" __global__ void __launch_bounds__({}) body(const __grid_constant__ Args a) "
        "{{",
        cut_.threads());
    line("await_earlier();");
    line("const idx unit = ((idx)blockIdx.x * {} + (idx)threadIdx.x) / {};", cut_.threads(),
         cut_.group);
    line("if (unit >= {}ll) return;", cut_.units());
    line("const int lane = threadIdx.x % {};", cut_.group);
    if (passes_ > 0 || rotates_ || batch_ > 1) {
      line("const u32 mask = {};",
           cut_.group >= 32 ? "0xffffffffu"
                            : fmt::format("{:#x}u << (threadIdx.x % 32 / {} * {})",
                                          (1u << cut_.group) - 1, cut_.group, cut_.group));
    }
    line("const idx tile = {}, place = {};", modulo("unit", cut_.tiles),
         quotient("unit", cut_.tiles));
    for (const int i : randoms()) {
      const ExprNode& n = body_.nodes[i];
      line("const i64* counter{0} = (const i64*)a.in[{1}];", i, n.index);
      line("const u64 key{0} = random_key({1:#x}ull, counter{0}[0]), step{0} = counter{0}[1];", i,
           stable_hash(n.text));
      line("const u64 base{0} = counter{0}[2] * {1}ll;", i, s_.sample);
    }
    if (!s_.sums) {
      const std::string loads = declare_caches(1);
      write_loads(0, 0, loads);
      close_loads(false);
      open_row(0, 0);
      write_row();
      line("}}");
    } else {
      line("const idx block = {}, suffix = {};", quotient("place", s_.suffix_rows()),
           modulo("place", s_.suffix_rows()));
      out_ += declared_sums(cut_);
      // Only the last block may have fewer rows than the others, so only it needs the check.
      line("idx lead = block * {};", cut_.block_rows);
      line("const idx last = lead + {0} < {1} ? lead + {0} : {1};", cut_.block_rows,
           s_.summed_rows);
      write_rows(batch_);
      if (batch_ > 1 && s_.summed_rows % batch_ != 0) write_rows(1);
      out_ += left_sums(cut_, out_chunks_);
    }
    line("}}");
  }

  // Rows from `lead` on, as long as there are so many.
  void write_rows(int batch) {
    // Where every block has whole batches, and so at least one, this is said: the compiler would
    // write the loop's first turn down once more.
    const bool even = batch == batch_ && s_.summed_rows > 0 && s_.summed_rows % batch == 0;
    const std::string more = fmt::format("lead + {} <= last", batch);
    line("{{");
    const std::string loads = declare_caches(batch);
    // While a long row is computed the next one is on its way; short ones come all together.
    const bool ahead = batch > 1 && passes_ > 0 && !rotates_ && !loads.empty();
    if (ahead) write_loads(0, 0, loads, even ? "" : "lead < last");
    line("{}", even ? "do {" : "while (" + more + ") {");
    if (!ahead) {
      for (int u = 0; u < batch; ++u) write_loads(u, u, loads);
      close_loads(batch > 1);
    }
    for (int u = 0; u < batch; ++u) {
      if (ahead) {
        write_loads((u + 1) % batch, u + 1, loads,
                    u + 1 < batch ? "" : fmt::format("lead + {} < last", batch));
        close_loads(true);
      }
      open_row(u, u);
      write_row();
      line("{}", ahead ? "}\n}" : "}");
    }
    if (!ahead && batch > 1) line("}}");
    line("lead += {};\n}}{}\n}}", batch, even ? " while (" + more + ");" : "");
  }
  // Between what is read and what follows from it. A rotation may be written where it was read, by
  // others. And the compiler would move loads down to where they are needed, one row's after the
  // other's, but not past a place where threads meet and may part: as a grid has one row of blocks,
  // none does.
  void close_loads(bool fence) {
    if (rotates_ && cut_.group > 32) {
      line("__syncthreads();");
    } else if (rotates_ || fence) {
      line("__syncwarp(mask);");
    }
    if (fence) line("if (lane < (int)gridDim.y * {}) {{", kMostLanes);
  }
  void open_row(int slot, int row) {
    const std::string at = fmt::format("lead + {}", row);
    const int64_t suffix = s_.suffix_rows();
    line("{{\nconst int u = {};\nconst idx row = {};", slot,
         !s_.sums      ? "place"
         : suffix == 1 ? at
                       : fmt::format("({}) * {} + suffix", at, suffix));
  }
  void write_loads(int slot, int row, const std::string& loads, const std::string& where = "") {
    if (loads.empty()) return;
    if (!where.empty()) line("if ({})", where);
    open_row(slot, row);
    out_ += position(s_, "row");
    write_operands(true);
    out_ += chunk_loop(cut_) + "if (n > 0) {\n" + loads + "}\n}\n}\n";
  }

  static std::string quotient(const char* a, int64_t b) {
    return b == 1 ? a : fmt::format("{} / {}", a, b);
  }
  static std::string modulo(const char* a, int64_t b) {
    return b == 1 ? "0" : fmt::format("{} % {}", a, b);
  }

  std::vector<int> randoms() const {
    std::vector<int> all;
    for (size_t i = 0; i < body_.nodes.size(); ++i) {
      if (body_.nodes[i].kind == ExprKind::kRandom) all.push_back(static_cast<int>(i));
    }
    return all;
  }

  bool reads(int input) const {
    return std::any_of(body_.nodes.begin(), body_.nodes.end(), [&](const ExprNode& n) {
      return n.kind == ExprKind::kInput && n.index == input;
    });
  }
  bool row_varies(int input) const { return s_.in[input].back() != 0; }
  // The same for every row: it lies in the cache, and registers are for what does not.
  bool same_for_rows(int input) const {
    return std::all_of(s_.in[input].begin(), s_.in[input].end() - 1,
                       [](int64_t x) { return x == 0; });
  }
  bool cached(int input) const { return cached_ && row_varies(input) && !same_for_rows(input); }

  std::string chunk_of(int input) const {
    return fmt::format("load<{}>(in{} + col * {}ll, {}ll, n)", static_cast<bool>(in_chunks_[input]),
                       input, s_.in[input].back(), s_.in[input].back());
  }

  void write_operands(bool only_cached) {
    for (size_t i = 0; i < s_.in.size(); ++i) {
      const int input = static_cast<int>(i);
      if (!reads(input) || (only_cached && !row_varies(input))) continue;
      line("const {0}* in{1} = (const {0}*)a.in[{1}] + {2};", element_of(cut_.in_types[i].dtype), i,
           offset(s_.in[i]));
    }
  }

  void write_row() {
    out_ += position(s_, "row");
    write_operands(false);
    for (size_t k = 0; k < s_.out.size(); ++k) {
      if (is_sum(body_.outputs[k])) continue;
      line("{0}* out{1} = ({0}*)a.out[{1}] + {2};", element_of(cut_.out_types[k].dtype), k,
           offset(s_.out[k]));
    }
    write_scalars(0);
    for (int pass = 0; pass < passes_; ++pass) write_pass(pass);
    write_results();
  }

  // Room for what is read before it is computed, of as many rows; and how slot u of it is filled.
  std::string declare_caches(int rows) {
    if (!cached_) return "";
    const std::set<int> shifted = read_from_other_half();
    std::string loads;
    for (size_t i = 0; i < s_.in.size(); ++i) {
      const int input = static_cast<int>(i);
      if (!reads(input)) continue;
      const std::string_view type = element_of(cut_.in_types[i].dtype);
      if (cached(input)) {
        line("Chunk<{}> c{}[{}][{}];", type, i, rows, cut_.chunks);
        loads += fmt::format("c{}[u][c] = {};\n", i, chunk_of(input));
      }
      if (shifted.count(input)) {
        line("Chunk<{}> q{}[{}][{}];", type, i, rows, cut_.chunks);
        const int64_t half = s_.row() / 2;
        loads +=
            in_chunks_[i] && half % kChunk == 0
                ? fmt::format("q{0}[u][c] = load<true>(in{0} + (col + {1}) % {2}, 1, n);\n", i,
                              half, s_.row())
                : fmt::format(
                      "q{0}[u][c] = {{}};\n#pragma unroll\nfor (int v = 0; v < 8; ++v) if (v < n) "
                      "q{0}[u][c].put(v, in{0}[(col + v + {1}) % {2} * {3}ll]);\n",
                      i, half, s_.row(), s_.in[i].back());
      }
    }
    return loads;
  }

  std::set<int> read_from_other_half() const {
    std::set<int> inputs;
    for (const auto& [i, shifted] : needed(output_nodes())) {
      const ExprNode& n = body_.nodes[i];
      CHECK(!shifted || n.kind != ExprKind::kRandom, "nobody rotates random numbers");
      if (shifted && n.kind == ExprKind::kInput) inputs.insert(n.index);
    }
    for (int pass = 0; pass < passes_; ++pass) {
      for (const auto& [i, shifted] : needed(reduced_in(pass))) {
        const ExprNode& n = body_.nodes[i];
        if (shifted && n.kind == ExprKind::kInput) inputs.insert(n.index);
      }
    }
    return inputs;
  }

  std::vector<int> output_nodes() const {
    std::vector<int> nodes;
    for (const BodyOutput& out : body_.outputs) nodes.push_back(out.node);
    return nodes;
  }
  std::vector<int> reductions_in(int pass) const {
    std::vector<int> all;
    for (size_t i = 0; i < body_.nodes.size(); ++i) {
      if (is_reduction(body_.nodes[i].kind) && level_[i] == pass + 1)
        all.push_back(static_cast<int>(i));
    }
    return all;
  }
  std::vector<int> reduced_in(int pass) const {
    std::vector<int> nodes;
    for (const int i : reductions_in(pass)) nodes.push_back(body_.nodes[i].args[0]);
    return nodes;
  }

  // What must be computed for every element, in order.
  std::set<Node> needed(const std::vector<int>& roots) const {
    std::set<Node> all;
    const auto visit = [&](const auto& self, int i, int shifted) -> void {
      if (!s_.varies[i] || !all.insert({i, shifted}).second) return;
      const ExprNode& n = body_.nodes[i];
      const int other = n.kind == ExprKind::kRotate ? 1 - shifted : shifted;
      for (int a = 0; a < facts(n.kind).arity; ++a) self(self, n.args[a], other);
    };
    for (const int root : roots) visit(visit, root, 0);
    return all;
  }

  std::string ref(int i, int shifted = 0) const {
    if (body_.nodes[i].kind == ExprKind::kConst) return literal(body_.nodes[i].value, cut_.wide);
    if (!s_.varies[i]) return fmt::format("s{}", i);
    return fmt::format("{}{}", shifted ? "p" : "n", i);
  }
  std::string written(int i, int shifted) const {
    const ExprNode& n = body_.nodes[i];
    const auto arg = [&](int a) { return n.args[a] < 0 ? "" : ref(n.args[a], shifted); };
    return expression(n, arg(0), arg(1), arg(2));
  }

  // Numbers of a whole row that follow from reductions of up to `level` passes.
  void write_scalars(int level) {
    for (size_t i = 0; i < body_.nodes.size(); ++i) {
      const ExprNode& n = body_.nodes[i];
      if (s_.varies[i] || level_[i] != level || is_reduction(n.kind)) continue;
      if (n.kind == ExprKind::kConst) continue;
      const std::string value = n.kind == ExprKind::kInput ? fmt::format("get(in{}[0])", n.index)
                                : n.kind == ExprKind::kIndex
                                    ? fmt::format("(real)i{}", s_.dims.size() - 1 - n.index)
                                    : written(static_cast<int>(i), 0);
      line("const real s{} = {};", i, value);
    }
  }

  // Chunks that the loop over elements reads, then that loop up to its end.
  void open_elements(const std::vector<int>& roots) {
    const std::set<Node> nodes = needed(roots);
    out_ += chunk_loop(cut_);
    line("if (n > 0) {{");
    std::set<int> loaded;
    for (const auto& [i, shifted] : nodes) {
      const ExprNode& n = body_.nodes[i];
      if (n.kind == ExprKind::kInput && !shifted && !cached(n.index) &&
          loaded.insert(n.index).second) {
        line("const Chunk<{}> x{} = {};", element_of(cut_.in_types[n.index].dtype), n.index,
             chunk_of(n.index));
      }
      if (n.kind == ExprKind::kRandom) {
        line("const Uniforms u{0}(base{0} + (i64)row * {1}ll + col, step{0}, key{0});", i,
             s_.row());
      }
    }
    open_results_ = out_.size();
    line("#pragma unroll\nfor (int v = 0; v < 8; ++v) if (v < n) {{");
    for (const auto& [i, shifted] : nodes) {
      line("const real {} = {};", ref(i, shifted), element(i, shifted));
    }
  }

  std::string element(int i, int shifted) const {
    const ExprNode& n = body_.nodes[i];
    const int64_t half = s_.row() / 2;
    switch (n.kind) {
      case ExprKind::kInput:
        if (shifted) return fmt::format("q{}[u][c].get(v)", n.index);
        return cached(n.index) ? fmt::format("c{}[u][c].get(v)", n.index)
                               : fmt::format("x{}.get(v)", n.index);
      case ExprKind::kIndex:
        return shifted ? fmt::format("(real)((col + v + {}) % {})", half, s_.row())
                       : "(real)(col + v)";
      case ExprKind::kRandom:
        return fmt::format("u{}.at[v]", i);
      case ExprKind::kRotate: {
        const std::string x = ref(n.args[0], 1 - shifted);
        return fmt::format("col + v {} {} ? -{} : {}", shifted ? ">=" : "<", half, x, x);
      }
      default:
        return written(i, shifted);
    }
  }

  void write_pass(int pass) {
    const std::vector<int> reductions = reductions_in(pass);
    const auto op = [&](int i) { return body_.nodes[i].kind == ExprKind::kRowSum ? "sum" : "max"; };
    // Chunks in registers are reduced side by side, so that no addition waits for all before it.
    const int64_t sides = cut_.loops ? 1 : cut_.chunks;
    for (const int i : reductions) {
      line("real r{}[{}];\nfor (real& r : r{}) r = {};", i, sides, i,
           body_.nodes[i].kind == ExprKind::kRowSum ? "0" : "-__uint_as_float(0x7f800000u)");
    }
    open_elements(reduced_in(pass));
    for (const int i : reductions) {
      line("r{0}[{1}] = {2}_op(r{0}[{1}], {3});", i, cut_.loops ? "0" : "c", op(i),
           ref(body_.nodes[i].args[0]));
    }
    line("}}\n}}\n}}");
    for (const int i : reductions) {
      std::string all = fmt::format("r{}[0]", i);
      for (int64_t c = 1; c < sides; ++c) all = fmt::format("{}_op({}, r{}[{}])", op(i), all, i, c);
      line("const real s{} = reduce_{}({}, mask);", i, op(i), all);
    }
    write_scalars(pass + 1);
  }

  void write_results() {
    open_elements(output_nodes());
    std::string before, after;
    for (size_t k = 0; k < body_.outputs.size(); ++k) {
      const BodyOutput& out = body_.outputs[k];
      const bool row = out.row == BodyOutput::Row::kWhole;
      const std::string value = ref(out.node);
      const std::string_view type = element_of(cut_.out_types[k].dtype);
      if (row && is_sum(out)) {
        line("acc{}[c * 8 + v] += {};", k, value);
      } else if (row) {
        before += fmt::format("real y{}[8] = {{}};\n", k);
        line("y{}[v] = {};", k, value);
        after += stored(k, "out", "y", type, out_chunks_[k], s_.out[k].back());
      } else if (is_sum(out)) {
        line("if (col + v == 0) acc{} += {};", k, value);
      } else {
        line("if (col + v == 0) *out{} = To<{}>::of({});", k, type, value);
      }
    }
    out_.insert(open_results_, before);
    line("}}");
    out_ += after + "}\n}\n";
  }

  const CudaCut& cut_;
  const BodySpace& s_;
  const Body& body_;
  const std::vector<bool>&in_chunks_, &out_chunks_;
  std::vector<int> level_;  // per node: how many reductions lie below it
  int passes_ = 0;
  int batch_ = 1;  // rows that are read before any of them is computed
  bool rotates_ = false, cached_ = false, narrow_ = false;
  size_t open_results_ = 0;
};

}  // namespace

std::string cuda_text(const CudaCut& cut, const std::vector<bool>& in_chunks,
                      const std::vector<bool>& out_chunks) {
  return Writer(cut, in_chunks, out_chunks).text();
}

}  // namespace adjoint
