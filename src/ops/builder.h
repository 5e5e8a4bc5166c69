// Adds morphisms to a scheme with their types inferred, and gathers gradients.
#pragma once
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ops/op_def.h"

namespace adjoint {

class Builder {
 public:
  explicit Builder(Scheme& scheme) : scheme_(scheme) {}

  Scheme& scheme() { return scheme_; }
  const Type& type(Value v) const { return scheme_[v].type; }

  // What new morphisms are and where they come from, until set again.
  Builder& at(Source source, Phase phase, Role role) {
    source_ = std::move(source);
    phase_ = phase;
    role_ = role;
    return *this;
  }
  const Source& source() const { return source_; }
  Phase phase() const { return phase_; }
  Role role() const { return role_; }

  std::vector<Value> emit_all(std::string_view op, std::vector<Value> inputs, Attrs attrs = {});
  Value emit(std::string_view op, std::vector<Value> inputs, Attrs attrs = {}) {
    return emit_all(op, std::move(inputs), std::move(attrs)).front();
  }
  // An input of the scheme; found again by its source.
  Value control(std::string_view path, Type type);

 private:
  Scheme& scheme_;
  Source source_ = {"step"};
  Phase phase_ = Phase::kForward;
  Role role_ = Role::kActivation;
};

// What an op's `grad` sees: the call, the gradients of its outputs that exist, and the operands
// that want one.
class GradCall {
 public:
  Builder& builder;
  const OpCall& call;
  std::span<const Value> inputs, outputs;
  std::vector<std::optional<Value>> output_grads;
  std::vector<bool> wants;
  std::vector<std::optional<Value>> input_grads;  // the answer

  Value dout(int i = 0) const { return output_grads[i].value(); }
};

// Reverse mode over morphisms [first, last) of the builder's scheme: from gradients of some objects
// to gradients of `wanted`, emitted as morphisms. Only what leads from a wanted object to a seeded
// one gets a gradient. Several gradients of one object are summed in the order they arise.
std::vector<std::optional<Value>> backpropagate(Builder& builder, int first, int last,
                                                std::span<const std::pair<Value, Value>> seeds,
                                                std::span<const Value> wanted);

// The same scheme with every op that has no kernel of its own for the reference, or for which
// `expand` says so, replaced by its meaning in smaller ops.
Scheme expand_meanings(const Scheme& scheme, const std::function<bool(const Morphism&)>& expand);

// The control objects that ops ask for.
inline Type random_counter_type() { return {Dtype::kI64, {{"counter", 3}}}; }
constexpr std::string_view kRandomCounter = "random";  // seed, step, first sample of the part

}  // namespace adjoint
