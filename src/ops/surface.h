// How the notation calls an op: arguments bound to the op's params, and the parameters that the
// call brings along (`linear(x, 3*hidden)` makes a weight and a bias).
#pragma once
#include <map>
#include <string>
#include <unordered_map>
#include <variant>
#include <vector>

#include "base/error.h"
#include "ops/builder.h"

namespace adjoint {

class SurfaceCall {
 public:
  using Argument =
      std::variant<Value, int64_t, double, bool, Init, std::string, std::vector<Value>>;

  Builder& builder;
  std::string path;                                            // of this call: block[3].qkv
  std::map<std::string, Argument, std::less<>> arguments;      // what was given, and the defaults
  std::map<std::string, std::string, std::less<>> size_names;  // how a size was written: 3*hidden
  // A call with the weights of another one: what parameters are found by, and where that one is.
  const std::unordered_map<std::string, Value>* shared = nullptr;
  std::string weights = {};

  bool has(std::string_view name) const { return arguments.count(name) > 0; }
  Value tensor(std::string_view name) const { return std::get<Value>(get(name)); }
  const std::vector<Value>& tensors(std::string_view name) const {
    return std::get<std::vector<Value>>(get(name));
  }
  int64_t size(std::string_view name) const { return std::get<int64_t>(get(name)); }
  double number(std::string_view name) const { return std::get<double>(get(name)); }
  bool flag(std::string_view name) const { return std::get<bool>(get(name)); }
  Init init(std::string_view name) const { return std::get<Init>(get(name)); }
  std::string word(std::string_view name) const { return std::get<std::string>(get(name)); }

  // The axis that a size argument speaks of.
  Axis axis(std::string_view name) const { return {size_names.find(name)->second, size(name)}; }
  const Type& type(std::string_view tensor_name) const { return builder.type(tensor(tensor_name)); }

  // A learned object that this call owns, or that the one does whose weights it has. Without a name
  // it is the call itself.
  Value parameter(std::string_view name, std::vector<Axis> axes, Init init) {
    const std::string part = name.empty() ? "" : "." + std::string(name);
    if (shared) return shared_parameter(weights + part, {Dtype::kF32, std::move(axes)});
    return builder.scheme().add_input({.type = {Dtype::kF32, std::move(axes)},
                                       .source = {path + part},
                                       .role = Role::kParameter,
                                       .init = init});
  }

 private:
  Value shared_parameter(const std::string& of, const Type& wanted) const {
    const auto found = shared->find(of);
    if (found == shared->end())
      fail(path, " wants the weights of another call, '", of, "' is none");
    if (!same_shape(builder.type(found->second), wanted)) {
      fail(path, " wants a parameter ", shape_string(wanted), ", and '", of, "' is ",
           shape_string(builder.type(found->second)));
    }
    return found->second;
  }
  const Argument& get(std::string_view name) const { return arguments.find(name)->second; }
};

}  // namespace adjoint
