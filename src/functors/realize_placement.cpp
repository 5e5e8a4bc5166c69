// Placement: along an axis of the mesh an object is the same on every rank, sharded along one of
// its own axes, or partial: each rank has a term of its sum. From the few objects that functors
// place (placement_said.h), every call's index map tells what comes out of it (analysis/spread),
// forward and backward alike; calls on pieces shrink, and where an object comes otherwise than its
// reader wants it, it is moved (placement_moves.h). Axes of the mesh are realized one after
// another, the innermost first: what one inserts are ordinary calls to the next.
//
// What is unsaid follows. Work goes where parameters lie (unless they are only kept there,
// Placement::home), and a parameter of which nobody said anything is sharded as its first reader
// wants it. A product that would be summed over ranks beside a bias is its meaning instead:
// product, sum, bias. Both are found on one walk over the scheme and hold on the next.
#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "analysis/padding.h"
#include "analysis/spread.h"
#include "base/error.h"
#include "body/facts.h"
#include "functors/phases.h"
#include "functors/placement_moves.h"
#include "functors/placement_said.h"
#include "ops/axes.h"
#include "ops/builder.h"
#include "ops/pieces.h"

namespace adjoint {

namespace {

// What a walk found that the next one must know. Both only grow, so walks come to an end.
struct Found {
  std::map<std::string, Share> adopted;  // by source: parameters, as their first readers want them
  std::set<std::string> meanings;        // by source of the result: calls that become their meaning
};

constexpr int kFarthest = 4;  // calls ahead: a bias, dropout, a cast, and the residual's sum

class AxisOfMesh {
 public:
  AxisOfMesh(const Scheme& scheme, const MeshAxis& axis, const WhoSaid& who_said, Found& found)
      : scheme_(scheme),
        axis_(axis),
        who_(who_said.axis(axis.name)),
        found_(found),
        read_by_(readers(scheme)),
        made_by_(producers(scheme)),
        result_(scheme),
        said_(scheme, axis, found.adopted),
        moves_(scheme, axis, who_said, result_,
               [this](Value v, const Share& wanted) { adopt(v, wanted); }),
        traits_(scheme.objects.size()) {
    result_.morphisms.clear();
  }

  // Whether the walk found something that another one must begin with.
  bool found_more() const { return found_more_; }

  Scheme run() {
    for (const Value in : scheme_.inputs) place_input(in);
    for (const Carry& c : scheme_.carries) carried_[c.out] = moves_.comes(c.in);
    for (const Morphism& m : scheme_.morphisms) add(m);
    moves_.enter(Phase::kUpdate);
    for (Value& out : result_.outputs) out = moves_.as(out, kWhole);
    for (Carry& c : result_.carries) c.out = moves_.as(c.out, moves_.comes(c.in));
    moves_.name_sums();
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

  void place_input(Value in) {
    const Object& object = scheme_[in];
    const bool state = object.role == Role::kParameter || object.role == Role::kState;
    std::optional<Share> share = said_.of(in);
    if (!share && state) share = said_.of_parameter(object);
    if (!share) share = kWhole;
    if (share->is_piece() && object.role == Role::kInput) check_size(in, share->axis);
    const bool parameter = object.role == Role::kParameter;
    traits_[in] = {.of_parameters = parameter,
                   .leads = parameter && share->is_piece() && !said_.is_home(in),
                   .samples = object.role == Role::kInput && share->is_piece(),
                   .kept = share->is_piece() && said_.is_home(in),
                   .of_state = state};
    if (traits_[in].leads) traits_[in].leader = in;
    moves_.set(in, *share);
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
    moves_.enter(m.phase);
    const OpCall call = call_of(scheme_, m);
    const CallShares shares = decide(m, call);
    note_traits(m);
    for (size_t i = 0; i < m.inputs.size(); ++i)
      m.inputs[i] = moves_.as(m.inputs[i], shares.wants[i]);
    if (shares.cut.letter && !shares.told) shrink(m, call, shares);
    for (size_t k = 0; k < m.outputs.size(); ++k) moves_.set(m.outputs[k], shares.gives[k]);
    const std::vector<Value> made = m.outputs;
    if (op_named(m.op).lies == LiesWithin::kJoins) reside_as_gathered(original, m);
    if (shares.told) {
      emit_told(m, call, shares);
    } else {
      result_.morphisms.push_back(std::move(m));
    }
    for (const Value out : made) {
      const auto said = said_.of(out);
      if (said) settle(out, *said);
      if (!said && moves_.comes(out).is_whole()) follow_leader(out);
    }
  }

  // What gathered parameters lie in side by side resides where they do.
  void reside_as_gathered(const Morphism& original, const Morphism& m) {
    for (size_t i = 0; i < m.inputs.size(); ++i) {
      const Value v = original.inputs[i];
      if (m.inputs[i] == v || !traits_[v].of_parameters || !moves_.comes(v).is_piece()) continue;
      result_[m.outputs[0]].attributes.residence = result_[m.inputs[i]].attributes.residence;
    }
  }

  // What is made of a parameter as a whole (rounded, say, with one scale for all of it) and has its
  // shape is work's to follow, too, so each rank goes on with its piece.
  void follow_leader(Value v) {
    const Value leader = traits_[v].leader;
    if (leader < 0 || moves_.phase() != Phase::kForward) return;
    if (same_shape(scheme_[leader].type, scheme_[v].type)) settle(v, moves_.comes(leader));
  }

  void note_traits(const Morphism& m) {
    Traits made{.of_parameters = !m.inputs.empty()};
    for (const Value in : m.inputs) {
      made.of_parameters = made.of_parameters && traits_[in].of_parameters;
      made.leads = made.leads || traits_[in].leads;
      if (traits_[in].leader >= 0) made.leader = traits_[in].leader;
      made.samples = made.samples || traits_[in].samples;
      made.kept = made.kept || (m.phase == Phase::kUpdate && traits_[in].kept);
      made.of_state = made.of_state || (m.phase == Phase::kUpdate && traits_[in].of_state);
    }
    made.leads = made.leads && made.of_parameters;
    if (!made.leads) made.leader = -1;
    for (const Value out : m.outputs) {
      traits_[out] = made;
      traits_[out].kept = made.kept || said_.is_home(out);
    }
  }

  // What a rank does instead of a call that must know where its piece begins.
  void emit_told(const Morphism& m, const OpCall& call, const CallShares& shares) {
    const int64_t whole = size_along_told(call, shares);
    OpCall mine = call;
    for (size_t i = 0; i < m.inputs.size(); ++i) mine.inputs[i] = result_[m.inputs[i]].type;
    const Value coordinate = moves_.coordinate();
    Builder builder(result_);
    const size_t first = result_.morphisms.size();
    builder.at({m.source.path + "." + axis_.name, m.source.facet}, m.phase,
               result_[m.outputs[0]].role);
    PiecesCall pieces{.builder = builder,
                      .call = mine,
                      .inputs = m.inputs,
                      .coordinate = coordinate,
                      .piece = piece_of(whole),
                      .whole = whole,
                      .gathered = [&](Value v) {
                        Attrs attrs = moves_.attrs();
                        attrs["size"] = int64_t{axis_.size};
                        return builder.emit("all_gather", {v}, attrs);
                      }};
    const std::vector<Value> made = op_named(m.op).in_pieces(pieces);
    CHECK(made.size() == m.outputs.size(), "pieces give as many results as their op: " + m.op);
    for (size_t i = first; i < result_.morphisms.size(); ++i) {
      result_.morphisms[i].after = m.after;
      for (std::vector<Value>* values :
           {&result_.morphisms[i].inputs, &result_.morphisms[i].outputs}) {
        for (Value& v : *values) {
          const auto at = std::find(made.begin(), made.end(), v);
          if (at != made.end()) v = m.outputs[at - made.begin()];
        }
      }
    }
  }
  static int64_t size_along_told(const OpCall& call, const CallShares& shares) {
    for (size_t i = 0; i < shares.wants.size(); ++i) {
      if (shares.wants[i].is_piece()) return call.inputs[i].dim(shares.wants[i].axis);
    }
    return infer_types(call)[0].dim(shares.gives[0].axis);
  }

  // What is said of an object holds for all its readers.
  void settle(Value v, const Share& said) {
    if (moves_.comes(v) == said || said.is_term() || is_added_up_later(v, said)) return;
    moves_.as_of_each_part(v, said);
    settled_[v] = said;
  }

  // Of a gradient that is a sum over uses, the terms of all of them are added up together. One that
  // holds those of joined parameters side by side is added up parameter by parameter.
  bool is_added_up_later(Value v, const Share& said) const {
    if (!moves_.comes(v).is_term() || read_by_[v].empty()) return false;
    return std::all_of(read_by_[v].begin(), read_by_[v].end(), [&](int reader) {
      const Morphism& m = scheme_.morphisms[reader];
      return is_linear_together(call_of(scheme_, m)) && said_.of(m.outputs[0]) == said;
    });
  }

  CallShares decide(const Morphism& m, const OpCall& call) {
    std::vector<Share> comes;
    const bool on_kept = works_on_kept_pieces(m, call);
    for (const Value in : m.inputs) {
      comes.push_back(share_of(in));
      const bool kept = traits_[in].of_parameters && !traits_[in].leads;
      if (comes.back().is_piece() && kept && !on_kept) comes.back() = kWhole;
    }
    const size_t results = m.outputs.size();
    // An update runs where its state lies: on pieces only if some of what it carries is one.
    if (is_carried_whole(m)) {
      for (Share& s : comes) {
        if (s.is_piece()) s = kWhole;
      }
      return share_call(call, comes, results, axis_.size);
    }
    const bool pieces =
        std::any_of(comes.begin(), comes.end(), [](auto& s) { return s.is_piece(); });
    if (!pieces) {
      if (is_linear_in_its_term(call, comes)) {
        return {.wants = comes, .gives = std::vector<Share>(results, kTerm)};
      }
      const CallShares uncut = shares_along(call, comes, results, {});
      if (results > 0 && uncut.gives[0].is_term()) return uncut;
      if (auto shares = on_pieces_of_sums(call, comes, results)) return *std::move(shares);
    }
    for (Cut& cut : preferred(m, call, comes)) {
      CallShares shares = shares_along(call, comes, results, std::move(cut));
      if (needs_whole_of_kept(m, shares)) continue;
      if (shares.told || may_pad(m, call, shares)) return shares;
    }
    if (pieces) note_meaning(m, call, comes);
    std::replace_if(
        comes.begin(), comes.end(), [](auto& s) { return s.is_piece(); }, kWhole);
    return share_call(call, comes, results, axis_.size);
  }

  // Whether pieces of parameters that are only kept so stay pieces: where they are cast, decoded or
  // viewed, and where they are updated. All other work reads them whole, so that where they are
  // kept never shows in the numbers. Those that lie side by side are gathered one by one, each
  // straight to its place.
  static bool works_on_kept_pieces(const Morphism& m, const OpCall& call) {
    const OpDef& op = op_named(m.op);
    return m.phase == Phase::kUpdate || (op.body && is_cast(call)) || op.decodes || op.view;
  }

  // Whether an update would have other bits on pieces that are only kept so: where it sums over
  // them or multiplies matrices, as Muon does, it gathers them. Sums of gradients alone, for the
  // norm, are taken of the pieces wherever those are kept.
  bool needs_whole_of_kept(const Morphism& m, const CallShares& shares) const {
    if (m.phase != Phase::kUpdate) return false;
    const auto any = [&](auto trait) {
      return std::any_of(m.inputs.begin(), m.inputs.end(),
                         [&](Value v) { return traits_[v].*trait; });
    };
    if (!any(&Traits::kept) || !any(&Traits::of_state)) return false;
    return op_named(m.op).multiplies || !std::all_of(shares.gives.begin(), shares.gives.end(),
                                                     [](const Share& s) { return s.is_piece(); });
  }

  // The ways in which a call may be cut, the best first: as parameters lie, so that these need not
  // move; as the result is wanted; and as the first operand comes that is in pieces.
  std::vector<Cut> preferred(const Morphism& m, const OpCall& call,
                             const std::vector<Share>& comes) const {
    std::vector<Cut> all;
    const auto take = [&](const Cut& cut) {
      if (std::find(all.begin(), all.end(), cut) == all.end()) all.push_back(cut);
    };
    std::vector<Share> one(comes.size(), kWhole);
    std::vector<Cut> others;
    for (size_t i = 0; i < comes.size(); ++i) {
      const Traits& traits = traits_[m.inputs[i]];
      if (!comes[i].is_piece()) continue;
      one[i] = comes[i];
      for (const Cut& cut : cuts_of(call, one, axis_.size)) {
        traits.leads ? take(cut) : others.push_back(cut);
      }
      one[i] = kWhole;
    }
    const bool terms =
        std::any_of(comes.begin(), comes.end(), [](const Share& s) { return s.is_term(); });
    for (size_t k = 0; k < m.outputs.size(); ++k) {
      auto wanted = wanted_of(m.outputs[k]);
      if (!wanted && terms && others.empty()) wanted = wanted_next(m.outputs[k], kFarthest);
      if (!wanted) continue;
      const auto cut = cut_giving(call, k, *wanted, axis_.size);
      if (cut && is_free(m, call, comes, *cut)) take(*cut);
    }
    for (const Cut& cut : others) take(cut);
    return all;
  }
  // How a result should come: as it was said to, or as the parameter lies that it is the gradient
  // of.
  std::optional<Share> wanted_of(Value v) const {
    if (const auto said = said_.of(v); said && !said_.is_home(v)) return said;
    if (scheme_[v].role != Role::kGradient) return std::nullopt;
    return said_.of_parameter(scheme_[v]);
  }
  // How the first reader will want it, because of what else that reads, or of how its result is
  // wanted: a sum over ranks is then added up in those pieces, and no more.
  std::optional<Share> wanted_next(Value v, int calls) const {
    if (calls == 0 || read_by_[v].empty()) return std::nullopt;
    const Morphism& reader = scheme_.morphisms[read_by_[v][0]];
    if (reader.phase == Phase::kUpdate) return std::nullopt;
    const OpCall call = call_of(scheme_, reader);
    std::vector<Share> comes(reader.inputs.size(), kWhole);
    size_t mine = 0;
    for (size_t i = 0; i < reader.inputs.size(); ++i) {
      const Value in = reader.inputs[i];
      if (in == v) mine = i;
      const bool kept = traits_[in].of_parameters && !traits_[in].leads;
      if (in != v && moves_.is_placed(in) && moves_.comes(in).is_piece() && !kept)
        comes[i] = moves_.comes(in);
    }
    std::vector<Cut> cuts = cuts_of(call, comes, axis_.size);
    if (cuts.empty()) {
      auto wanted = wanted_of(reader.outputs[0]);
      if (!wanted) wanted = wanted_next(reader.outputs[0], calls - 1);
      const auto cut = wanted ? cut_giving(call, 0, *wanted, axis_.size) : std::optional<Cut>();
      if (!cut) return std::nullopt;
      cuts = {*cut};
    }
    const Share share = shares_along(call, comes, reader.outputs.size(), cuts[0]).wants[mine];
    return share.is_piece() ? std::optional(share) : std::nullopt;
  }

  // Whether a call can be cut so without moving pieces: what has the letter comes as such a piece,
  // as a term, which is added up in pieces, or whole.
  bool is_free(const Morphism& m, const OpCall& call, const std::vector<Share>& comes,
               const Cut& cut) const {
    const CallShares shares = shares_along(call, comes, m.outputs.size(), cut);
    bool any = false;
    for (size_t i = 0; i < comes.size(); ++i) {
      if (!shares.wants[i].is_piece()) continue;
      if (comes[i].is_piece() && comes[i] != shares.wants[i]) return false;
      any = any || !comes[i].is_whole();
    }
    return any;
  }

  // A product that sums over what is in pieces, and then adds or applies something.
  void note_meaning(const Morphism& m, const OpCall& call, const std::vector<Share>& comes) {
    const OpDef& op = op_named(m.op);
    if (!op.multiplies || !op.meaning) return;
    const IndexMap map = index_map_of(call);
    for (size_t i = 0; i < comes.size(); ++i) {
      const bool summed =
          comes[i].is_piece() && map.whole.find(map.inputs[i][comes[i].axis]) != std::string::npos;
      if (!summed || !found_.meanings.insert(to_string(scheme_[m.outputs[0]].source)).second)
        continue;
      found_more_ = true;
    }
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
  // is the same sum whether gradients are gathered afterwards or not. Before the update a sum may
  // have samples, of which no axis is cut, because they may come in parts.
  std::optional<CallShares> on_pieces_of_sums(const OpCall& call, std::vector<Share> comes,
                                              size_t results) const {
    if (moves_.phase() != Phase::kUpdate || is_linear_together(call)) return std::nullopt;
    for (size_t i = 0; i < comes.size(); ++i) {
      if (comes[i].is_term() && is_worth_cutting(call.inputs[i], axis_)) comes[i] = piece_along(0);
    }
    CallShares shares = share_call(call, comes, results, axis_.size);
    const auto is_term = [](const Share& s) { return s.is_term(); };
    const bool sums = shares.cut.letter && shares.wants == comes &&
                      std::all_of(shares.gives.begin(), shares.gives.end(), is_term);
    if (!sums || !ignores_zeros(call)) return std::nullopt;
    return shares;
  }
  static bool ignores_zeros(const OpCall& call) {
    return op_named(call.op).body && vanishes_at_zero(body_of(call));
  }

  // Whether the call gives what it should although the last pieces are not full. Samples that pad
  // a batch are ignored by what counts them, and their gradients are 0; rows that pad state and
  // gradients are 0.
  bool may_pad(const Morphism& m, const OpCall& call, const CallShares& shares) const {
    if (!is_uneven(whole_size(call, shares))) return true;
    if (m.phase == Phase::kUpdate || !of_samples(m, shares)) return keeps_zeros(call, shares);
    const bool sums = std::any_of(shares.gives.begin(), shares.gives.end(),
                                  [](const Share& s) { return s.is_term(); });
    check_targets_of_padded(scheme_, m, who_, "rank");
    check_one_padding(m);
    if (sums) check_sums_of_padded(m, who_, "rank");
    return true;
  }
  // Whether what is cut are samples, and not something of parameters.
  bool of_samples(const Morphism& m, const CallShares& shares) const {
    for (size_t i = 0; i < m.inputs.size(); ++i) {
      if (shares.wants[i].is_piece() && traits_[m.inputs[i]].samples) return true;
    }
    return false;
  }
  // Whether zeros that pad pieces stay zeros, or add nothing where they are summed.
  static bool keeps_zeros(const OpCall& call, const CallShares& shares) {
    const OpDef& op = op_named(call.op);
    // A product of zeros is zeros, and so must be the function of it that the call applies.
    const auto function = call.attrs.find("body");
    if (op.multiplies && function != call.attrs.end()) {
      return vanishes_at_zero(parse_body(std::get<std::string>(function->second)));
    }
    if (op.multiplies || op.decodes || op.view || op.lies != LiesWithin::kNo) return true;
    if (!op.body) return false;
    std::vector<bool> zeros;
    for (const Share& share : shares.wants) zeros.push_back(share.is_piece());
    return vanishes_where(body_of(call), zeros);
  }
  // A rank has one copy of its targets, so all losses must ignore the same ones.
  void check_one_padding(const Morphism& m) const {
    for (const Value in : m.inputs) {
      if (moves_.ignored(in).size() < 2) continue;
      refuse("losses ignore ", *moves_.ignored(in).begin(), " and ", *moves_.ignored(in).rbegin(),
             " of ", named(in),
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
    const Cut& cut = shares.cut;
    if (cut.letter == '.') {  // all segments, and so whatever counts them
      shrink_attrs(call, '.', axis_.size, 1, m.attrs);
      return;
    }
    const int64_t whole = size_along(call, cut.letter);
    const int64_t piece = shard_size(whole, cut.segments, axis_.size);
    shrink_attrs(call, cut.letter, whole, piece, m.attrs);
    for (Value& in : m.inputs) {
      const Object& object = result_[in];
      const bool counter = object.role == Role::kControl && object.type == random_counter_type();
      if (counter) in = moves_.counter_of_rank(in, piece);
    }
  }
  // What v is for its readers, where something was said of it.
  Share share_of(Value v) const {
    const auto settled = settled_.find(v);
    return settled == settled_.end() ? moves_.comes(v) : settled->second;
  }

  // v is wanted in pieces and comes whole. Where nobody said anything of the parameters that have
  // the axis, they are sharded so from the next walk on.
  void adopt(Value v, const Share& wanted) {
    if (made_by_[v] < 0) {
      const Object& object = scheme_[v];
      if (object.role != Role::kParameter || placement_over(object, axis_.name)) return;
      found_more_ |= found_.adopted.emplace(to_string(object.source), wanted).second;
      return;
    }
    const Morphism& m = scheme_.morphisms[made_by_[v]];
    if (m.phase != Phase::kForward) return;
    const OpCall call = call_of(scheme_, m);
    const auto k = std::find(m.outputs.begin(), m.outputs.end(), v) - m.outputs.begin();
    const auto cut = cut_giving(call, k, wanted, axis_.size);
    if (!cut) return;
    const std::vector<Share> whole(m.inputs.size(), kWhole);
    const CallShares shares = shares_along(call, whole, m.outputs.size(), *cut);
    // Whether a function of a product is one call with it must not decide where parameters lie.
    const bool function = op_named(m.op).body && m.inputs.size() == 1;
    for (size_t i = 0; i < m.inputs.size(); ++i) {
      if (shares.wants[i].is_piece() && !traits_[m.inputs[i]].of_parameters && !function) return;
    }
    for (size_t i = 0; i < m.inputs.size(); ++i) {
      if (shares.wants[i].is_piece()) adopt(m.inputs[i], shares.wants[i]);
    }
  }

  const Scheme& scheme_;
  const MeshAxis& axis_;
  std::string who_;
  Found& found_;
  std::vector<std::vector<int>> read_by_;
  std::vector<int> made_by_;
  Scheme result_;
  PlacementSaid said_;
  PlacementMoves moves_;
  std::map<Value, Share> settled_;  // by object: as it was said to be, where it is made otherwise
  std::map<Value, Share> carried_;  // by object that leaves the step: as what it replaces lies
  // Per object of the scheme: made of parameters alone; of some that work follows; of samples that
  // are in pieces; and in updates: of what is only kept in pieces; of parameters and their states.
  struct Traits {
    bool of_parameters = false, leads = false, samples = false, kept = false, of_state = false;
    Value leader = -1;  // one of those that work follows
  };
  std::vector<Traits> traits_;
  bool found_more_ = false;
};

// Placements along axes that the mesh does not have, or that have one rank, are realized already.
void forget_unmeshed(Scheme& scheme) {
  for (Object& object : scheme.objects) {
    std::erase_if(object.attributes.placement,
                  [&](const Placement& p) { return mesh_size(scheme.mesh, p.mesh_axis) == 1; });
  }
}

// Calls whose results have these sources, as their meaning.
Scheme with_meanings(const Scheme& scheme, const std::set<std::string>& sources) {
  if (sources.empty()) return scheme;
  return expand_meanings(scheme, [&](const Morphism& m) {
    const OpDef& op = op_named(m.op);
    return op.meaning && op.multiplies && sources.count(to_string(scheme[m.outputs[0]].source));
  });
}

}  // namespace

Scheme realize_placement(Scheme scheme, const WhoSaid& who_said) {
  for (Object& object : scheme.objects) {
    // One scale of a whole matrix of codes has no pieces.
    if (object.type.rank() == 0) object.attributes.placement.clear();
    for (const Placement& p : object.attributes.placement) {
      if (p.spread != Spread::kSharded || p.axis < object.type.rank()) continue;
      fail("placement: '", to_string(object.source), "' has ", object.type.rank(),
           " axes, so axis ", p.axis, " cannot be sharded over ", p.mesh_axis);
    }
  }
  forget_unmeshed(scheme);
  if (std::any_of(scheme.objects.begin(), scheme.objects.end(), is_kept_in_pieces)) {
    scheme = with_casts_before_joins(scheme);
  }
  const std::vector<MeshAxis> mesh = scheme.mesh;
  for (size_t i = mesh.size(); i-- > 0;) {
    Found found;
    for (bool again = true; again;) {
      const Scheme asked = with_meanings(scheme, found.meanings);
      AxisOfMesh walk(asked, mesh[i], who_said, found);
      Scheme placed = walk.run();
      again = walk.found_more();
      if (!again) scheme = compact(std::move(placed));
    }
  }
  return scheme;
}

}  // namespace adjoint
