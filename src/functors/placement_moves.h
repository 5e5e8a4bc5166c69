// Moves objects along one axis of the mesh, each once for all who want it so:
//   partial -> replicated   reduce_scatter, then all_gather; what is small: all_reduce
//   partial -> sharded      reduce_scatter
//   sharded -> replicated   all_gather
//   replicated -> sharded   each rank takes its piece
//   replicated -> partial   the first rank has it, the others zeros
// A rank's coordinate is a tensor, like the index of a part of the batch, so all ranks have one
// scheme, one plan and the same kernels.
#pragma once
#include <functional>
#include <map>
#include <set>
#include <string_view>
#include <tuple>
#include <vector>

#include "analysis/spread.h"
#include "functors/phases.h"
#include "scheme/scheme.h"

namespace adjoint {

// Whether ranks can have a piece of it each, along its first axis.
inline bool is_worth_cutting(const Type& type, const MeshAxis& axis) {
  return type.rank() > 0 && type.dim(0) >= axis.size;
}

class PlacementMoves {
 public:
  // Told of what comes whole on the way forward and is wanted in pieces, before it is cut.
  using CutForward = std::function<void(Value, const Share&)>;
  // Calls are added to `result`, whose objects are those of the scheme, and more.
  PlacementMoves(const Scheme& scheme, const MeshAxis& axis, const WhoSaid& who_said,
                 Scheme& result, CutForward cut_forward);

  void enter(Phase phase) { phase_ = phase; }  // of calls that are added from now on
  Phase phase() const { return phase_; }

  // From now on v comes like this, and its type is that of the piece.
  void set(Value v, const Share& share);
  const Share& comes(Value v) const { return comes_[v]; }  // as it is made
  bool is_placed(Value v) const { return is_placed_[v]; }

  // v as it is wanted.
  Value as(Value v, const Share& wanted);
  // The same; a sum is made of every part of the batch by itself.
  Value as_of_each_part(Value v, const Share& wanted);

  // The rank's place along this axis of the mesh; whoever runs the step sets it.
  Value coordinate();
  Value counter_of_rank(Value counter, int64_t samples);
  Attrs attrs() const;  // of a collective

  // The sum over all ranks has the name of what it is the sum of, the terms have a suffix.
  void name_sums();

  const std::set<int64_t>& ignored(Value targets) const { return ignored_[targets]; }

 private:
  void place(Object& object, const Share& share) const;
  static Object derived(Object object, std::string_view suffix);
  Value emit(std::string_view op, std::vector<Value> inputs, Attrs attrs, const Object& like);
  Object sum_of(Value v, std::string_view suffix);
  bool is_recomputed(Value v) const;
  Residence residence_of_whole(Value v) const;
  Object local(Value v, std::string_view suffix) const;
  Value moved(Value v, const Share& wanted);
  Value as_term(Value whole, Value v);
  Attrs attrs_along(int axis) const;
  Attrs of_sum(Attrs all) const;
  Value summed(Value v);
  Value reduced(Value v, int axis);
  Value gathered(Value pieces, Value v, int axis);
  Value rejoined(Value v, const Share& has);
  Value slice(Value of, int axis, int64_t start, int64_t size);
  Value cut(Value whole, Value v, const Share& wanted);
  Value cut(Value whole, Value v, int axis);

  const Scheme& scheme_;
  const MeshAxis& axis_;
  const WhoSaid& who_said_;
  Scheme& result_;
  CutForward cut_forward_;
  std::vector<std::set<int64_t>> ignored_;  // per object: targets that count for nothing
  std::vector<Share> comes_;                // per object of the scheme: as it is made
  std::vector<bool> is_placed_;             // per object of the scheme: the walk has come to it
  std::map<std::tuple<Value, Spread, int, std::vector<int64_t>>, Value> moved_;
  std::map<std::pair<Value, int64_t>, Value> counters_;
  Value coordinate_ = -1;
  Phase phase_ = Phase::kForward;
  std::map<Value, Share> of_each_part_;  // sums that are made of every part: as they are made
  bool each_part_ = false;  // sums that are made now are made of every part of the batch by itself
};

}  // namespace adjoint
