// What a model's text says is what runs: every word of the notation against plain loops.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <random>

#include "kernels/harness.h"
#include "models/elaborate.h"

namespace adjoint {
namespace {

constexpr int kB = 2, kS = 5, kH = 6;

struct Ran {
  std::vector<Numbers> in, out;
};

// The model with its inputs drawn, in float64 by the reference, and on this machine beside it.
Ran run_text(const std::string& text, const std::vector<int>& ids_below = {}) {
  const std::string axes = "axes hidden=6 heads=2 context=5 batch=2\n";
  const Scheme scheme = elaborate(parse_document(axes + text, "my.scheme"), "my.scheme", {});
  std::mt19937 random(7);
  std::normal_distribution<double> normal;
  Ran ran;
  size_t integers = 0;
  for (const Value in : scheme.inputs) {
    const Type& type = scheme[in].type;
    Numbers x(type.num_elements());
    const bool floating = is_float(type.dtype);
    const int below = floating ? 0 : ids_below.at(integers++);
    for (double& value : x) {
      value =
          floating ? static_cast<float>(normal(random)) : static_cast<double>(random() % below) - 1;
    }
    ran.in.push_back(std::move(x));
  }
  ran.out = run_scheme(scheme, ran.in, true);
  const std::vector<Numbers> fast = run_scheme(scheme, ran.in, false);
  for (size_t k = 0; k < fast.size(); ++k) {
    EXPECT_LE(relative_error(fast[k], ran.out[k]), 1e-5) << "output " << k << " of\n" << text;
  }
  return ran;
}

double& at(Numbers& x, int b, int s, int h) { return x[(b * kS + s) * kH + h]; }

// Every element of [batch, seq, hidden].
void expect_elements(Numbers found, const std::function<double(int, int, int)>& wanted) {
  ASSERT_EQ(found.size(), static_cast<size_t>(kB * kS * kH));
  for (int b = 0; b < kB; ++b) {
    for (int s = 0; s < kS; ++s) {
      for (int h = 0; h < kH; ++h) {
        EXPECT_NEAR(at(found, b, s, h), wanted(b, s, h), 1e-12) << b << " " << s << " " << h;
      }
    }
  }
}

const char* const kX = "model x f32[batch, seq, hidden]:\n";

TEST(Notation, FunctionsOfElements) {
  Ran ran = run_text(std::string(kX) +
                     "  y = sqrt(abs(x)) + cos(x)*sin(x) - log(abs(x) + 1) + pow(x, 3)\n"
                     "  y = y + maximum(x, 0.5) + minimum(0.25, x) + 1/(2 + abs(x))\n");
  expect_elements(ran.out[0], [&](int b, int s, int h) {
    const double x = at(ran.in[0], b, s, h), a = std::abs(x);
    return std::sqrt(a) + std::cos(x) * std::sin(x) - std::log(a + 1) + x * x * x +
           std::max(x, 0.5) + std::min(0.25, x) + 1 / (2 + a);
  });
}

TEST(Notation, ComparisonsAndConditionsOfObjects) {
  Ran ran = run_text(std::string(kX) +
                     "  i = index(x, seq)\n"
                     "  j = index(x, -1)\n"
                     "  m = (i >= j and i - j < 3) or not (x <= 1) or j == 5\n"
                     "  n = where(x > 0 and j != 2, x, -7)\n"
                     "  y = where(m, n, 2*x)\n");
  expect_elements(ran.out[0], [&](int b, int s, int h) {
    const double x = at(ran.in[0], b, s, h);
    const bool m = (s >= h && s - h < 3) || !(x <= 1) || h == 5;
    const double n = x > 0 && h != 2 ? x : -7;
    return m ? n : 2 * x;
  });
}

// Of objects as of numbers: negative ones, and those whose product is 0, are true, too.
TEST(Notation, WhatIsNotZeroIsTrue) {
  Ran ran = run_text(
      "model ids[batch, seq], x f32[batch, seq, hidden]:\n"
      "  i = unsqueeze(ids, 2)\n"
      "  tiny = 1e-30*x\n"
      "  y = (i or x > 1) + 10*(not i) + 100*(tiny and tiny) + 1000*(i and 2) + 10000*(x or 0)\n",
      {3});
  expect_elements(ran.out[0], [&](int b, int s, int h) {
    const double i = ran.in[0][b * kS + s], x = at(ran.in[1], b, s, h);
    return (i != 0 || x > 1) + 10 * (i == 0) + 100 + 1000 * (i != 0) + 10000;
  });
}

TEST(Notation, SumsMeansAndMaximaOverAnyAxis) {
  Ran ran = run_text(std::string(kX) +
                     "  a = sum(x, hidden, keep)\n"
                     "  b = mean(x, axis=seq, keep=yes)\n"
                     "  c = max(x, axis=0, keep=yes)\n"
                     "  y = x - a + b*c\n"
                     "  s, m, t = sum(x, seq), mean(x), max(x, axis=0)\n"
                     "  y, s, m, t = y, s, m, t\n");
  const auto x = [&](int b, int s, int h) { return at(ran.in[0], b, s, h); };
  const auto over_hidden = [&](int b, int s) {
    double sum = 0;
    for (int h = 0; h < kH; ++h) sum += x(b, s, h);
    return sum;
  };
  const auto over_seq = [&](int b, int h) {
    double sum = 0;
    for (int s = 0; s < kS; ++s) sum += x(b, s, h);
    return sum;
  };
  expect_elements(ran.out[0], [&](int b, int s, int h) {
    return x(b, s, h) - over_hidden(b, s) + over_seq(b, h) / kS * std::max(x(0, s, h), x(1, s, h));
  });
  for (int b = 0; b < kB; ++b) {
    for (int h = 0; h < kH; ++h) EXPECT_NEAR(ran.out[1][b * kH + h], over_seq(b, h), 1e-12);
    for (int s = 0; s < kS; ++s) {
      EXPECT_NEAR(ran.out[2][b * kS + s], over_hidden(b, s) / kH, 1e-12);
    }
  }
  for (int s = 0; s < kS; ++s) {
    for (int h = 0; h < kH; ++h) {
      EXPECT_EQ(ran.out[3][s * kH + h], std::max(x(0, s, h), x(1, s, h)));
    }
  }
}

TEST(Notation, ShiftsAndConvolutionsLookBack) {
  Ran ran = run_text(std::string(kX) +
                     "  y = shift(x, 2) + 3*shift(x, -1, fill=0.5) + shift(x, 1, axis=hidden)\n"
                     "  z = conv(x, 3, bias=yes, name=c)\n"
                     "  y, z = y + shift(x, 0), z\n");
  const auto x = [&](int b, int s, int h) { return at(ran.in[0], b, s, h); };
  expect_elements(ran.out[0], [&](int b, int s, int h) {
    return (s >= 2 ? x(b, s - 2, h) : 0) + 3 * (s + 1 < kS ? x(b, s + 1, h) : 0.5) +
           (h >= 1 ? x(b, s, h - 1) : 0) + x(b, s, h);
  });
  const Numbers &weight = ran.in[1], &bias = ran.in[2];
  ASSERT_EQ(weight.size(), static_cast<size_t>(3 * kH));
  expect_elements(ran.out[1], [&](int b, int s, int h) {
    double sum = bias[h];
    for (int j = 0; j < 3 && j <= s; ++j) sum += weight[j * kH + h] * x(b, s - j, h);
    return sum;
  });
}

TEST(Notation, PartsOfAxesAndOtherOrders) {
  Ran ran = run_text(std::string(kX) +
                     "  a = slice(x, 1, 3, axis=seq)\n"
                     "  b = slice(x, 0, 2, axis=seq)\n"
                     "  t = transpose(x, seq, hidden)\n"
                     "  u = squeeze(unsqueeze(transpose(t), 1), 1)\n"
                     "  y = concat(a, b, axis=seq) + u\n");
  expect_elements(ran.out[0], [&](int b, int s, int h) {
    return at(ran.in[0], b, s < 3 ? s + 1 : s - 3, h) + at(ran.in[0], b, s, h);
  });
}

// softmax(mask(cap(q k^T) - slope * distance)) v, head by head.
TEST(Notation, AttentionByHand) {
  Ran ran = run_text(
      "model q f32[batch, seq, hidden], k f32[batch, seq, hidden], v f32[batch, seq, hidden]:\n"
      "  scores = contract(split(q, heads), split(k, heads), \"bshd,bthd->bhst\") / sqrt(3)\n"
      "  capped = 2*tanh(scores/2)\n"
      "  i, j, h = index(scores, 2), index(scores, 3), index(scores, heads)\n"
      "  biased = capped - 0.5*(h + 1)*(i - j)\n"
      "  p = softmax(where(i >= j and i - j < 3, biased, -1e30))\n"
      "  y = merge(contract(p, split(v, heads), \"bhst,bthd->bshd\"))\n");
  Numbers &q = ran.in[0], &k = ran.in[1], &v = ran.in[2];
  expect_elements(ran.out[0], [&](int b, int s, int c) {
    const int head = c / 3;
    double total = 0, mixed = 0;
    for (int t = std::max(0, s - 2); t <= s; ++t) {
      double score = 0;
      for (int d = 3 * head; d < 3 * head + 3; ++d) score += at(q, b, s, d) * at(k, b, t, d);
      const double capped = 2 * std::tanh(score / std::sqrt(3.0) / 2);
      const double weight = std::exp(capped - 0.5 * (head + 1) * (s - t));
      total += weight;
      mixed += weight * at(v, b, t, c);
    }
    return mixed / total;
  });
}

TEST(Notation, ALossIsAWeightedSumOfMeans) {
  Ran ran = run_text(
      "model x f32[batch, seq, hidden], t[batch, seq], u[batch, seq]:\n"
      "  z = pow(log(sum(exp(x))), 2)\n"
      "  loss = cross_entropy(x, t) + 0.25*average(z, t) - average(mean(x), u)/2\n",
      {7, 3});
  const auto x = [&](int b, int s, int h) { return at(ran.in[0], b, s, h); };
  double entropy = 0, square = 0, mean = 0, counted = 0, others = 0;
  for (int b = 0; b < kB; ++b) {
    for (int s = 0; s < kS; ++s) {
      double sum = 0, exponents = 0;
      for (int h = 0; h < kH; ++h) sum += x(b, s, h), exponents += std::exp(x(b, s, h));
      const double log_sum = std::log(exponents);
      if (const auto t = static_cast<int>(ran.in[1][b * kS + s]); t >= 0) {
        entropy += log_sum - x(b, s, t);
        square += log_sum * log_sum;
        counted += 1;
      }
      if (ran.in[2][b * kS + s] >= 0) mean += sum / kH, others += 1;
    }
  }
  ASSERT_NE(counted, others);
  EXPECT_EQ(ran.out[1][0], std::max(counted, others));
  EXPECT_NEAR(ran.out[0][0] / ran.out[1][0],
              entropy / counted + 0.25 * square / counted - mean / others / 2, 1e-12);
}

// -sum over classes of q log softmax(u), q the smoothed target, and z times the squared log-sum;
// u = cap tanh(x / cap).
TEST(Notation, CrossEntropyHasOptions) {
  const std::string head = "model x f32[batch, seq, hidden], t[batch, seq]:\n";
  for (const auto& [words, e, z, cap] :
       std::vector<std::tuple<std::string, double, double, double>>{
           {"smoothing=0.1", 0.1, 0, 0},
           {"z=0.5", 0, 0.5, 0},
           {"cap=1.5", 0, 0, 1.5},
           {"smoothing=0.25, z=1/8, cap=2", 0.25, 0.125, 2}}) {
    Ran ran = run_text(head + "  loss = cross_entropy(3*x, t, " + words + ")\n", {7});
    double sum = 0, counted = 0;
    for (int b = 0; b < kB; ++b) {
      for (int s = 0; s < kS; ++s) {
        const auto t = static_cast<int>(ran.in[1][b * kS + s]);
        if (t < 0) continue;
        const auto u = [&](int h) {
          const double x = 3 * at(ran.in[0], b, s, h);
          return cap > 0 ? cap * std::tanh(x / cap) : x;
        };
        double exponents = 0;
        for (int h = 0; h < kH; ++h) exponents += std::exp(u(h));
        for (int h = 0; h < kH; ++h) {
          const double q = (h == t ? 1 - e : 0) + e / kH;
          sum -= q * std::log(std::exp(u(h)) / exponents);
        }
        sum += z * std::pow(std::log(exponents), 2);
        counted += 1;
      }
    }
    EXPECT_EQ(ran.out[1][0], counted);
    EXPECT_NEAR(ran.out[0][0], sum, 1e-12) << words;
  }
}

// What is not asked for is not written: such schemes, and what is saved of them, stay as they were.
TEST(Notation, OptionsOfZeroAreNone) {
  const std::string head =
      "axes hidden=6 batch=2\nmodel x f32[batch, hidden], t[batch]:\n  loss = cross_entropy(x, t";
  const auto printed = [&](const std::string& words) {
    return print(elaborate(parse_document(head + words + ")\n", "my.scheme"), "my.scheme", {}));
  };
  EXPECT_EQ(printed(", smoothing=0, z=0, cap=0"), printed(""));
  EXPECT_NE(printed(", cap=30").find("{cap=30.0, ignore=-1}"), std::string::npos)
      << printed(", cap=30");
}

TEST(Notation, RotaryOfSomeNumbersAndStretchedAngles) {
  const auto turned = [](const std::string& arguments, const std::function<double(int)>& frequency,
                         int dims, double gain) {
    Ran ran = run_text("model x f32[batch, seq, hidden]:\n  y = rotary(x, one, " + arguments +
                       ")\naxes one=1\n");
    expect_elements(ran.out[0], [&](int b, int s, int h) {
      const auto x = [&](int i) { return at(ran.in[0], b, s, i); };
      if (h >= dims) return x(h);
      const int half = dims / 2, pair = h % half;
      const double angle = s * frequency(pair);
      const double other = h < half ? -x(h + half) : x(h - half);
      return gain * (x(h) * std::cos(angle) + other * std::sin(angle));
    });
  };
  const auto plain = [](double dims, double base) {
    return [=](int pair) { return std::pow(base, -2 * pair / dims); };
  };
  turned("base=100", plain(6, 100), 6, 1);
  turned("base=100, dims=4", plain(4, 100), 4, 1);
  const auto linear = [&](int pair) { return plain(6, 100)(pair) / 4; };
  turned("base=100, scaling=linear, factor=4", linear, 6, 1);
  // As transformers computes them.
  const auto llama3 = [&](int pair) {
    const double frequency = plain(6, 100)(pair), wave = 2 * M_PI / frequency;
    const double factor = 8, low = 1, high = 4, original = 64;
    if (wave < original / high) return frequency;
    if (wave > original / low) return frequency / factor;
    const double smooth = (original / wave - low) / (high - low);
    return (1 - smooth) * frequency / factor + smooth * frequency;
  };
  turned("base=100, scaling=llama3, factor=8, original=64", llama3, 6, 1);
  const auto yarn = [&](int pair) {
    const double base = 100, dims = 6, original = 64, factor = 4;
    const auto pair_of = [&](double turns) {
      return dims * std::log(original / (turns * 2 * M_PI)) / (2 * std::log(base));
    };
    const double low = std::max(std::floor(pair_of(32)), 0.0);
    const double high = std::min(std::ceil(pair_of(1)), dims - 1);
    const double ramp = std::clamp((pair - low) / (high - low), 0.0, 1.0);
    const double frequency = plain(6, 100)(pair);
    return frequency / factor * ramp + frequency * (1 - ramp);
  };
  turned("base=100, scaling=yarn, factor=4, original=64", yarn, 6, 0.1 * std::log(4) + 1);
}

}  // namespace
}  // namespace adjoint
