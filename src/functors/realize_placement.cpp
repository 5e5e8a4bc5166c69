// Placement: along an axis of the mesh an object is the same on every rank, sharded along one of
// its own axes, or partial: each rank has a term of its sum. From the few objects that functors
// place, every call's index map tells what comes out of it (analysis/spread), forward and backward
// alike; calls on pieces shrink, and where an object comes otherwise than its reader wants it, a
// collective is inserted, once:
//   partial -> replicated   reduce_scatter, then all_gather; what is small: all_reduce
//   partial -> sharded      reduce_scatter
//   sharded -> replicated   all_gather
//   replicated -> sharded   each rank takes its piece
// A rank's coordinate is a tensor, like the index of a part of the batch, so all ranks have one
// scheme, one plan and the same kernels. Axes of the mesh are realized one after another: what one
// inserts are ordinary calls to the next.
#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <tuple>

#include "analysis/padding.h"
#include "analysis/spread.h"
#include "base/error.h"
#include "body/facts.h"
#include "functors/phases.h"
#include "ops/builder.h"
#include "ops/collective.h"
#include "scheme/shards.h"

namespace adjoint {

namespace {

class AxisOfMesh {
 public:
  AxisOfMesh(const Scheme& scheme, const MeshAxis& axis, std::string who)
      : scheme_(scheme),
        axis_(axis),
        who_(std::move(who)),
        ignored_(ignored_targets(scheme)),
        read_by_(readers(scheme)),
        result_(scheme),
        comes_(scheme.objects.size()) {
    result_.morphisms.clear();
  }

  Scheme run() {
    for (const Value in : scheme_.inputs) place_input(in);
    for (const Carry& c : scheme_.carries) carried_[c.out] = comes_[c.in];
    for (const Morphism& m : scheme_.morphisms) add(m);
    phase_ = Phase::kUpdate;
    for (Value& out : result_.outputs) out = as(out, kWhole);
    for (Carry& c : result_.carries) c.out = as(c.out, comes_[c.in]);
    name_sums();
    return std::move(result_);
  }

 private:
  template <class... Parts>
  [[noreturn]] void refuse(const Parts&... parts) const {
    fail(who_, ": ", parts...);
  }
  std::string named(Value v) const { return "'" + to_string(scheme_[v].source) + "'"; }
  int64_t piece_of(int64_t whole) const { return shard_size(whole, axis_.size); }
  bool is_uneven(int64_t whole) const { return whole % axis_.size != 0; }

  // What was said of an object; nothing where nobody said anything.
  std::optional<Share> said_of(Value v) const {
    const Placement* said = placement_over(scheme_[v], axis_.name);
    if (!said) return std::nullopt;
    return Share{said->spread, said->axis};
  }

  // From now on v comes like this, and its type is that of the piece.
  void set(Value v, const Share& share) {
    comes_[v] = share;
    place(result_[v], share);
  }
  void place(Object& object, const Share& share) const {
    std::vector<Placement>& all = object.attributes.placement;
    std::erase_if(all, [&](const Placement& p) { return p.mesh_axis == axis_.name; });
    if (share.is_whole()) return;
    Placement placement{.mesh_axis = axis_.name, .spread = share.spread};
    if (share.is_piece()) {
      Axis& axis = object.type.axes[share.axis];
      placement.axis = share.axis;
      placement.whole = axis.size;
      axis = {axis.name, piece_of(axis.size)};
    }
    all.push_back(std::move(placement));
  }

  void place_input(Value in) {
    const Share share = said_of(in).value_or(kWhole);
    if (share.is_piece() && scheme_[in].role == Role::kInput) check_size(in, share.axis);
    set(in, share);
  }
  // A rank with nothing to do is a mistake; one without a row of a small parameter is not.
  void check_size(Value data, int axis) const {
    const Axis& cut = scheme_[data].type.axes[axis];
    if (cut.size >= axis_.size) return;
    refuse(named(data), " has ", cut.name, "=", cut.size, ", which is less than the ", axis_.size,
           " ranks of ", axis_.name, "; at most ", axis_.name, "=", cut.size);
  }

  void add(const Morphism& original) {
    Morphism m = original;
    phase_ = m.phase;
    const OpCall call = call_of(scheme_, m);
    const CallShares shares = decide(m, call);
    for (size_t i = 0; i < m.inputs.size(); ++i) m.inputs[i] = as(m.inputs[i], shares.wants[i]);
    if (shares.letter) shrink(m, call, shares);
    for (size_t k = 0; k < m.outputs.size(); ++k) set(m.outputs[k], shares.gives[k]);
    const std::vector<Value> made = m.outputs;
    result_.morphisms.push_back(std::move(m));
    for (const Value out : made) {
      if (const auto said = said_of(out)) settle(out, *said);
    }
  }

  // What is said of an object holds for all its readers.
  void settle(Value v, const Share& said) {
    if (comes_[v] == said || said.is_term() || is_added_up_later(v, said)) return;
    each_part_ = true;
    said_[v] = as(v, said);
    each_part_ = false;
  }

  // Of a gradient that is a sum over uses, the terms of all of them are added up together.
  bool is_added_up_later(Value v, const Share& said) const {
    if (!comes_[v].is_term() || read_by_[v].size() != 1) return false;
    const Morphism& m = scheme_.morphisms[read_by_[v][0]];
    return is_linear_together(call_of(scheme_, m)) && said_of(m.outputs[0]) == said;
  }

  CallShares decide(const Morphism& m, const OpCall& call) {
    std::vector<Share> comes;
    for (const Value in : m.inputs) comes.push_back(share_of(in));
    const size_t results = m.outputs.size();
    // An update runs where its state lies: on pieces only if some of what it carries is one.
    if (is_carried_whole(m)) {
      for (Share& s : comes) {
        if (s.is_piece()) s = kWhole;
      }
      return share_call(call, comes, results);
    }
    const bool pieces =
        std::any_of(comes.begin(), comes.end(), [](auto& s) { return s.is_piece(); });
    if (!pieces) {
      if (is_linear_in_its_term(call, comes)) {
        return {.wants = comes, .gives = std::vector<Share>(results, kTerm)};
      }
      if (auto shares = on_pieces_of_sums(call, comes, results)) return *std::move(shares);
    }
    CallShares shares = share_call(call, comes, results);
    if (shares.letter && !may_pad(m, call, shares)) {
      std::replace_if(
          comes.begin(), comes.end(), [](auto& s) { return s.is_piece(); }, kWhole);
      return share_call(call, comes, results);
    }
    return shares;
  }

  // A product with one term of a sum, all else whole, is a term itself. In space it is summed late,
  // once for all that it is added to; in time, where a term costs a call per part, it is not.
  static bool is_linear_in_its_term(const OpCall& call, const std::vector<Share>& comes) {
    const OpDef& op = op_named(call.op);
    const auto is_term = [](const Share& s) { return s.is_term(); };
    return op.linear && op.linear(call) == Linear::kEach && !has_addend(op, comes.size()) &&
           std::count_if(comes.begin(), comes.end(), is_term) == 1;
  }

  bool is_carried_whole(const Morphism& m) const {
    bool any = false;
    for (const Value out : m.outputs) {
      const auto carried = carried_.find(out);
      if (carried == carried_.end()) continue;
      if (carried->second.is_piece()) return false;
      any = true;
    }
    return any;
  }

  // A sum over a sum of all ranks is taken of the pieces that each of them adds up, so that a norm
  // is the same sum whether gradients are gathered afterwards or not.
  std::optional<CallShares> on_pieces_of_sums(const OpCall& call, std::vector<Share> comes,
                                              size_t results) const {
    if (is_linear_together(call)) return std::nullopt;
    for (size_t i = 0; i < comes.size(); ++i) {
      if (comes[i].is_term() && is_worth_cutting(call.inputs[i])) comes[i] = piece_along(0);
    }
    CallShares shares = share_call(call, comes, results);
    const auto is_term = [](const Share& s) { return s.is_term(); };
    const bool sums = shares.letter && shares.wants == comes &&
                      std::all_of(shares.gives.begin(), shares.gives.end(), is_term);
    if (!sums || !ignores_zeros(call)) return std::nullopt;
    return shares;
  }
  bool is_worth_cutting(const Type& type) const {
    return type.rank() > 0 && type.dim(0) >= axis_.size;
  }
  static bool ignores_zeros(const OpCall& call) {
    return op_named(call.op).body && vanishes_at_zero(body_of(call));
  }

  // Whether the call gives what it should although the last pieces are not full. Samples that pad
  // a batch are ignored by what counts them, and their gradients are 0; rows that pad state and
  // gradients are 0.
  bool may_pad(const Morphism& m, const OpCall& call, const CallShares& shares) const {
    if (!is_uneven(whole_size(call, shares))) return true;
    const bool sums = std::any_of(shares.gives.begin(), shares.gives.end(),
                                  [](const Share& s) { return s.is_term(); });
    if (m.phase == Phase::kUpdate) return !sums || ignores_zeros(call);
    check_targets_of_padded(scheme_, m, who_, "rank");
    check_one_padding(m);
    if (sums) check_sums_of_padded(m, who_, "rank");
    return true;
  }
  // A rank has one copy of its targets, so all losses must ignore the same ones.
  void check_one_padding(const Morphism& m) const {
    for (const Value in : m.inputs) {
      if (ignored_[in].size() < 2) continue;
      refuse("losses ignore ", *ignored_[in].begin(), " and ", *ignored_[in].rbegin(), " of ",
             named(in),
             ", and the last rank has samples that do not count; choose a number of ranks that "
             "divides the batch");
    }
  }
  static int64_t whole_size(const OpCall& call, const CallShares& shares) {
    for (size_t i = 0; i < shares.wants.size(); ++i) {
      if (shares.wants[i].is_piece()) return call.inputs[i].dim(shares.wants[i].axis);
    }
    return 1;
  }

  // A call on whole objects becomes one on pieces.
  void shrink(Morphism& m, const OpCall& call, const CallShares& shares) {
    const int64_t whole = whole_size(call, shares);
    shrink_attrs(call, shares.letter, whole, piece_of(whole), m.attrs);
    for (Value& in : m.inputs) {
      const Object& object = result_[in];
      const bool counter = object.role == Role::kControl && object.type == random_counter_type();
      if (counter) in = counter_of_rank(in, piece_of(whole));
    }
  }
  Value counter_of_rank(Value counter, int64_t samples) {
    const auto [found, fresh] = counters_.emplace(std::pair{counter, samples}, -1);
    if (fresh) {
      const Object mine = derived(result_[counter], axis_.name);
      const Value coordinate = this->coordinate();
      found->second = emit("part_counter", {counter, coordinate}, {{"size", samples}}, mine);
    }
    return found->second;
  }

  // The rank's place along this axis of the mesh; whoever runs the step sets it.
  Value coordinate() {
    if (coordinate_ < 0) {
      coordinate_ = result_.add_input({.type = {Dtype::kI32, {}},
                                       .source = mesh_coordinate(axis_.name),
                                       .role = Role::kControl});
    }
    return coordinate_;
  }

  static Object derived(Object object, std::string_view suffix) {
    object.source = with_facet(object.source, suffix);
    object.attributes.residence = Residence::kUnsaid;
    object.attributes.parts = 1;
    object.init.reset();
    return object;
  }

  Value emit(std::string_view op, std::vector<Value> inputs, Attrs attrs, const Object& like) {
    const Value out = result_.add(like);
    result_.morphisms.push_back({.op = std::string(op),
                                 .inputs = std::move(inputs),
                                 .outputs = {out},
                                 .attrs = std::move(attrs),
                                 .source = like.source,
                                 .phase = phase_});
    return out;
  }

  // What v is for its readers, where something was said of it.
  Share share_of(Value v) const { return said_.count(v) ? said_of(v).value() : comes_[v]; }

  // v as it is wanted; what is moved is moved once for all who want it so.
  Value as(Value v, const Share& wanted) {
    if (comes_[v] == wanted) return v;
    const auto key = std::tuple(v, wanted.spread, wanted.is_piece() ? wanted.axis : 0);
    const auto found = moved_.find(key);
    if (found != moved_.end()) return found->second;
    return moved_[key] = moved(v, wanted);
  }

  Value moved(Value v, const Share& wanted) {
    const Share& has = comes_[v];
    if (wanted.is_term()) {
      refuse(named(v), " is added to a sum that the ranks of ", axis_.name,
             " have terms of, and each of them would add it");
    }
    if (has.is_term()) return wanted.is_piece() ? reduced(v, wanted.axis) : summed(v);
    if (wanted.is_whole()) return gathered(v, v, has.axis);
    if (has.is_piece()) return cut(as(v, kWhole), v, wanted.axis);
    return cut(v, v, wanted.axis);
  }

  Attrs attrs() const { return collective_attrs(axis_.name, axis_.size); }
  Attrs attrs_along(int axis) const {
    Attrs all = attrs();
    if (axis > 0) all["axis"] = int64_t{axis};
    return all;
  }
  Attrs of_sum(Attrs all) const {
    if (each_part_) all["each_part"] = int64_t{1};
    return all;
  }

  // Each rank adds up its piece, and all of them gather the sum, whoever wants it whole or in
  // pieces: a sum has one order of terms.
  Value summed(Value v) {
    Object sum = derived(scheme_[v], "sum");
    place(sum, kWhole);
    sum.type = result_[v].type;
    if (!is_worth_cutting(sum.type)) return emit("all_reduce", {v}, of_sum(attrs()), sum);
    return gathered(as(v, piece_along(0)), v, 0);
  }
  Value reduced(Value v, int axis) {
    Object piece = derived(scheme_[v], "piece");
    place(piece, piece_along(axis));
    return emit("reduce_scatter", {v}, of_sum(attrs_along(axis)), piece);
  }
  Value gathered(Value pieces, Value v, int axis) {
    Object all = derived(scheme_[v], comes_[v].is_term() ? "sum" : "whole");
    place(all, kWhole);
    // Whole parameters do not wait for the backward pass: it gathers them again, block by block.
    if (scheme_[v].role == Role::kParameter && phase_ == Phase::kForward) {
      all.attributes.residence = Residence::kRecomputed;
    }
    Attrs attrs = attrs_along(axis);
    attrs["size"] = scheme_[v].type.dim(axis);
    return emit("all_gather", {pieces}, std::move(attrs), all);
  }
  Value cut(Value whole, Value v, int axis) {
    Object piece = derived(scheme_[v], "piece");
    place(piece, piece_along(axis));
    // What pads targets is ignored by the loss.
    const int64_t fill = ignored_[v].empty() ? 0 : *ignored_[v].begin();
    Attrs attrs = {{"size", piece.type.dim(axis)}, {"fill", fill}};
    if (axis > 0) attrs["axis"] = int64_t{axis};
    const Value coordinate = this->coordinate();
    return emit("part", {whole, coordinate}, attrs, piece);
  }

  // The sum over all ranks has the name of what it is the sum of, the terms have a suffix.
  void name_sums() {
    std::map<Value, Value> sums;  // whole where there is one, and otherwise in pieces
    for (const auto& [key, made] : moved_) {
      const auto [v, spread, axis] = key;
      if (!comes_[v].is_term()) continue;
      const auto [found, fresh] = sums.emplace(v, made);
      if (!fresh && spread == Spread::kReplicated) found->second = made;
    }
    for (const auto& [v, sum] : sums) {
      result_[sum].source = scheme_[v].source;
      result_[v].source = with_facet(scheme_[v].source, "term");
    }
  }

  const Scheme& scheme_;
  const MeshAxis& axis_;
  std::string who_;
  std::vector<std::set<int64_t>> ignored_;
  std::vector<std::vector<int>> read_by_;
  Scheme result_;
  std::vector<Share> comes_;        // per object of the scheme: as it is made
  std::map<Value, Value> said_;     // by object: as it was said to be, where it is made otherwise
  std::map<Value, Share> carried_;  // by object that leaves the step: as what it replaces lies
  std::map<std::tuple<Value, Spread, int>, Value> moved_;
  std::map<std::pair<Value, int64_t>, Value> counters_;
  Value coordinate_ = -1;
  Phase phase_ = Phase::kForward;
  bool each_part_ = false;  // sums that are made now are made of every part of the batch by itself
};

// Placements along axes that the mesh does not have, or that have one rank, are realized already.
void forget_unmeshed(Scheme& scheme) {
  for (Object& object : scheme.objects) {
    std::erase_if(object.attributes.placement,
                  [&](const Placement& p) { return mesh_size(scheme.mesh, p.mesh_axis) == 1; });
  }
}

}  // namespace

Scheme realize_placement(Scheme scheme,
                         const std::function<std::string(std::string_view)>& who_said) {
  for (const Object& object : scheme.objects) {
    for (const Placement& p : object.attributes.placement) {
      if (p.spread != Spread::kSharded || p.axis < object.type.rank()) continue;
      fail("placement: '", to_string(object.source), "' has ", object.type.rank(),
           " axes, so axis ", p.axis, " cannot be sharded over ", p.mesh_axis);
    }
  }
  forget_unmeshed(scheme);
  const std::vector<MeshAxis> mesh = scheme.mesh;
  for (const MeshAxis& axis : mesh) {
    scheme = AxisOfMesh(scheme, axis, who_said(axis.name)).run();
  }
  return scheme;
}

}  // namespace adjoint
