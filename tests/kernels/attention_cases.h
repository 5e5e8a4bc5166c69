// Calls of attention with their gradients, for tests of its kernels on any target.
#pragma once
#include <gtest/gtest.h>

#include "kernels/harness.h"

namespace adjoint {

struct AttentionCase {
  int64_t samples, length, size, kv_heads, group;
  bool packed, causal;
  Attrs options = {};
  int64_t bias = 0;        // entries of its table
  int64_t value_size = 0;  // 0: that of the keys

  int64_t heads() const { return kv_heads * group; }
  bool says(const char* option) const { return options.count(option) > 0; }
  Attrs attrs() const {
    Attrs all = options;
    all.insert({{"heads", heads()}, {"kv_heads", kv_heads}, {"causal", int64_t{causal}}});
    if (bias) all["bias"] = int64_t{1};
    if (says("dropout")) all["key"] = std::string("block[0].attention#1");
    return all;
  }
  std::string text() const {
    return "samples=" + std::to_string(samples) + " length=" + std::to_string(length) +
           " size=" + std::to_string(size) + " kv_heads=" + std::to_string(kv_heads) +
           " group=" + std::to_string(group) + (packed ? " packed" : "") +
           (causal ? " causal" : "") + options_text();
  }
  std::string options_text() const {
    std::string text;
    for (const auto& [key, value] : attrs()) text += " " + key + "=" + to_string(value);
    return text;
  }
};

inline Type attention_rows_type(const AttentionCase& c, int64_t width, Dtype dtype) {
  return {dtype, {{"batch", c.samples}, {"seq", c.length}, {"width", width}}};
}

// Inputs: q, k, v (or all three in one), then the gradient of the result. Outputs: the result, its
// log-sums, then the gradients of the operands.
inline Scheme with_gradients(const AttentionCase& c, Dtype dtype) {
  Scheme s;
  const int64_t q = c.heads() * c.size, kv = c.kv_heads * c.size;
  const int64_t value_size = c.value_size ? c.value_size : c.size;
  std::vector<Value> operands;
  for (const int64_t width : c.packed ? std::vector<int64_t>{q + 2 * kv}
                                      : std::vector<int64_t>{q, kv, c.kv_heads * value_size}) {
    operands.push_back(s.add_input({.type = attention_rows_type(c, width, dtype),
                                    .source = {"x" + std::to_string(operands.size())},
                                    .role = Role::kInput}));
  }
  const auto option = [&](Type type) {
    operands.push_back(s.add_input({.type = std::move(type),
                                    .source = {"x" + std::to_string(operands.size())},
                                    .role = Role::kInput}));
  };
  if (c.bias) option({dtype, {{"heads", c.heads()}, {"n", c.bias}}});
  if (c.says("sinks")) option({dtype, {{"heads", c.heads()}}});
  if (c.says("segments")) option({Dtype::kI32, {{"batch", c.samples}, {"seq", c.length}}});
  if (c.says("dropout")) option(random_counter_type());
  const Value dout = s.add_input({.type = attention_rows_type(c, c.heads() * value_size, dtype),
                                  .source = {"dout"},
                                  .role = Role::kInput});
  Builder builder(s);
  builder.at({"attention"}, Phase::kForward, Role::kActivation);
  s.outputs = builder.emit_all("attention", operands, c.attrs());
  const std::pair<Value, Value> seeds[] = {{s.outputs[0], dout}};
  std::erase_if(operands, [&](Value v) { return !is_float(s[v].type.dtype); });
  for (const auto& g : backpropagate(builder, 0, 1, seeds, operands)) s.outputs.push_back(*g);
  verify(s);
  return s;
}

inline std::vector<Numbers> random_numbers(const Scheme& s, unsigned seed, double scale = 1) {
  std::mt19937 random(seed);
  std::normal_distribution<double> normal(0, scale);
  std::vector<Numbers> numbers;
  for (const Value in : s.inputs) {
    Numbers x(s[in].type.num_elements());
    // Numbers of bf16 are numbers of every dtype, so one reference judges them all.
    for (double& value : x) value = round_element(normal(random), Dtype::kBF16);
    // Documents of 40 tokens, and any counter.
    if (s[in].type.dtype == Dtype::kI32) {
      for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<double>(i / 40);
    }
    if (s[in].type.dtype == Dtype::kI64) x = {5, 2, 3};
    numbers.push_back(std::move(x));
  }
  return numbers;
}

inline double norm(const Numbers& x) {
  double sum = 0;
  for (const double value : x) sum += value * value;
  return std::sqrt(sum);
}

inline void expect_near(const std::vector<Numbers>& got, const std::vector<Numbers>& want,
                        double tolerance) {
  ASSERT_EQ(got.size(), want.size());
  EXPECT_LT(relative_error(got[0], want[0]), tolerance) << "the result";
  EXPECT_LT(relative_error(got[1], want[1]), tolerance) << "the log-sums";
  // A gradient may cancel to nothing (one position: the weight is 1 whatever q and k are), so each
  // is held to the size of all of them.
  double all = 0;
  for (size_t k = 2; k < want.size(); ++k) all = std::hypot(all, norm(want[k]));
  for (size_t k = 2; k < want.size(); ++k) {
    Numbers difference = got[k];
    for (size_t i = 0; i < difference.size(); ++i) difference[i] -= want[k][i];
    EXPECT_LT(norm(difference), 4 * tolerance * all) << "the gradient of operand " << k - 2;
  }
}

}  // namespace adjoint
