// Generated code and the interpreter, bit for bit: the same bodies over odd lengths, dtypes,
// strides, stretched operands, sums, results in the place of operands, and numbers of threads.
#include "kernels/cpu/jit/body_jit.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <memory>

#include "base/error.h"
#include "body/every_kind.h"
#include "device/parallel.h"
#include "kernels/backend.h"
#include "kernels/harness.h"
#include "ops/samples.h"

namespace adjoint {
namespace {

// One call of `map` on memory of our own.
struct Trial {
  std::string text;
  std::vector<Type> types;
  std::vector<Strides> strides = {};  // of the operands; none: dense
  std::vector<std::vector<float>> values = {};
  std::vector<int64_t> shape = {};
  std::vector<int> in_place = {};  // per output: the operand whose place it takes, or -1
  int place(size_t k) const { return k < in_place.size() ? in_place[k] : -1; }
};

// Bytes that end where a page ends, before one that nobody may touch: no sanitizer sees into
// generated code, but the machine does.
class Memory {
 public:
  explicit Memory(int64_t size) : size_(size) {
    const int64_t page = sysconf(_SC_PAGESIZE), room = (size + page - 1) / page * page;
    void* all =
        mmap(nullptr, room + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(all != MAP_FAILED, "the machine has a few pages");
    pages_ = {static_cast<std::byte*>(all), Unmap{room + page}};
    CHECK(mprotect(pages_.get() + room, page, PROT_NONE) == 0, "pages can be protected");
    data_ = pages_.get() + room - size;
    std::memset(data_, 0xA5, size);
  }
  Memory(const Type& type, const Strides& strides) : Memory(extent(type, strides)) {}

  std::byte* data() const { return data_; }
  std::vector<std::byte> bytes() const { return {data_, data_ + size_}; }

 private:
  struct Unmap {
    int64_t size = 0;
    void operator()(std::byte* p) const { munmap(p, size); }
  };
  static int64_t extent(const Type& type, const Strides& strides) {
    int64_t furthest = 1;
    for (int a = 0; a < type.rank(); ++a) furthest += (type.dim(a) - 1) * strides[a];
    return furthest * size_of(type.dtype).count;
  }
  int64_t size_;
  std::unique_ptr<std::byte, Unmap> pages_ = {nullptr, Unmap{}};
  std::byte* data_ = nullptr;
};

void for_each_offset(const Type& type, const Strides& strides, const auto& f) {
  std::vector<int64_t> where(type.rank(), 0);
  for (int64_t i = 0; i < type.num_elements(); ++i) {
    int64_t offset = 0, rest = i;
    for (int a = type.rank(); a-- > 0;) {
      offset += rest % type.dim(a) * strides[a];
      rest /= type.dim(a);
    }
    f(i, offset);
  }
}

Strides dense(const Type& type) {
  Strides strides(type.rank(), 1);
  for (int a = type.rank() - 1; a-- > 0;) strides[a] = strides[a + 1] * type.dim(a + 1);
  return strides;
}

// All bytes of all outputs, what lies past their ends too.
std::vector<std::vector<std::byte>> run_trial(const Trial& trial, TileIsa isa, int threads) {
  OpCall call{.op = "map", .inputs = trial.types, .attrs = {{"body", trial.text}}};
  if (!trial.shape.empty()) call.attrs["shape"] = trial.shape;
  KernelCall kernel(call, {.threads = threads});
  kernel.outputs = infer_types(call);
  std::vector<Memory> in, out;
  Pointers at;
  for (size_t i = 0; i < trial.types.size(); ++i) {
    const Type& type = trial.types[i];
    kernel.in_strides.push_back(
        i < trial.strides.size() && trial.strides[i].size() ? trial.strides[i] : dense(type));
    in.emplace_back(type, kernel.in_strides[i]);
    for_each_offset(type, kernel.in_strides[i], [&](int64_t k, int64_t offset) {
      store_element(in[i].data(), type.dtype, offset, trial.values[i][k]);
    });
  }
  for (const Memory& m : in) at.in.push_back(m.data());
  for (size_t k = 0; k < kernel.outputs.size(); ++k) {
    const bool shared = trial.place(k) >= 0;
    kernel.out_strides.push_back(shared ? kernel.in_strides[trial.place(k)]
                                        : dense(kernel.outputs[k]));
    out.emplace_back(kernel.outputs[k], kernel.out_strides[k]);
  }
  for (size_t k = 0; k < out.size(); ++k) {
    const bool shared = trial.place(k) >= 0;
    at.out.push_back(shared ? in[trial.place(k)].data() : out[k].data());
  }
  // Code for another processor can at least be written on this one.
  if (best_tile_isa() != TileIsa::kNone && isa == TileIsa::kNone) {
    const Layout layout = lay_out(kernel);
    EXPECT_TRUE(compile_tile(layout, call.inputs, kernel.outputs, TileIsa::kAvx512));
  }
  set_num_threads(threads);
  set_grain(threads > 1 ? 1 : 0);
  set_tile_isa(isa);
  const Memory workspace(round_up(workspace_bytes(kernel), {64}).count);
  at.workspace = workspace.data();
  cpu_backend.prepare(kernel, at)();
  set_grain(0);
  set_num_threads(1);
  set_tile_isa(best_tile_isa());
  std::vector<std::vector<std::byte>> results;
  for (size_t k = 0; k < out.size(); ++k) {
    const bool shared = trial.place(k) >= 0;
    results.push_back(shared ? in[trial.place(k)].bytes() : out[k].bytes());
  }
  return results;
}

// Any two values that are no numbers count as one: their bits say who was first, not what.
bool same_bits(const std::vector<std::byte>& a, const std::vector<std::byte>& b, Dtype dtype) {
  if (a == b) return true;
  const int64_t count = static_cast<int64_t>(a.size()) / size_of(dtype).count;
  for (int64_t i = 0; i < count; ++i) {
    const double x = load_element(a.data(), dtype, i), y = load_element(b.data(), dtype, i);
    if (std::isnan(x) && std::isnan(y)) continue;
    if (x != y || std::signbit(x) != std::signbit(y)) return false;
  }
  return true;
}

std::vector<TileIsa> isas() {
  std::vector<TileIsa> all;
  if (best_tile_isa() >= TileIsa::kAvx2) all.push_back(TileIsa::kAvx2);
  if (best_tile_isa() >= TileIsa::kAvx512) all.push_back(TileIsa::kAvx512);
  return all;
}

void expect_same(const Trial& trial, const std::string& what) {
  const auto want = run_trial(trial, TileIsa::kNone, 1);
  OpCall call{.op = "map", .inputs = trial.types, .attrs = {{"body", trial.text}}};
  if (!trial.shape.empty()) call.attrs["shape"] = trial.shape;
  const std::vector<Type> types = infer_types(call);
  std::string named;
  for (const Type& t : trial.types) named += " " + to_string(t);
  for (const TileIsa isa : isas()) {
    for (const int threads : {1, 3}) {
      const auto got = run_trial(trial, isa, threads);
      for (size_t k = 0; k < want.size(); ++k) {
        ASSERT_TRUE(same_bits(got[k], want[k], types[k].dtype))
            << what << ", output " << k << " of " << trial.text << " on" << named << ", isa "
            << static_cast<int>(isa) << ", " << threads << " threads";
      }
    }
  }
}

class Numbers16 {
 public:
  explicit Numbers16(unsigned seed) : random_(seed) {}
  size_t below(size_t n) { return random_() % n; }
  std::vector<float> some(int64_t count, bool wild) {
    std::normal_distribution<float> normal;
    std::vector<float> x(count);
    for (float& v : x) {
      v = normal(random_);
      if (wild && below(9) == 0) {
        constexpr float kWild[] = {0, -0.0f, INFINITY, -INFINITY, NAN, 1e30f, -1e-30f, 88.0f, -200};
        v = kWild[below(9)];
      }
    }
    return x;
  }

 private:
  std::mt19937 random_;
};

TEST(BodyJit, EveryKindAtEveryShortLength) {
  std::vector<const char*> texts(std::begin(kEveryKind), std::end(kEveryKind));
  for (const char* text :
       {"select(x0, x1, 2)", "select(less(x0, x1), x0, 0)", "select(equal(x0, x1), 0, x1)",
        "sub(x0, rowmax(x0)), rowsum(x0)/one", "x1, x0", "7, index0"}) {
    texts.push_back(text);
  }
  Numbers16 numbers(1);
  for (const char* text : texts) {
    for (int64_t n = 1; n <= 70; ++n) {
      for (const Dtype dtype : {Dtype::kF32, Dtype::kBF16}) {
        if (n > 20 && n % 5 && dtype == Dtype::kBF16) continue;
        Trial t{.text = text, .types = {of({3, n}), of({3, n})}};
        for (Type& type : t.types) type.dtype = dtype;
        for (const Type& type : t.types)
          t.values.push_back(numbers.some(type.num_elements(), true));
        expect_same(t, "length " + std::to_string(n));
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST(BodyJit, RotationsInPlaceAndOfRotations) {
  Numbers16 numbers(2);
  for (const char* text : {"rotate(x0)", "add(mul(x0, x1), mul(rotate(x0), x1))",
                           "add(rotate(rotate(x0)), rotate(mul(x0, x1)))",
                           "rotate(x1), rotate(x0), sub(x0, rowsum(rotate(x1)))",
                           "sin(rotate(x0)), rotate(sin(x1))"}) {
    for (const int64_t n : {2, 32, 40, 64, 128}) {
      for (const Dtype dtype : {Dtype::kF32, Dtype::kBF16}) {
        for (const int in_place : {-1, 0}) {
          Trial t{.text = text, .types = {of({5, n}), of({5, n})}, .in_place = {in_place}};
          for (Type& type : t.types) type.dtype = dtype;
          for (int i = 0; i < 2; ++i) t.values.push_back(numbers.some(5 * n, false));
          expect_same(t, "length " + std::to_string(n));
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

// More constants than registers, with reductions that occupy some: the rest is spilled to memory.
TEST(BodyJit, MoreConstantsThanRegisters) {
  Numbers16 numbers(3);
  std::string chain = "x0";
  for (int count = 1; count <= 24; ++count) {
    chain = (count % 2 ? "add(" : "mul(") + chain + ", " + std::to_string(0.5 + 0.25 * count) + ")";
    for (const std::string& text :
         {"sub(x0, rowsum(" + chain + "))",
          "add(x0, add(add(rowsum(x0), rowmax(x0)), add(rowsum(neg(x0)), rowmax(" + chain + "))))",
          "tanh(" + chain + "), rowsum(exp(" + chain + "))/one"}) {
      for (const int64_t n : {5, 16, 37}) {
        Trial t{.text = text, .types = {of({2, n})}};
        t.values.push_back(numbers.some(2 * n, false));
        expect_same(t, std::to_string(count) + " constants, length " + std::to_string(n));
        if (HasFatalFailure()) return;
      }
    }
  }
}

// Bodies of all shapes: reductions of reductions, sums, selects, results that are read.
class RandomTrial {
 public:
  explicit RandomTrial(unsigned seed) : numbers_(seed) {
    const int rank = 1 + static_cast<int>(below(3));
    for (int a = 0; a < rank; ++a) {
      constexpr int64_t kRows[] = {1, 7, 16, 33, 64, 96, 130, 1500};
      const int64_t size = a + 1 < rank ? 1 + static_cast<int64_t>(below(4)) : kRows[below(8)];
      space_.push_back({std::string(1, static_cast<char>('a' + a)), size});
    }
    const int operands = 1 + static_cast<int>(below(5));
    for (int i = 0; i < operands; ++i) add_operand(i);
    for (int k = static_cast<int>(3 + below(25)); k > 0; --k) add_node();
    for (int k = static_cast<int>(1 + below(4)); k > 0; --k) add_output();
    body_ = without_dead_nodes(body_);
    trial.text = print(body_);
    for (const Axis& axis : space_) trial.shape.push_back(axis.size);
    place_results();
  }
  Trial trial;

 private:
  size_t below(size_t n) { return numbers_.below(n); }
  int64_t row() const { return space_.back().size; }

  // Most results that can take an operand's place do.
  void place_results() {
    std::vector<bool> taken(trial.types.size(), false);
    trial.in_place.assign(body_.outputs.size(), -1);
    for (size_t k = 0; k < body_.outputs.size(); ++k) {
      const BodyOutput& out = body_.outputs[k];
      if (out.summed_axes > 0 || out.row != BodyOutput::Row::kWhole) continue;
      for (size_t i = 0; i < trial.types.size(); ++i) {
        if (taken[i] || trial.types[i].dtype != out.dtype || !is_whole(trial.types[i])) continue;
        if (below(4) == 0) continue;
        taken[i] = true;
        trial.in_place[k] = static_cast<int>(i);
        break;
      }
    }
  }
  bool is_whole(const Type& type) const {
    bool whole = type.rank() == static_cast<int>(space_.size());
    for (int a = 0; whole && a < type.rank(); ++a) whole = type.dim(a) == space_[a].size;
    return whole;
  }

  void add_operand(int i) {
    Type type{below(3) ? Dtype::kF32 : below(4) ? Dtype::kBF16 : Dtype::kF16, {}};
    const size_t rank = i == 0 || below(2) ? space_.size() : below(space_.size() + 1);
    type.axes.assign(space_.end() - static_cast<int64_t>(rank), space_.end());
    if (i > 0 && rank > 0 && below(3) == 0) type.axes.back() = {"one", 1};
    Strides strides = dense(type);
    if (rank > 0 && below(4) == 0) {
      const int64_t spread = below(2) ? 2 : 1, gap = 5;
      strides.back() = spread;
      for (int a = type.rank() - 1; a-- > 0;) strides[a] = strides[a + 1] * type.dim(a + 1) + gap;
    }
    trial.values.push_back(numbers_.some(type.num_elements(), below(8) == 0));
    trial.types.push_back(std::move(type));
    trial.strides.push_back(std::move(strides));
    known_.push_back({input(body_, i), rank > 0 && trial.types.back().dim(-1) > 1});
  }

  struct Known {
    Expr e;
    bool varies;
  };
  const Known& any() {
    // Late values more often than early ones: chains, not bushes.
    const size_t n = known_.size();
    return known_[std::max(below(n), below(n))];
  }

  void add_node() {
    const Known a = any(), b = any(), c = any();
    const bool both = a.varies || b.varies;
    constexpr ExprKind kTwo[] = {ExprKind::kAdd, ExprKind::kSub, ExprKind::kMul,  ExprKind::kDiv,
                                 ExprKind::kMin, ExprKind::kMax, ExprKind::kLess, ExprKind::kEqual};
    constexpr ExprKind kOne[] = {ExprKind::kNeg,  ExprKind::kExp,     ExprKind::kSqrt,
                                 ExprKind::kTanh, ExprKind::kSigmoid, ExprKind::kErf,
                                 ExprKind::kLog,  ExprKind::kFinite,  ExprKind::kWhole};
    switch (below(12)) {
      case 0:
        return know(select(less(a.e, b.e), c.e, a.e), true);
      case 1:
        if (row() % 2 == 0 && below(2)) return know(rotate(a.e), true);
        return know(select(a.e, b.e, 0), true);
      case 2:
        return know(row_sum(a.e), false);
      case 3:
        return know(row_max(a.e), false);
      case 4:
        return know(a.e * (below(9) / 8.0 + 0.25) + (below(9) / 4.0 - 1.0), a.varies);
      case 5:
        return know(round_to(a.e, below(3) ? Dtype::kBF16 : Dtype::kF16), a.varies);
      case 6:
        if (below(3)) break;
        return know(apply(below(2) ? ExprKind::kSin : ExprKind::kCos, a.e), a.varies);
      case 7:
        return know(apply(kOne[below(8)], a.e), a.varies);
      default:
        break;
    }
    know(apply(kTwo[below(8)], a.e, b.e), both);
  }
  void know(Expr e, bool varies) { known_.push_back({e, varies}); }

  void add_output() {
    const Known& k = any();
    BodyOutput out{.node = k.e.node, .dtype = Dtype::kF32};
    if (below(2)) out.summed_axes = static_cast<int>(below(space_.size()));
    if (!k.varies && below(2)) out.row = BodyOutput::Row::kOne;
    const bool sums = out.summed_axes > 0;
    if (!sums && below(3) == 0) out.dtype = below(2) ? Dtype::kBF16 : trial.types[0].dtype;
    body_.outputs.push_back(out);
  }

  Numbers16 numbers_;
  std::vector<Axis> space_;
  std::vector<Known> known_;
  Body body_;
};

TEST(BodyJit, RandomBodiesGiveTheInterpretersBits) {
  for (unsigned seed = 0; seed < 1500; ++seed) {
    const RandomTrial r(seed);
    expect_same(r.trial, "seed " + std::to_string(seed));
    if (HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace adjoint
