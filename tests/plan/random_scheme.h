// Small random schemes: DAGs of elementwise, row, matrix, concat and view ops with several results,
// copies to the host tier and back, and state in either tier that is read, viewed, and written
// once. Some have a prologue, a body with accumulators, and an epilogue.
#pragma once
#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "ops/builder.h"

namespace adjoint {

class RandomScheme {
 public:
  explicit RandomScheme(unsigned seed, bool looped = false) : random_(seed), builder_(scheme) {
    scheme.name = "random" + std::to_string(seed);
    section_ = looped ? Section::kPrologue : Section::kBody;
    for (size_t k = 1 + below(2); k > 0; --k) {
      pool_.push_back(add_input("data", random_type(), Role::kInput));
    }
    std::vector<Value> written;
    for (size_t k = below(3); k > 0; --k) {
      const Type like = scheme[pool_[below(pool_.size())]].type;
      written.push_back(add_input("state", like, Role::kState));
      if (below(3) == 0) {
        scheme[written.back()].attributes.tier = Tier::kHost;
        pool_.push_back(move(written.back(), Tier::kDevice));
      } else {
        pool_.push_back(written.back());
      }
    }
    if (looped) add_loop();
    const size_t calls = looped ? below(6) : 4 + below(14), update_at = below(calls + 1);
    for (size_t k = 0; k <= calls; ++k) {
      if (k > 0) add_call();
      // The new state is not read any more, but the old state still may be.
      if (k == update_at) {
        for (const Value state : written) add_update(state);
      }
    }
    // Not the old state, which does not exist after the step.
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

  // An object of that shape, -1 if there is none.
  Value beside(const Type& type) {
    std::vector<Value> same;
    for (const Value v : pool_) {
      if (same_shape(scheme[v].type, type)) same.push_back(v);
    }
    return same.empty() ? -1 : same[below(same.size())];
  }
  Value beside(Value x) { return beside(scheme[x].type); }

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
    scheme.morphisms.back().section = section_;
  }

  Value move(Value v, Tier to) {
    const Role role = scheme[v].role == Role::kState ? Role::kState : Role::kActivation;
    builder_.at({"move" + std::to_string(scheme.morphisms.size())}, Phase::kForward, role);
    const bool host = to == Tier::kHost;
    const Value moved =
        builder_.emit("move", {v}, {{"tier", std::string(host ? "host" : "device")}});
    scheme[moved].attributes.tier = to;
    scheme.morphisms.back().section = section_;
    return moved;
  }

  void add_update(Value state) {
    const bool host = scheme[state].attributes.tier == Tier::kHost;
    const Value old = host ? move(state, Tier::kDevice) : state;
    builder_.at({"update" + std::to_string(scheme.morphisms.size())}, Phase::kUpdate, Role::kState);
    // Not from another state: two states that are written from each other would need a third
    // buffer.
    Value by = beside(scheme[state].type);
    if (by < 0 || scheme[seen_through_views(by)].role == Role::kState) by = old;
    Value next = builder_.emit("add", {old, by});
    scheme.morphisms.back().section = section_;
    if (host) next = move(next, Tier::kHost);
    scheme.carries.push_back({state, next});
  }

  // Adds prologue and body. Later calls are the epilogue, and see only what leaves the body.
  void add_loop() {
    scheme.parts = 1 + static_cast<int>(below(4));
    for (size_t k = below(5); k > 0; --k) add_call();
    std::vector<Value> before = pool_;
    for (size_t k = 1 + below(3); k > 0; --k) {
      const Type like = scheme[any()].type;
      std::vector<int64_t> shape;
      for (const Axis& axis : like.axes) shape.push_back(axis.size);
      // The initial value: zeros, an input, or something made from others.
      const Value given = any();
      const size_t kind = below(3);
      Value in = given;
      if (kind == 0) {
        add("fill", {}, {{"shape", shape}, {"value", 0.5}});
        in = pool_.back();
        scheme[in].type = like;
      } else if (kind == 1) {
        in = add_input("accumulated", like, Role::kInput);
        pool_.push_back(in);
      } else {
        add("gelu", {given});
        in = pool_.back();
      }
      scheme.loop.push_back({in, -1});
      if (below(2)) {  // a view of the initial value keeps its value
        add("slice", {in}, {{"start", int64_t{0}}, {"size", scheme[in].type.dim(-1)}});
        before.push_back(pool_.back());
      }
    }
    section_ = Section::kBody;
    const size_t calls = 3 + below(8);
    for (size_t k = 0; k < calls; ++k) add_call();
    for (Carry& c : scheme.loop) {
      // Not by another accumulator: two that add each other would need a third buffer.
      Value by = beside(c.in);
      const Value seen = seen_through_views(by);
      const bool grows = std::any_of(scheme.loop.begin(), scheme.loop.end(),
                                     [&](const Carry& other) { return other.in == seen; });
      add("add", {c.in, grows ? c.in : by});
      c.out = pool_.back();
      // The old value does not exist any more.
      std::erase_if(pool_, [&](Value v) { return v == c.in || seen_through_views(v) == c.in; });
      for (size_t k = below(3); k > 0; --k) add_call();  // that read old or new objects
    }
    section_ = Section::kEpilogue;
    pool_ = before;
    for (const Carry& c : scheme.loop) pool_.push_back(c.out);
  }

  void concat(Value x, int axis) {
    const Type type = scheme[x].type;
    const bool padded = std::any_of(type.axes.begin(), type.axes.end(),
                                    [](const Axis& a) { return a.physical() != a.size; });
    if (padded || type.dim(axis) > 24) return add("gelu", {x});
    const Value y = beside(x);
    add("concat", {x, scheme[y].type == type ? y : x}, {{"axis", int64_t{axis}}});
  }

  void add_call() {
    // Mostly the previous result, so that chains form.
    const Value x = below(2) ? pool_.back() : any();
    const Type type = scheme[x].type;
    const Axis last = {type.axes.back().name, type.dim(-1)};
    switch (below(17)) {
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
      case 12:
        pool_.push_back(move(move(x, Tier::kHost), Tier::kDevice));
        return;
      case 13:
        return concat(x, below(3) == 0 ? 0 : type.rank() - 1);
      case 14: {
        // Slices of what is concatenated, which may be written over.
        concat(x, type.rank() - 1);
        if (scheme.morphisms.back().op != "concat") return;
        const Value whole = pool_.back();
        const int64_t half = scheme[whole].type.dim(-1) / 2;
        add("slice", {whole}, {{"start", int64_t{0}}, {"size", half}});
        const Value first = pool_.back();
        add("slice", {whole}, {{"start", half}, {"size", half}});
        add("gelu", {pool_.back()});
        return add("gelu", {first});
      }
      case 15: {
        // A product that adds to the result of another one.
        if (type.axes.back().padded || type.rank() > 3) return add("gelu", {x});
        const Axis out{"o", one_of({1, 2, 4, 6})};
        add("linear", {x, parameter({out, last})});
        const std::string rows = std::string("abc").substr(0, type.rank() - 1);
        return add("contract", {x, parameter({out, last}), pool_.back()},
                   {{"map", rows + "i,oi->" + rows + "o"}});
      }
      default: {
        // Like the gradient of a norm: one result of the operand's size, and one sum.
        if (type.rank() < 2) return add("gelu", {x});
        const std::string sums = "/" + std::to_string(type.rank() - 1);
        return add("map", {x, beside(x)}, {{"body", "tanh(x0), x0" + sums + ", x1" + sums}});
      }
    }
  }

  std::mt19937 random_;
  Builder builder_;
  Section section_ = Section::kBody;
  std::vector<Value> pool_;
};

}  // namespace adjoint
