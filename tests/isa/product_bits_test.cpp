// The bits of a product do not depend on where its operands and its result lie: inside larger
// objects, over a slice of one, at an odd address, or by themselves; with one thread and with two,
// and with a cap on workspaces that cuts the product into pieces.
#include <gtest/gtest.h>

#include <cstring>

#include "kernels/harness.h"
#include "ops/axes.h"

namespace adjoint {
namespace {

Type of(std::vector<int64_t> sizes) {
  Type type{Dtype::kF32, {}};
  for (const int64_t size : sizes) type.axes.push_back({"n", size});
  return type;
}

// Where something lies.
enum class Lies : uint8_t { kAlone, kInColumns, kInMiddle, kInRows, kOverSlice };

// A call whose operand `which` has other strides than dense ones; an index past the operands means
// the result.
class LaidCall {
 public:
  LaidCall(std::string_view op, const Sample& sample, Dtype dtype, size_t which, Lies lies)
      : builder_(scheme_) {
    scheme_.name = "laid";
    builder_.at({"call"}, Phase::kForward, Role::kActivation);
    const std::vector<Numbers> numbers = sample_numbers(sample, dtype, 3);
    std::vector<Value> operands;
    for (size_t i = 0; i < numbers.size(); ++i) {
      const Type type = with_dtype(sample.inputs[i], dtype);
      operands.push_back(lay(type, numbers[i], i == which ? lies : Lies::kAlone));
    }
    const Value y = builder_.emit_all(op, operands, sample.attrs)[0];
    type_ = scheme_[y].type;
    scheme_.outputs.insert(scheme_.outputs.begin(), y);
    if (which == numbers.size() && lies != Lies::kAlone) lay_result(y, lies);
    verify(scheme_);
  }

  Numbers run(Bytes cap) const {
    Run run(scheme_, make_plan(scheme_, {.threads = num_threads(), .workspace_cap = cap}),
            {.poison = true});
    run.fill_arena(std::byte{0xff});
    for (size_t i = 0; i < numbers_.size(); ++i) run.set_values(scheme_.inputs[i], numbers_[i]);
    run.step();
    const Value out = scheme_.outputs[0];
    const Numbers all = run.values(out);
    return axis_ < 0 ? all : part(all, scheme_[out].type, type_, axis_, 0);
  }

 private:
  Value input(const Type& type, Numbers numbers) {
    numbers_.push_back(std::move(numbers));
    return scheme_.add_input({.type = type,
                              .source = {"x" + std::to_string(scheme_.objects.size())},
                              .role = Role::kInput});
  }
  Value same(Value v) { return builder_.emit("map", {v}, {{"body", std::string("mul(x0, 1)")}}); }
  Value slice(Value v, int axis, int64_t start, int64_t size) {
    return builder_.emit("slice", {v}, slice_attrs(scheme_[v].type.rank(), axis, start, size));
  }

  // Elements of `small` from `start` on along an axis of `large`, or back.
  template <class F>
  static void each(const Type& large, const Type& small, int axis, int64_t start, const F& f) {
    const Strides strides = dense_strides(large);
    for (int64_t k = 0; k < small.num_elements(); ++k) {
      int64_t rest = k, at = start * strides[axis];
      for (int a = small.rank(); a-- > 0;) {
        at += rest % small.dim(a) * strides[a];
        rest /= small.dim(a);
      }
      f(at, k);
    }
  }
  static Numbers part(const Numbers& all, const Type& large, const Type& small, int axis,
                      int64_t start) {
    Numbers x(small.num_elements());
    each(large, small, axis, start, [&](int64_t at, int64_t k) { x[k] = all[at]; });
    return x;
  }

  static int axis_of(const Type& type, Lies lies) {
    if (lies == Lies::kInRows) return 0;
    if (lies == Lies::kInMiddle) return type.rank() / 2;
    return type.rank() - 1;
  }

  Value lay(const Type& type, const Numbers& numbers, Lies lies) {
    if (lies == Lies::kAlone) return input(type, numbers);
    const int axis = axis_of(type, lies);
    const int64_t size = type.dim(axis), start = lies == Lies::kOverSlice ? 0 : 1;
    Type large = type;
    large.axes[axis].size = lies == Lies::kOverSlice ? 2 * size : size + 3;
    Numbers around(large.num_elements(), 0.5);
    each(large, type, axis, start, [&](int64_t at, int64_t k) { around[at] = numbers[k]; });
    const Value whole = input(large, around);
    if (lies != Lies::kOverSlice) return slice(whole, axis, start, size);
    // What is made of the first half may take its place, for the second half is all that is left.
    const Value made = same(whole);
    const Value first = slice(made, axis, 0, size), second = slice(made, axis, size, size);
    const Value over = same(first);
    scheme_.outputs.push_back(same(second));
    return over;
  }

  void lay_result(Value y, Lies lies) {
    axis_ = axis_of(type_, lies);
    const Value beside = same(input(type_, Numbers(type_.num_elements(), 0.25)));
    scheme_.outputs[0] = builder_.emit("concat", {y, beside}, {{"axis", int64_t{axis_}}});
  }

  Scheme scheme_;
  Builder builder_;
  std::vector<Numbers> numbers_;
  Type type_;
  int axis_ = -1;
};

struct Called {
  const char* op;
  Sample sample;
};

Sample mapped(std::vector<Type> inputs, const char* map) {
  return {.inputs = std::move(inputs), .attrs = {{"map", std::string(map)}}};
}

// Small and odd sizes, strides that kernels call bad (multiples of 256), and enough rows for the
// second operand to be packed.
std::vector<Called> calls() {
  std::vector<Called> all;
  const std::vector<std::array<int64_t, 4>> shapes = {
      {2, 3, 33, 17}, {2, 32, 64, 64}, {2, 6, 256, 512}};
  for (const auto& [b, s, k, n] : shapes) {
    all.push_back({"linear", {.inputs = {of({b, s, k}), of({n, k})}}});
    all.push_back({"contract", mapped({of({b, s, n}), of({n, k})}, "bso,oi->bsi")});
    all.push_back({"contract", mapped({of({b, s, n}), of({b, s, k})}, "bso,bsi->oi")});
  }
  all.push_back({"linear", {.inputs = {of({2, 32, 64}), of({64, 64}), of({64})}}});
  all.push_back({"linear", {.inputs = {of({2, 1030, 40}), of({32, 40})}}});
  all.push_back(
      {"contract", mapped({of({2, 40, 64}), of({2, 40, 48}), of({64, 48})}, "bso,bsi->oi")});
  all.push_back({"contract", mapped({of({2, 20, 3, 32}), of({2, 30, 3, 32})}, "bihd,bjhd->bhij")});
  all.push_back({"linear_act",
                 {.inputs = {of({2, 33, 96}), of({65, 96}), of({65})},
                  .attrs = {{"body", std::string("tanh(x0)")}, {"keep", int64_t{0}}}}});
  return all;
}

// Cut along m, n and k where what they would want is above the cap of the test.
std::vector<Called> long_calls() {
  return {{"linear", {.inputs = {of({2, 40, 70}), of({131, 70}), of({131})}}},
          {"contract", mapped({of({2, 400, 40}), of({2, 400, 33})}, "bso,bsi->oi")}};
}

void expect_same_bits_everywhere(const std::vector<Called>& calls, Dtype dtype, Bytes cap) {
  const int threads = num_threads();
  for (const int count : {1, 2}) {
    set_num_threads(count);
    for (const Called& call : calls) {
      const Numbers want = LaidCall(call.op, call.sample, dtype, 0, Lies::kAlone).run(cap);
      for (size_t which = 0; which <= call.sample.inputs.size(); ++which) {
        for (const Lies lies :
             {Lies::kInColumns, Lies::kInMiddle, Lies::kInRows, Lies::kOverSlice}) {
          if (which == call.sample.inputs.size() && lies == Lies::kOverSlice) continue;
          const Numbers got = LaidCall(call.op, call.sample, dtype, which, lies).run(cap);
          ASSERT_EQ(got.size(), want.size());
          EXPECT_EQ(std::memcmp(got.data(), want.data(), want.size() * sizeof(double)), 0)
              << call.op << " of " << to_string(call.sample.inputs[0]) << " and "
              << to_string(call.sample.inputs[1]) << ", object " << which << " lies in way "
              << static_cast<int>(lies) << ", " << count << " threads";
        }
      }
    }
  }
  set_num_threads(threads);
}

TEST(ProductBits, OfFloat32AreTheSameWhereverOperandsLie) {
  expect_same_bits_everywhere(calls(), Dtype::kF32, {64 << 20});
}

TEST(ProductBits, OfBf16AreTheSameWhereverOperandsLie) {
  expect_same_bits_everywhere(calls(), Dtype::kBF16, {64 << 20});
}

// A cap that cuts products along m, n and k: what is cut is decided without strides, too.
TEST(ProductBits, InPiecesAreTheSameWhereverOperandsLie) {
  for (const Dtype dtype : {Dtype::kF32, Dtype::kBF16, Dtype::kF16}) {
    expect_same_bits_everywhere(long_calls(), dtype, {32 << 10});
  }
}

}  // namespace
}  // namespace adjoint
