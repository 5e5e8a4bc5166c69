// The blocked attention and its gradient against their meaning in float64, at lengths around the
// block's edges and head sizes around the vector's; and that the causal kernel does not see ahead.
#include <gtest/gtest.h>

#include "base/error.h"
#include "device/parallel.h"
#include "kernels/attention_cases.h"
#include "ops/attention_shape.h"

namespace adjoint {
namespace {

using Case = AttentionCase;

void check(const Case& c, double scale = 1) {
  SCOPED_TRACE(c.text());
  const Scheme f32 = with_gradients(c, Dtype::kF32), bf16 = with_gradients(c, Dtype::kBF16);
  const std::vector<Numbers> x = random_numbers(f32, static_cast<unsigned>(c.length), scale);
  const std::vector<Numbers> want = run_scheme(f32, x, true);
  {
    SCOPED_TRACE("f32");
    expect_near(run_scheme(f32, x, false), want, 2e-6 * std::max(1.0, scale));
  }
  {
    SCOPED_TRACE("bf16");  // the result, rounded to 8 bits, is read again by the gradient
    expect_near(run_scheme(bf16, x, false), want, 1e-2);
  }
}

// All lengths with all head sizes, and with all groups where that is fast. Packed or not and causal
// or not change with every case, so that each length and each size sees all four.
TEST(Attention, KernelsAgreeWithTheMeaning) {
  int number = 0;
  for (const int64_t length : {1, 47, 48, 49, 96, 97, 130, 195}) {
    for (const int64_t size : {1, 3, 16, 17, 64}) {
      for (const int64_t group : {1, 2, 4}) {
        const int mixture = number++;
        if (length * size > 1000 && group != int64_t{1} << mixture % 3) continue;
        check({.samples = 1 + (length == 1),
               .length = length,
               .size = size,
               .kv_heads = 1 + (length * size < 200),
               .group = group,
               .packed = mixture % 2 == 1,
               .causal = mixture / 2 % 2 == 0});
      }
    }
  }
}

TEST(Attention, EveryMixtureAtTheEdgeOfABlock) {
  for (const bool packed : {false, true}) {
    for (const bool causal : {false, true}) {
      for (const int64_t length : {48, 49}) {
        check({.samples = 2,
               .length = length,
               .size = 17,
               .kv_heads = 2,
               .group = 2,
               .packed = packed,
               .causal = causal});
      }
    }
  }
}

// Every option alone and all together, at lengths and windows around the blocks' edges.
TEST(Attention, OptionsAgreeWithTheMeaning) {
  const Attr one = int64_t{1};
  const auto window = [](int64_t n) { return Attrs{{"window", n}}; };
  const Attrs all = {{"window", int64_t{60}}, {"scale", 0.2},    {"cap", 3.0},    {"alibi", one},
                     {"sinks", one},          {"segments", one}, {"dropout", 0.3}};
  const std::vector<Attrs> options = {window(1),           window(47),         window(48),
                                      window(49),          window(96),         window(97),
                                      {{"cap", 2.0}},      {{"alibi", one}},   {{"sinks", one}},
                                      {{"segments", one}}, {{"dropout", 0.3}}, all};
  int number = 0;
  for (const int64_t length : {49, 97, 195}) {
    for (const Attrs& said : options) {
      const int mixture = number++;
      const bool causal = mixture % 3 != 0;
      check({.samples = 2,
             .length = length,
             .size = 17,
             .kv_heads = 1,
             .group = 3,
             .packed = mixture % 2 == 1,
             .causal = causal,
             .options = said,
             .bias = causal && (said == all || said.empty()) ? 70 : 0});
    }
    for (const int64_t bias : {int64_t{1}, int64_t{48}, length + 5}) {
      check({.samples = 2,
             .length = length,
             .size = 8,
             .kv_heads = 2,
             .group = 1,
             .packed = false,
             .causal = true,
             .options = {},
             .bias = bias});
    }
  }
}

// An option that says nothing leaves every bit as it is.
TEST(Attention, AWindowOfAllPositionsIsNone) {
  Case c{.samples = 1,
         .length = 97,
         .size = 8,
         .kv_heads = 1,
         .group = 2,
         .packed = false,
         .causal = true};
  const Scheme plain = with_gradients(c, Dtype::kF32);
  const std::vector<Numbers> x = random_numbers(plain, 4);
  const std::vector<Numbers> want = run_scheme(plain, x, false);
  c.options = {{"window", int64_t{97}}, {"cap", 0.0}, {"dropout", 0.0}};
  c.options.erase("dropout");  // it would bring the counter
  EXPECT_EQ(run_scheme(with_gradients(c, Dtype::kF32), x, false), want);
  c.options = {{"window", int64_t{96}}};
  EXPECT_NE(run_scheme(with_gradients(c, Dtype::kF32), x, false), want);
}

// Dropout's bits are those of the logical sample: the second of two is the first, counted from 1.
TEST(Attention, DropoutKnowsTheSample) {
  const Case two{.samples = 2,
                 .length = 50,
                 .size = 4,
                 .kv_heads = 1,
                 .group = 2,
                 .packed = false,
                 .causal = true,
                 .options = {{"dropout", 0.5}}};
  Case one = two;
  one.samples = 1;
  const Scheme both = with_gradients(two, Dtype::kF32), second = with_gradients(one, Dtype::kF32);
  const std::vector<Numbers> x = random_numbers(both, 6);
  std::vector<Numbers> y = x;
  for (const size_t i : {0, 1, 2, 4}) {
    y[i].erase(y[i].begin(), y[i].begin() + static_cast<int64_t>(y[i].size() / 2));
  }
  y[3][2] += 1;
  const std::vector<Numbers> whole = run_scheme(both, x, false),
                             half = run_scheme(second, y, false);
  for (size_t k = 0; k < half.size(); ++k) {
    EXPECT_EQ(half[k],
              Numbers(whole[k].end() - static_cast<int64_t>(half[k].size()), whole[k].end()))
        << k;
  }
  y[3][2] -= 1;
  EXPECT_NE(run_scheme(second, y, false), half);
}

TEST(Attention, SlopesOfHeadsThatAreNoPowerOfTwo) {
  AttentionShape s{.kv_heads = 2, .group = 4, .alibi = true};
  for (int64_t h = 0; h < 8; ++h) EXPECT_DOUBLE_EQ(s.slope(h), std::exp2(-1.0 - h));
  s.group = 6;  // 12 heads: those of 8, then every other one of 16
  for (int64_t h = 0; h < 8; ++h) EXPECT_DOUBLE_EQ(s.slope(h), std::exp2(-1.0 - h));
  for (int64_t h = 8; h < 12; ++h) EXPECT_DOUBLE_EQ(s.slope(h), std::exp2(-0.5 - (h - 8)));
}

TEST(Attention, PairsThatAWindowLeaves) {
  const auto counted = [](const AttentionShape& s) {
    double pairs = 0;
    for (int64_t i = 0; i < s.length; ++i) {
      for (int64_t j = 0; j < s.length; ++j) {
        const bool near = !s.window || (i - j < s.window && j - i < s.window);
        pairs += near && (!s.causal || j <= i);
      }
    }
    return pairs;
  };
  for (const bool causal : {true, false}) {
    for (const int64_t window : {0, 1, 2, 5, 9, 10}) {
      const AttentionShape s{.length = 10, .causal = causal, .window = window};
      EXPECT_EQ(s.pairs(), counted(s)) << causal << " " << window;
    }
  }
}

TEST(Attention, ThreadsChangeNoBit) {
  const int before = num_threads();
  for (const int64_t samples : {1, 2}) {
    const Case c{.samples = samples,
                 .length = 101,
                 .size = 24,
                 .kv_heads = 1,
                 .group = 3,
                 .packed = true,
                 .causal = true};
    const Scheme s = with_gradients(c, Dtype::kF32);
    const std::vector<Numbers> x = random_numbers(s, 1);
    set_num_threads(1);
    const std::vector<Numbers> want = run_scheme(s, x, false);
    for (const int threads : {2, 3, 5}) {
      set_num_threads(threads);
      EXPECT_EQ(run_scheme(s, x, false), want) << threads << " threads";
    }
  }
  set_num_threads(before);
}

// Scores of several hundreds: without the shift by the row's largest, exp would overflow.
TEST(Attention, LargeScoresStayFinite) {
  check({.samples = 1,
         .length = 49,
         .size = 16,
         .kv_heads = 1,
         .group = 2,
         .packed = false,
         .causal = true},
        10);
}

// Slices of one object are views: the kernel walks q, k and v inside it by strides.
TEST(Attention, SlicesOfOneObjectGiveThePackedBits) {
  const Case c{.samples = 2,
               .length = 50,
               .size = 3,
               .kv_heads = 2,
               .group = 2,
               .packed = true,
               .causal = true};
  const int64_t q = c.heads() * c.size, kv = c.kv_heads * c.size;
  Scheme packed, sliced;
  for (Scheme* s : {&packed, &sliced}) {
    const Value x = s->add_input({.type = attention_rows_type(c, q + 2 * kv, Dtype::kF32),
                                  .source = {"x"},
                                  .role = Role::kInput});
    Builder builder(*s);
    std::vector<Value> operands = {x};
    if (s == &sliced) {
      operands.clear();
      for (const auto& [start, size] : {std::pair{int64_t{0}, q}, {q, kv}, {q + kv, kv}}) {
        operands.push_back(builder.emit("slice", {x}, {{"start", start}, {"size", size}}));
      }
    }
    s->outputs = builder.emit_all("attention", operands, c.attrs());
  }
  const std::vector<Numbers> x = random_numbers(packed, 3);
  EXPECT_EQ(run_scheme(packed, x, false), run_scheme(sliced, x, false));
}

// The rows [from, to) of every sample.
Numbers positions(const Numbers& x, const Case& c, int64_t from, int64_t to) {
  const int64_t width = static_cast<int64_t>(x.size()) / (c.samples * c.length);
  Numbers part;
  for (int64_t sample = 0; sample < c.samples; ++sample) {
    const auto begin = x.begin() + sample * c.length * width;
    part.insert(part.end(), begin + from * width, begin + to * width);
  }
  return part;
}

Numbers changed(Numbers x, const Case& c, int64_t from, int64_t to) {
  const int64_t width = static_cast<int64_t>(x.size()) / (c.samples * c.length);
  for (size_t i = 0; i < x.size(); ++i) {
    const int64_t position = static_cast<int64_t>(i) / width % c.length;
    if (position >= from && position < to) x[i] = 3 - 2 * x[i];
  }
  return x;
}

TEST(Attention, CausalDoesNotSeeAhead) {
  const Case c{.samples = 2,
               .length = 97,
               .size = 17,
               .kv_heads = 2,
               .group = 2,
               .packed = false,
               .causal = true};
  const Scheme s = with_gradients(c, Dtype::kF32);
  const std::vector<Numbers> x = random_numbers(s, 11);
  const std::vector<Numbers> before = run_scheme(s, x, false);
  for (const int64_t from : {1, 5, 47, 48, 49, 96}) {
    std::vector<Numbers> later = x;
    for (const int operand : {0, 1, 2}) later[operand] = changed(x[operand], c, from, c.length);
    const std::vector<Numbers> after = run_scheme(s, later, false);
    EXPECT_EQ(positions(before[0], c, 0, from), positions(after[0], c, 0, from)) << from;
    EXPECT_NE(positions(before[0], c, from, c.length), positions(after[0], c, from, c.length));
  }
}

// Nor does a key hear of the gradients of positions before its own.
TEST(Attention, CausalGradientsDoNotLookBack) {
  const Case c{.samples = 1,
               .length = 97,
               .size = 3,
               .kv_heads = 1,
               .group = 2,
               .packed = false,
               .causal = true};
  const Scheme s = with_gradients(c, Dtype::kF32);
  std::vector<Numbers> x = random_numbers(s, 12);
  const std::vector<Numbers> before = run_scheme(s, x, false);
  for (const int64_t to : {1, 47, 48, 49, 96}) {
    std::vector<Numbers> earlier = x;
    earlier[3] = changed(x[3], c, 0, to);
    const std::vector<Numbers> after = run_scheme(s, earlier, false);
    EXPECT_EQ(positions(before[2], c, to, c.length), positions(after[2], c, to, c.length)) << to;
    for (const int gradient : {3, 4}) {
      EXPECT_EQ(positions(before[gradient], c, to, c.length),
                positions(after[gradient], c, to, c.length))
          << to;
    }
    EXPECT_NE(positions(before[4], c, 0, to), positions(after[4], c, 0, to));
  }
}

TEST(Attention, WithoutTheMaskTheFutureCounts) {
  const Case c{.samples = 1,
               .length = 49,
               .size = 3,
               .kv_heads = 1,
               .group = 1,
               .packed = false,
               .causal = false};
  const Scheme s = with_gradients(c, Dtype::kF32);
  const std::vector<Numbers> x = random_numbers(s, 13);
  std::vector<Numbers> later = x;
  later[2] = changed(x[2], c, 48, 49);
  EXPECT_NE(positions(run_scheme(s, x, false)[0], c, 0, 1),
            positions(run_scheme(s, later, false)[0], c, 0, 1));
}

}  // namespace
}  // namespace adjoint
