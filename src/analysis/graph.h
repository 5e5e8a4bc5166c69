// One scheme as a graph: who makes, reads and waits for every object, what is a view of what, what
// is carried, and which calls must run before which. Functors that join calls ask this instead of
// walking the scheme themselves. It indexes the scheme once: whoever changes the scheme makes
// another Graph.
#pragma once
#include <optional>
#include <vector>

#include "scheme/scheme.h"

namespace adjoint {

class Graph {
 public:
  explicit Graph(const Scheme& scheme);  // which must outlive it
  explicit Graph(Scheme&&) = delete;

  const Scheme& scheme() const { return scheme_; }
  const Morphism& call(int m) const { return scheme_.morphisms[m]; }
  int num_calls() const { return static_cast<int>(scheme_.morphisms.size()); }

  // ---- who makes and reads ----
  int maker(Value v) const { return made_by_[v]; }  // -1: the step is given it
  const std::vector<int>& readers(Value v) const { return read_by_[v]; }
  // Returned or carried, at either end of a carry: it must be there, whoever reads it.
  bool stays(Value v) const { return stays_[v]; }
  // The only call that reads v; none where v stays.
  std::optional<int> only_reader(Value v) const;

  // ---- what lies where ----
  Value viewed(Value v) const { return viewed_[v]; }  // what v is a view of, or -1
  Value root(Value v) const;                          // the object under all views
  const std::vector<Value>& views(Value root) const { return views_[root]; }  // of views too

  // ---- state and accumulators ----
  bool is_carried(Value v) const { return carried_[v]; }  // either end, of the step or of the body
  Value state_of(Value out) const { return state_of_[out]; }  // what the step writes `out` over; -1
  // Objects that may show a state's old bytes: itself, its views, and joins of it.
  std::vector<Value> shown_of(Value state) const;
  // Calls that read any of these.
  std::vector<int> readers_of_state(Value state) const;

  // ---- order beside data ----
  // Calls that must run before m, or after it, though m reads none of their results: what holds m
  // back (Morphism::after), and the readers of the state that m writes over.
  const std::vector<int>& held_by(int m) const { return held_by_[m]; }
  const std::vector<int>& holds(int m) const { return holds_[m]; }

 private:
  void find_views();
  void find_order();

  const Scheme& scheme_;
  std::vector<int> made_by_;
  std::vector<std::vector<int>> read_by_;
  std::vector<bool> stays_, carried_;
  std::vector<Value> viewed_, state_of_;
  std::vector<std::vector<Value>> views_;
  std::vector<std::vector<int>> held_by_, holds_;
};

// Which of some calls a call depends on: it reads their results or waits for them
// (Morphism::after), directly or through other calls. The order of readers and writers of state is
// not followed.
class Before {
 public:
  Before(const Graph& graph, const std::vector<int>& some);

  // Does call m depend on the k-th of them?
  bool has(size_t k, int m) const { return bits_[m * words_ + k / 64] >> k % 64 & 1; }

 private:
  size_t words_;
  std::vector<uint64_t> bits_;  // per call: one for each of `some`
};

// Whether two calls may become one, which every fusion and gang asks: they run in the same section
// and epoch, and what they make lies in the same tier, stage and placement. `a` may be a
// recomputation and `b` none only where that is asked for; the reverse is never allowed. Phases are
// the caller's to compare: a loss and its gradient are of two.
enum class Recomputed : uint8_t { kStaysApart, kMayJoin };
bool may_join(const Scheme& scheme, const Morphism& a, const Morphism& b,
              Recomputed recomputed = Recomputed::kStaysApart);

}  // namespace adjoint
