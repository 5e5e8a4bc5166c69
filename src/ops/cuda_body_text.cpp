// The CUDA reading of a body: its source, with every size and stride written into it.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <set>

#include "base/error.h"
#include "base/philox.h"
#include "ops/cuda_body.h"
#include "ops/cuda_body_prelude.h"

namespace adjoint {

namespace cuda_source {

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

}  // namespace cuda_source

namespace {

using cuda_source::element_of, cuda_source::expression, cuda_source::literal;

bool is_reduction(ExprKind kind) { return kind == ExprKind::kRowSum || kind == ExprKind::kRowMax; }

class Writer {
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
  }

  std::string text() {
    line("typedef {} real;", cut_.wide ? "double" : "float");
    out_ += cuda_prelude();
    line("struct Args {{ const void* in[{}]; void* out[{}]; real* partial[{}]; }};",
         std::max<size_t>(1, s_.in.size()), s_.out.size(), s_.out.size());
    if (passes_ > 0) write_reductions();
    write_kernel();
    write_finish();
    return std::move(out_);
  }

 private:
  using Node = std::pair<int, int>;  // a node, and whether it is that of the other half's element

  template <class... Parts>
  void line(fmt::format_string<Parts...> format, Parts&&... parts) {
    out_ += fmt::format(format, std::forward<Parts>(parts)...) + "\n";
  }

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
    line("const i64 unit = ((i64)blockIdx.x * {} + threadIdx.x) / {};", cut_.threads(), cut_.group);
    line("if (unit >= {}ll) return;", cut_.units());
    line("const int lane = threadIdx.x % {};", cut_.group);
    if (passes_ > 0 || rotates_) {
      line("const u32 mask = {};",
           cut_.group >= 32 ? "0xffffffffu"
                            : fmt::format("{:#x}u << (threadIdx.x % 32 / {} * {})",
                                          (1u << cut_.group) - 1, cut_.group, cut_.group));
    }
    line("const i64 tile = unit % {}ll, place = unit / {}ll;", cut_.tiles, cut_.tiles);
    for (const int i : randoms()) {
      const ExprNode& n = body_.nodes[i];
      line("const i64* counter{0} = (const i64*)a.in[{1}];", i, n.index);
      line("const u64 key{0} = random_key({1:#x}ull, counter{0}[0]), step{0} = counter{0}[1];", i,
           stable_hash(n.text));
      line("const u64 base{0} = counter{0}[2] * {1}ll;", i, s_.sample);
    }
    if (!s_.sums) {
      line("const i64 row = place;\n{{\nconst int u = 0;");
      write_caches([&] {});
      write_row();
      line("}}");
    } else {
      line("const i64 block = place / {0}ll, suffix = place % {0}ll;", s_.suffix_rows());
      for_sums([&](size_t k, bool row) {
        row ? line("real acc{}[{}] = {{}};", k, cut_.chunks * kChunk) : line("real acc{} = 0;", k);
      });
      line("const i64 last = {0}ll * (block + 1) / {1}ll;", s_.summed_rows, cut_.blocks);
      line("for (i64 lead = {0}ll * block / {1}ll; lead < last; lead += {2}) {{", s_.summed_rows,
           cut_.blocks, batch_);
      const auto next_row = [&] {
        line("#pragma unroll\nfor (int u = 0; u < {}; ++u) {{", batch_);
        line("const i64 at = lead + u < last ? lead + u : last - 1;");
        line("const i64 row = at * {}ll + suffix;", s_.suffix_rows());
      };
      write_caches(next_row);
      next_row();
      line("if (lead + u < last) {{");
      write_row();
      line("}}\n}}\n}}");
      write_sums();
    }
    line("}}");
  }

  template <class F>
  void for_sums(const F& f) {
    for (size_t k = 0; k < body_.outputs.size(); ++k) {
      if (is_sum(body_.outputs[k])) f(k, body_.outputs[k].row == BodyOutput::Row::kWhole);
    }
  }

  std::vector<int> randoms() const {
    std::vector<int> all;
    for (size_t i = 0; i < body_.nodes.size(); ++i) {
      if (body_.nodes[i].kind == ExprKind::kRandom) all.push_back(static_cast<int>(i));
    }
    return all;
  }

  // The position along every axis but the last, of `row`.
  void write_position(const char* row) {
    line("i64 rest = {};", row);
    for (size_t a = s_.dims.size() - 1; a-- > 1;) {
      line("const i64 i{0} = rest % {1}ll; rest /= {1}ll;", a, s_.dims[a]);
    }
    if (s_.dims.size() > 1) line("const i64 i0 = rest;");
  }
  std::string offset(const Strides& strides) const {
    std::string text = "0";
    for (size_t a = 0; a + 1 < strides.size(); ++a) {
      if (strides[a] != 0) text += fmt::format(" + i{} * {}ll", a, strides[a]);
    }
    return text;
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

  std::string chunk_loop() const {
    return fmt::format("{}for (int c = 0; c < {}; ++c) {{\n", cut_.loops ? "" : "#pragma unroll\n",
                       cut_.chunks) +
           fmt::format("const i64 col = ((tile * {} + c) * {} + lane) * 8;\n", cut_.chunks,
                       cut_.group) +
           fmt::format("const int n = {};\n",
                       s_.row() % kChunk == 0
                           ? fmt::format("col < {}ll ? 8 : 0", s_.row())
                           : fmt::format("{0}ll - col > 8 ? 8 : (int)({0}ll - col)", s_.row()));
  }

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
    write_position("row");
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

  // What is read ahead, of every row of a batch; `next_row` opens the loop over them.
  template <class F>
  void write_caches(const F& next_row) {
    if (!cached_) return;
    const std::set<int> shifted = read_from_other_half();
    std::string loads;
    for (size_t i = 0; i < s_.in.size(); ++i) {
      const int input = static_cast<int>(i);
      if (!reads(input)) continue;
      const std::string_view type = element_of(cut_.in_types[i].dtype);
      if (cached(input)) {
        line("Chunk<{}> c{}[{}][{}];", type, i, batch_, cut_.chunks);
        loads += fmt::format("c{}[u][c] = {};\n", i, chunk_of(input));
      }
      if (shifted.count(input)) {
        line("Chunk<{}> q{}[{}][{}];", type, i, batch_, cut_.chunks);
        const int64_t half = s_.row() / 2;
        loads +=
            in_chunks_[i] && half % kChunk == 0
                ? fmt::format("q{0}[u][c] = load<true>(in{0} + (col + {1}ll) % {2}ll, 1, n);\n", i,
                              half, s_.row())
                : fmt::format(
                      "#pragma unroll\nfor (int v = 0; v < 8; ++v) if (v < n) "
                      "q{0}[u][c].at[v] = in{0}[(col + v + {1}ll) % {2}ll * {3}ll];\n",
                      i, half, s_.row(), s_.in[i].back());
      }
    }
    if (loads.empty()) return;
    line("{{");
    next_row();
    write_position("row");
    write_operands(true);
    out_ += chunk_loop() + "if (n > 0) {\n" + loads + "}\n}\n}\n";
    if (s_.sums) line("}}");
    // Others write what was read here.
    if (!shifted.empty()) line("{}", cut_.group > 32 ? "__syncthreads();" : "__syncwarp(mask);");
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
    out_ += chunk_loop();
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
        line("const Uniforms u{0}(base{0} + row * {1}ll + col, step{0}, key{0});", i, s_.row());
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
        if (shifted) return fmt::format("get(q{}[u][c].at[v])", n.index);
        return fmt::format("get({}.at[v])", cached(n.index) ? fmt::format("c{}[u][c]", n.index)
                                                            : fmt::format("x{}", n.index));
      case ExprKind::kIndex:
        return shifted ? fmt::format("(real)((col + v + {}ll) % {}ll)", half, s_.row())
                       : "(real)(col + v)";
      case ExprKind::kRandom:
        return fmt::format("u{}.at[v]", i);
      case ExprKind::kRotate: {
        const std::string x = ref(n.args[0], 1 - shifted);
        return fmt::format("col + v {} {}ll ? -{} : {}", shifted ? ">=" : "<", half, x, x);
      }
      default:
        return written(i, shifted);
    }
  }

  void write_pass(int pass) {
    const std::vector<int> reductions = reductions_in(pass);
    const auto op = [&](int i) { return body_.nodes[i].kind == ExprKind::kRowSum ? "sum" : "max"; };
    for (const int i : reductions) {
      line("real r{} = {};", i,
           body_.nodes[i].kind == ExprKind::kRowSum ? "0" : "-__uint_as_float(0x7f800000u)");
    }
    open_elements(reduced_in(pass));
    for (const int i : reductions) {
      line("r{0} = {1}_op(r{0}, {2});", i, op(i), ref(body_.nodes[i].args[0]));
    }
    line("}}\n}}\n}}");
    for (const int i : reductions) line("const real s{0} = reduce_{1}(r{0}, mask);", i, op(i));
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
        before += fmt::format("Chunk<{}> y{};\n", type, k);
        line("y{}.at[v] = To<{}>::of({});", k, type, value);
        after += fmt::format("store<{0}>(out{1} + col * {2}ll, {2}ll, n, y{1});\n",
                             static_cast<bool>(out_chunks_[k]), k, s_.out[k].back());
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

  // Of the group's rows, to the workspace, or where they belong if nobody else has any.
  void write_sums() {
    line("{{");
    write_position("suffix");
    for_sums([&](size_t k, bool row) {
      const bool direct = cut_.direct(k);
      const std::string_view type = direct ? element_of(cut_.out_types[k].dtype) : "real";
      line("{0}* to{1} = {2};", type, k,
           direct ? fmt::format("({}*)a.out[{}] + {}", type, k, offset(s_.out[k]))
                  : fmt::format("a.partial[{}] + (block * {}ll + suffix) * {}ll", k,
                                s_.suffix_rows(), row ? s_.row() : 1));
      const int64_t stride = direct ? s_.out[k].back() : 1;
      if (!row) {
        line("if (lane == 0 && tile == 0) *to{0} = To<{1}>::of(acc{0});", k, type);
        return;
      }
      out_ += chunk_loop();
      line(
          "#pragma unroll\nfor (int v = 0; v < 8; ++v) if (v < n) to{0}[(col + v) * {1}ll] = "
          "To<{2}>::of(acc{0}[c * 8 + v]);\n}}",
          k, stride, type);
    });
    line("}}");
  }

  // Adds up the sums of all blocks: 32 elements at a time, by 32 threads each.
  void write_finish() {
    bool any = false;
    for_sums([&](size_t k, bool) { any = any || !cut_.direct(k); });
    if (!any) return;
    line(
        "extern \"C\" __global__ void __launch_bounds__(1024) finish(const __grid_constant__ Args "
        "a) {{");
    line("__shared__ real sums[32][33];");
    line("const int x = threadIdx.x % 32, y = threadIdx.x / 32;");
    line("const i64 j = (i64)blockIdx.x * 32 + x;");
    line("real sum = 0;");
    for_sums([&](size_t k, bool) {
      if (cut_.direct(k)) return;
      const int64_t terms = cut_.blocks * cut_.partial_size[k] / s_.sum_size[k];
      line(
          "if (blockIdx.y == {0}) for (i64 t = y; j < {1}ll && t < {2}ll; t += 32) sum += "
          "a.partial[{0}][t * {1}ll + j];",
          k, s_.sum_size[k], terms);
    });
    line("sums[y][x] = sum;\n__syncthreads();\nif (y > 0) return;");
    line("#pragma unroll\nfor (int i = 1; i < 32; ++i) sum += sums[i][x];");
    for_sums([&](size_t k, bool row) {
      if (cut_.direct(k)) return;
      const std::string_view type = element_of(cut_.out_types[k].dtype);
      line("if (blockIdx.y == {} && j < {}ll) {{", k, s_.sum_size[k]);
      line("const i64 suffix = j / {0}ll, col = j % {0}ll;", row ? s_.row() : 1);
      write_position("suffix");
      line("(({0}*)a.out[{1}])[{2} + col * {3}ll] = To<{0}>::of(sum);\n}}", type, k,
           offset(s_.out[k]), row ? s_.out[k].back() : 0);
    });
    line("}}");
  }

  const CudaCut& cut_;
  const BodySpace& s_;
  const Body& body_;
  const std::vector<bool>&in_chunks_, &out_chunks_;
  std::vector<int> level_;  // per node: how many reductions lie below it
  int passes_ = 0;
  int batch_ = 1;  // rows that are read before any of them is computed
  bool rotates_ = false, cached_ = false;
  size_t open_results_ = 0;
  std::string out_;
};

}  // namespace

std::string cuda_text(const CudaCut& cut, const std::vector<bool>& in_chunks,
                      const std::vector<bool>& out_chunks) {
  return Writer(cut, in_chunks, out_chunks).text();
}

}  // namespace adjoint
