#include "functors/placement_moves.h"

#include "analysis/padding.h"
#include "body/facts.h"
#include "ops/axes.h"
#include "ops/builder.h"
#include "ops/collective.h"
#include "scheme/shards.h"

namespace adjoint {

PlacementMoves::PlacementMoves(const Scheme& scheme, const MeshAxis& axis, const WhoSaid& who_said,
                               Scheme& result, CutForward cut_forward)
    : scheme_(scheme),
      axis_(axis),
      who_said_(who_said),
      result_(result),
      cut_forward_(std::move(cut_forward)),
      ignored_(ignored_targets(scheme)),
      comes_(scheme.objects.size()),
      is_placed_(scheme.objects.size(), false) {}

void PlacementMoves::set(Value v, const Share& share) {
  comes_[v] = share;
  is_placed_[v] = true;
  place(result_[v], share);
}

void PlacementMoves::place(Object& object, const Share& share) const {
  std::vector<Placement>& all = object.attributes.placement;
  std::erase_if(all, [&](const Placement& p) { return p.mesh_axis == axis_.name; });
  if (share.is_whole()) return;
  Placement placement{.mesh_axis = axis_.name, .spread = share.spread};
  if (share.is_piece()) {
    Axis& axis = object.type.axes[share.axis];
    placement.axis = share.axis;
    placement.whole = axis.size;
    placement.segments = share.segments;
    axis = {axis.name, shard_size(axis.size, share.segments, axis_.size)};
  }
  all.push_back(std::move(placement));
}

Value PlacementMoves::counter_of_rank(Value counter, int64_t samples) {
  const auto [found, fresh] = counters_.emplace(std::pair{counter, samples}, -1);
  if (fresh) {
    const Object mine = derived(result_[counter], axis_.name);
    const Value coordinate = this->coordinate();
    found->second = emit("part_counter", {counter, coordinate}, {{"size", samples}}, mine);
  }
  return found->second;
}

Value PlacementMoves::coordinate() {
  if (coordinate_ < 0) {
    coordinate_ = result_.add_input(
        {.type = {Dtype::kI32, {}}, .source = mesh_coordinate(axis_.name), .role = Role::kControl});
  }
  return coordinate_;
}

Object PlacementMoves::derived(Object object, std::string_view suffix) {
  object.source = with_facet(object.source, suffix);
  if (object.role == Role::kInput) object.role = Role::kActivation;  // it is computed
  object.attributes.residence = Residence::kUnsaid;
  object.attributes.parts = 1;
  object.init.reset();
  return object;
}

Value PlacementMoves::emit(std::string_view op, std::vector<Value> inputs, Attrs attrs,
                           const Object& like) {
  const Value out = result_.add(like);
  result_.morphisms.push_back({.op = std::string(op),
                               .inputs = std::move(inputs),
                               .outputs = {out},
                               .attrs = std::move(attrs),
                               .source = like.source,
                               .phase = phase_});
  return out;
}

// A sum over ranks is the object that its terms are of: it resides where that was said to.
Object PlacementMoves::sum_of(Value v, std::string_view suffix) {
  Object sum = derived(scheme_[v], suffix);
  if (phase_ != Phase::kForward) return sum;
  sum.attributes.residence = scheme_[v].attributes.residence;
  if (is_recomputed(v)) result_[v].attributes.residence = Residence::kRecomputed;
  return sum;
}

bool PlacementMoves::is_recomputed(Value v) const {
  const Residence residence = scheme_[v].attributes.residence;
  return residence == Residence::kRecomputed || residence == Residence::kApart;
}

// Where what is gathered of v's pieces resides. Whole parameters do not wait for the backward
// pass, unless they are said to be kept: it gathers them again, block by block. Of what else is
// said to be kept, that is its piece; what is said to be recomputed is gathered again. Pieces
// that are recomputed because that is cheap are not, for gathering is not cheap.
Residence PlacementMoves::residence_of_whole(Value v) const {
  if (phase_ != Phase::kForward) return Residence::kUnsaid;
  const bool kept = scheme_[v].attributes.residence == Residence::kKept;
  if (scheme_[v].role == Role::kParameter) {
    return kept ? Residence::kKept : Residence::kRecomputed;
  }
  const bool again = kept || (is_recomputed(v) && who_said_.residence(scheme_[v].source));
  return again ? Residence::kRecomputed : Residence::kUnsaid;
}

// What a rank takes of an object, or makes of it without the others, is recomputed with it.
Object PlacementMoves::local(Value v, std::string_view suffix) const {
  Object object = derived(scheme_[v], suffix);
  if (phase_ == Phase::kForward && is_recomputed(v)) {
    object.attributes.residence = Residence::kRecomputed;
  }
  return object;
}

Value PlacementMoves::as(Value v, const Share& wanted) {
  if (comes_[v] == wanted) return v;
  const bool piece = wanted.is_piece();
  const auto key = std::tuple(v, wanted.spread, piece ? wanted.axis : 0,
                              piece ? wanted.segments : std::vector<int64_t>{});
  const auto found = moved_.find(key);
  if (found != moved_.end()) return found->second;
  if (comes_[v].is_whole() && piece && phase_ == Phase::kForward) cut_forward_(v, wanted);
  const Value made = moved(v, wanted);
  return moved_[key] = made;
}

Value PlacementMoves::as_of_each_part(Value v, const Share& wanted) {
  each_part_ = true;
  const Value made = as(v, wanted);
  each_part_ = false;
  if (comes_[v].is_term()) of_each_part_[v] = wanted;
  return made;
}

Value PlacementMoves::moved(Value v, const Share& wanted) {
  const Share& has = comes_[v];
  if (wanted.is_term()) return as_term(as(v, kWhole), v);
  // A sum has one order of terms, whoever wants it how: those of every part, where these are there.
  if (const auto summed = of_each_part_.find(v); summed != of_each_part_.end()) {
    if (!wanted.is_whole()) return cut(as(v, kWhole), v, wanted);
    return gathered(as(v, summed->second), v, summed->second.axis);
  }
  if (has.is_piece() && !wanted.is_whole()) return cut(as(v, kWhole), v, wanted);
  if (has.is_whole()) return cut(v, v, wanted);
  if (has.is_piece()) return has.segments.empty() ? gathered(v, v, has.axis) : rejoined(v, has);
  if (wanted.is_whole()) return summed(v);
  return wanted.segments.empty() ? reduced(v, wanted.axis) : cut(as(v, kWhole), v, wanted);
}

// What is added to a sum over ranks is the first rank's term, and the others' are zeros.
Value PlacementMoves::as_term(Value whole, Value v) {
  Object term = local(v, "term");
  place(term, kTerm);
  Body body;
  const Expr is_first = equal(input(body, 1), constant(body, 0));
  body.outputs = {{.node = select(is_first, input(body, 0), 0).node}};
  const Value coordinate = this->coordinate();
  return emit("map", {whole, coordinate}, {{"body", print(body)}}, term);
}

Attrs PlacementMoves::attrs() const { return collective_attrs(axis_.name, axis_.size); }
Attrs PlacementMoves::attrs_along(int axis) const {
  Attrs all = attrs();
  if (axis > 0) all["axis"] = int64_t{axis};
  return all;
}

Attrs PlacementMoves::of_sum(Attrs all) const {
  if (each_part_) all["each_part"] = int64_t{1};
  return all;
}

// Of a parameter's gradient each rank adds up its piece, and all of them gather the sum, whoever
// wants it whole or in pieces: a sum has one order of terms. Of what has samples no axis is cut,
// because those may come in parts.
Value PlacementMoves::summed(Value v) {
  Object sum = sum_of(v, "sum");
  place(sum, kWhole);
  sum.type = result_[v].type;
  const bool of_step = phase_ == Phase::kUpdate || each_part_;
  if (!of_step || !is_worth_cutting(sum.type, axis_)) {
    return emit("all_reduce", {v}, of_sum(attrs()), sum);
  }
  return gathered(as(v, piece_along(0)), v, 0);
}

Value PlacementMoves::reduced(Value v, int axis) {
  Object piece = sum_of(v, "piece");
  place(piece, piece_along(axis));
  return emit("reduce_scatter", {v}, of_sum(attrs_along(axis)), piece);
}

Value PlacementMoves::gathered(Value pieces, Value v, int axis) {
  Object all = derived(scheme_[v], comes_[v].is_term() ? "sum" : "whole");
  place(all, kWhole);
  all.attributes.residence = residence_of_whole(v);
  Attrs attrs = attrs_along(axis);
  attrs["size"] = scheme_[v].type.dim(axis);
  return emit("all_gather", {pieces}, std::move(attrs), all);
}

// Pieces of several segments travel side by side, rank by rank, and are then put in order.
Value PlacementMoves::rejoined(Value v, const Share& has) {
  Object packed = derived(result_[v], "packed");
  packed.attributes.residence = residence_of_whole(v);
  place(packed, kWhole);
  const int axis = has.axis;
  const int64_t piece = packed.type.dim(axis);
  packed.type.axes[axis] = {packed.type.axes[axis].name, piece * axis_.size};
  Attrs attrs = attrs_along(axis);
  attrs["size"] = piece * axis_.size;
  const Value all = emit("all_gather", {v}, std::move(attrs), packed);
  std::vector<Value> parts;
  int64_t start = 0;
  for (const int64_t segment : has.segments) {
    for (int r = 0; r < axis_.size; ++r) {
      parts.push_back(slice(all, axis, r * piece + start, segment / axis_.size));
    }
    start += segment / axis_.size;
  }
  Object whole = derived(scheme_[v], "whole");
  whole.attributes.residence = residence_of_whole(v);
  place(whole, kWhole);
  return emit("concat", parts, axis ? Attrs{{"axis", int64_t{axis}}} : Attrs{}, whole);
}

Value PlacementMoves::slice(Value of, int axis, int64_t start, int64_t size) {
  Object part = derived(result_[of], "part");
  part.type.axes[axis] = {part.type.axes[axis].name, size};
  return emit("slice", {of}, slice_attrs(part.type.rank(), axis, start, size), part);
}

Value PlacementMoves::cut(Value whole, Value v, const Share& wanted) {
  if (wanted.segments.empty()) return cut(whole, v, wanted.axis);
  Object piece = local(v, "piece");
  std::vector<Value> parts;
  int64_t start = 0;
  for (const int64_t segment : wanted.segments) {
    const Value one = slice(whole, wanted.axis, start, segment);
    Object part = result_[one];
    part.attributes.residence = piece.attributes.residence;
    part.source = with_facet(part.source, "piece");
    part.type.axes[wanted.axis] = {part.type.axes[wanted.axis].name, segment / axis_.size};
    Attrs attrs = {{"size", segment / axis_.size}, {"axis", int64_t{wanted.axis}}};
    parts.push_back(emit("part", {one, coordinate()}, std::move(attrs), part));
    start += segment;
  }
  place(piece, wanted);
  const int64_t axis = wanted.axis;
  return emit("concat", parts, axis ? Attrs{{"axis", axis}} : Attrs{}, piece);
}

Value PlacementMoves::cut(Value whole, Value v, int axis) {
  Object piece = local(v, "piece");
  place(piece, piece_along(axis));
  // What pads targets is ignored by the loss.
  const int64_t fill = ignored_[v].empty() ? 0 : *ignored_[v].begin();
  Attrs attrs = {{"size", piece.type.dim(axis)}, {"fill", fill}};
  if (axis > 0) attrs["axis"] = int64_t{axis};
  const Value coordinate = this->coordinate();
  return emit("part", {whole, coordinate}, attrs, piece);
}

void PlacementMoves::name_sums() {
  std::map<Value, Value> sums;  // whole where there is one, and otherwise in pieces
  for (const auto& [key, made] : moved_) {
    const auto& [v, spread, axis, segments] = key;
    if (!comes_[v].is_term()) continue;
    const auto [found, fresh] = sums.emplace(v, made);
    if (!fresh && spread == Spread::kReplicated) found->second = made;
  }
  for (const auto& [v, sum] : sums) {
    result_[sum].source = scheme_[v].source;
    result_[v].source = with_facet(scheme_[v].source, "term");
  }
}

}  // namespace adjoint
