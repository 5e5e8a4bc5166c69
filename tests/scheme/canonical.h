// Compares schemes up to the numbering of their objects.
#pragma once
#include <map>

#include "scheme/scheme.h"

namespace adjoint {

// The scheme with its objects numbered in the order of mention, and without a name.
inline Scheme canonical(const Scheme& s) {
  Scheme out = s;
  out.name.clear();
  out.objects.clear();
  std::map<Value, Value> renamed;
  const auto rename = [&](Value& v) {
    const auto [at, fresh] = renamed.emplace(v, 0);
    if (fresh) at->second = out.add(s[v]);
    v = at->second;
  };
  for (Value& v : out.inputs) rename(v);
  for (Morphism& m : out.morphisms) {
    for (Value& v : m.inputs) rename(v);
    for (Value& v : m.outputs) rename(v);
  }
  for (Value& v : out.outputs) rename(v);
  for (Carry& c : out.carries) rename(c.in), rename(c.out);
  for (Carry& c : out.loop) rename(c.in), rename(c.out);
  return out;
}

}  // namespace adjoint
