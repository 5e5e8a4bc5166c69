// Small schemes at random: DAGs of elementwise, row, matrix and movement ops with several results,
// and state that is read, seen through views, and written once.
#pragma once
#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "ops/builder.h"

namespace adjoint {

class RandomScheme {
 public:
  explicit RandomScheme(unsigned seed) : random_(seed), builder_(scheme) {
    scheme.name = "random" + std::to_string(seed);
    for (size_t k = 1 + below(2); k > 0; --k) {
      pool_.push_back(add_input("data", random_type(), Role::kInput));
    }
    const size_t states = below(3);
    for (size_t k = 0; k < states; ++k) {
      const Type& like = scheme[pool_[below(pool_.size())]].type;
      pool_.push_back(add_input("state", like, Role::kState));
    }
    const std::vector<Value> written(pool_.end() - static_cast<int64_t>(states), pool_.end());
    const size_t calls = 4 + below(14), update_at = below(calls);
    for (size_t k = 0; k < calls; ++k) {
      add_call();
      // What is written is not read again here, but what was there before still may be.
      if (k == update_at) {
        for (const Value state : written) add_update(state);
      }
    }
    // Not what is written over: after the step it is gone.
    for (size_t k = 1 + below(3); k > 0; --k) {
      const Value out = k == 1 ? pool_.back() : any();
      const Value seen = seen_through_views(out);
      const bool kept = std::none_of(scheme.carries.begin(), scheme.carries.end(),
                                     [&](const Carry& c) { return c.in == seen; });
      if (kept) scheme.outputs.push_back(out);
    }
    verify(scheme);
  }

  Scheme scheme;

 private:
  size_t below(size_t n) { return random_() % n; }
  int64_t one_of(std::initializer_list<int64_t> sizes) {
    return sizes.begin()[below(sizes.size())];
  }
  Value any() { return pool_[below(pool_.size())]; }

  Type random_type() {
    Type type{Dtype::kF32, {{"b", one_of({1, 2, 3})}}};
    if (below(2)) type.axes.push_back({"s", one_of({1, 2, 3})});
    type.axes.push_back({"n", one_of({1, 2, 4, 6, 12})});
    if (below(6) == 0) type.axes.back().padded = type.axes.back().size + 2;
    return type;
  }

  Value add_input(const std::string& name, Type type, Role role) {
    return scheme.add_input({.type = std::move(type),
                             .source = {name + std::to_string(scheme.objects.size())},
                             .role = role});
  }
  Value parameter(std::vector<Axis> axes) {
    return add_input("parameter", {Dtype::kF32, std::move(axes)}, Role::kParameter);
  }

  // Another object of x's shape, x itself if there is none.
  Value beside(Value x) {
    std::vector<Value> same;
    for (const Value v : pool_) {
      if (same_shape(scheme[v].type, scheme[x].type)) same.push_back(v);
    }
    return same[below(same.size())];
  }

  Value seen_through_views(Value v) const {
    const std::vector<int> made_by = producers(scheme);
    while (made_by[v] >= 0 && op_named(scheme.morphisms[made_by[v]].op).view) {
      v = scheme.morphisms[made_by[v]].inputs[0];
    }
    return v;
  }

  void add(std::string_view op, std::vector<Value> operands, Attrs attrs = {}) {
    builder_.at({std::string(op) + std::to_string(scheme.morphisms.size())}, Phase::kForward,
                Role::kActivation);
    for (const Value v : builder_.emit_all(op, std::move(operands), std::move(attrs))) {
      pool_.push_back(v);
    }
  }

  void add_update(Value state) {
    builder_.at({"update" + std::to_string(scheme.morphisms.size())}, Phase::kUpdate, Role::kState);
    // Not by another state: two that are written from each other would need a third place.
    Value by = beside(state);
    if (scheme[seen_through_views(by)].role == Role::kState) by = state;
    scheme.carries.push_back({state, builder_.emit("add", {state, by})});
  }

  void add_call() {
    // Mostly what was made last, so that there are chains.
    const Value x = below(2) ? pool_.back() : any();
    const Type type = scheme[x].type;
    const Axis last = {type.axes.back().name, type.dim(-1)};
    switch (below(13)) {
      case 0:
        return add("add", {x, beside(x)});
      case 1:
        return add("mul", {x, beside(x)});
      case 2:
        return add("add", {x, parameter({last})});
      case 3:
        return add("gelu", {x});
      case 4:
        return add("layer_norm", {x, parameter({last}), parameter({last})});
      case 5:
        return add("linear", {x, parameter({{"o", one_of({1, 2, 4, 6})}, last})});
      case 6:
        return add("softmax", {x});
      case 7: {
        const int64_t parts = one_of({1, 2, 3});
        if (type.rank() > 3 || last.size % parts) return add("gelu", {x});
        return add("split", {x}, {{"parts", parts}});
      }
      case 8:
        return type.rank() < 2 ? add("gelu", {x}) : add("merge", {x});
      case 9: {
        const int64_t size = 1 + static_cast<int64_t>(below(last.size));
        const int64_t start = static_cast<int64_t>(below(last.size - size + 1));
        return add("slice", {x}, {{"start", start}, {"size", size}});
      }
      case 10: {
        const Value counter = builder_.control(kRandomCounter, random_counter_type());
        return add("dropout", {x, counter},
                   {{"rate", 0.25}, {"key", "drop" + std::to_string(scheme.morphisms.size())}});
      }
      case 11:
        return add("map", {x}, {{"body", std::string("mul(x0, 0.5), x0")}});
      default: {
        // As the gradient of a norm: one result as large as the operand, one summed.
        if (type.rank() < 2) return add("gelu", {x});
        const std::string sums = "/" + std::to_string(type.rank() - 1);
        return add("map", {x, beside(x)}, {{"body", "tanh(x0), x0" + sums + ", x1" + sums}});
      }
    }
  }

  std::mt19937 random_;
  Builder builder_;
  std::vector<Value> pool_;
};

}  // namespace adjoint
