// Random schemes for testing fusions, and what a fusion must not change.
#pragma once
#include <gtest/gtest.h>

#include <cstring>

#include "kernels/harness.h"
#include "ops/samples.h"

namespace adjoint {

// A chain of random body ops over one space, most of which read the previous result.
class RandomChain {
 public:
  RandomChain(unsigned seed, bool halves) : random_(seed), builder_(scheme), halves_(halves) {
    constexpr int64_t kLeading[] = {1, 2, 5, 70}, kMiddle[] = {1, 3, 20},
                      kRows[] = {1, 2, 6, 64, 130, 1030};
    // Large enough for a sum of [20, 1030], which threads split by column.
    sizes_ = {kLeading[below(4)], kMiddle[below(3)], kRows[below(6)]};
    if (sizes_[0] == 70 && sizes_[2] > 130) sizes_[0] = 5;
    const auto type = [&](std::vector<int64_t> sizes) { return of(std::move(sizes)); };
    for (int i = 0; i < 3; ++i) add_input(type(sizes_));
    weight_ = add_input(type({sizes_[2]}));
    bias_ = add_input(type({sizes_[2]}));
    column_ = add_input(type({sizes_[1], 1}));
    counter_ = scheme.add_input(
        {.type = random_counter_type(), .source = {"random"}, .role = Role::kControl});
    inputs.push_back({7, 3, 2});
    for (int k = static_cast<int>(4 + below(9)); k > 0; --k) step(k);
    for (const Value v : full_) {
      if (v == full_.back() || below(5) == 0) scheme.outputs.push_back(v);
    }
  }

  Scheme scheme;
  std::vector<Numbers> inputs;

 private:
  size_t below(size_t n) { return random_() % n; }

  Value add_input(const Type& type) {
    std::normal_distribution<double> normal;
    Numbers x(type.num_elements());
    for (double& value : x) value = static_cast<float>(normal(random_));
    inputs.push_back(std::move(x));
    const Value v = scheme.add_input(
        {.type = type, .source = {"x" + std::to_string(inputs.size())}, .role = Role::kInput});
    if (type.rank() == 3) full_.push_back(v);
    return v;
  }

  Value any() {
    const size_t recent = std::min<size_t>(full_.size(), 3);
    return below(4) ? full_[full_.size() - 1 - below(recent)] : full_[below(full_.size())];
  }

  void step(int k) {
    builder_.at({"op" + std::to_string(k)}, Phase::kForward, Role::kActivation);
    const auto make = [&](std::string_view op, std::vector<Value> in, Attrs attrs = {}) {
      full_.push_back(builder_.emit(op, std::move(in), std::move(attrs)));
    };
    // Adds a map; results that do not have the whole space are returned from the scheme.
    const auto map = [&](std::vector<Value> in, const char* body) {
      for (const Value v : builder_.emit_all("map", std::move(in), {{"body", std::string(body)}})) {
        const bool whole = builder_.type(v).rank() == 3 && builder_.type(v).dim(-1) == sizes_[2];
        if (whole) full_.push_back(v);
        if (!whole) scheme.outputs.push_back(v);
      }
    };
    const Value a = any(), b = any();
    switch (below(halves_ ? 18 : 16)) {
      case 0:
        return make("add", {a, b});
      case 1:
        return make("mul", {a, b});
      case 2:
        return make("sub", {a, weight_});
      case 3:
        return make("scale", {a}, {{"by", 0.7}, {"plus", -0.2}});
      case 4:
        return make("gelu", {a});
      case 5:
        return make("silu", {a});
      case 6:
        return make("tanh", {a});
      case 7:
        return make("dropout", {a, counter_}, {{"rate", 0.3}, {"key", "k" + std::to_string(k)}});
      case 8:
        return make("layer_norm", {a, weight_, bias_});
      case 9:
        return make("rms_norm", {a, weight_});
      case 10:
        return make("softmax", {a});
      case 11:
        return map({a, b}, "t0 = mul(x0, x1); t0, t0/2, t0/1");
      case 12:
        return map({a, b}, "t0 = sub(x0, mul(0.5, x1)); t0, t0/1");
      case 13:
        return map({a, weight_}, "t0 = mul(x0, x1); t0, t0/2, rowsum(t0)/2/dropped");
      case 14: {
        const Value one =
            builder_.emit("map", {a}, {{"body", std::string("tanh(rowsum(mul(x0, 0.1)))/one")}});
        return make("mul", {b, one});
      }
      case 15: {
        // One number per row, stored as a whole row and then summed: the sum of n copies need not
        // round like a product by n.
        const Value all =
            builder_.emit("map", {a, column_}, {{"body", std::string("mul(rowmax(x0), x1)")}});
        full_.push_back(all);
        return map({all, b}, "add(x1, mul(0.01, rowsum(x0)))");
      }
      case 16:
        return make("cast", {a}, {{"dtype", std::string("bf16")}});
      default:
        return make("cast", {a}, {{"dtype", std::string(below(2) ? "f16" : "f32")}});
    }
  }

  std::mt19937 random_;
  Builder builder_;
  bool halves_;
  std::vector<int64_t> sizes_;
  std::vector<Value> full_;
  Value weight_ = 0, bias_ = 0, column_ = 0, counter_ = 0;
};

inline void expect_same_bits(const std::vector<Numbers>& got, const std::vector<Numbers>& want,
                             const std::string& where) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t k = 0; k < want.size(); ++k) {
    ASSERT_EQ(got[k].size(), want[k].size());
    for (size_t i = 0; i < want[k].size(); ++i) {
      if (std::isnan(want[k][i]) && std::isnan(got[k][i])) continue;
      ASSERT_EQ(std::memcmp(&got[k][i], &want[k][i], sizeof(double)), 0)
          << where << ": output " << k << " element " << i << ": " << got[k][i] << " for "
          << want[k][i];
    }
  }
}

}  // namespace adjoint
