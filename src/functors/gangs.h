// What the functors that make gangs share: which calls are of one kind, and one call in their
// stead.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "analysis/graph.h"

namespace adjoint {

// Calls of one kind have the same op and constants and may join.
class GangKinds {
 public:
  explicit GangKinds(const Scheme& scheme) : scheme_(scheme) {}

  // `more` tells kinds apart beside that.
  void add(int call, const std::string& more = "");
  // Calls of each kind, in order.
  const std::map<std::string, std::vector<int>>& all() const { return by_kind_; }

 private:
  const Scheme& scheme_;
  std::map<std::string, std::vector<int>> by_kind_;
};
// The dtypes of a call's operands, which most kinds have in common.
std::string operand_dtypes(const Scheme& scheme, const Morphism& m);

// Calls that become one.
struct Gang {
  std::vector<int> calls;  // in order
  int at = 0;              // the one of them in whose place the gang stands
  size_t shared = 0;       // their last operands, which are all's
  Source source;
};
// The same scheme with gangs in place of calls. Every functor that makes them counts as matches the
// calls, and how many gangs they became.
class Application;
Scheme with_gangs(Scheme scheme, const std::vector<Gang>& gangs, Application& application);

}  // namespace adjoint
