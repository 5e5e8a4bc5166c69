#include "analysis/roles.h"

#include <algorithm>
#include <map>
#include <set>

#include "analysis/pattern.h"
#include "base/error.h"
#include "base/text.h"
#include "ops/gradient_source.h"
#include "ops/op_def.h"

namespace adjoint {

namespace {

ParameterKind kind_of_use(const IndexMap& map, size_t operand) {
  const std::string& mine = map.inputs[operand];
  for (const char c : mine) {
    if (!std::isalpha(static_cast<unsigned char>(c))) continue;
    const auto has = [&](const std::string& letters) {
      return letters.find(c) != std::string::npos;
    };
    if (map.merged_axis(c) || std::any_of(map.outputs.begin(), map.outputs.end(), has)) continue;
    for (size_t other = 0; other < map.inputs.size(); ++other) {
      if (other != operand && has(map.inputs[other])) return ParameterKind::kMatrix;
    }
  }
  // Two axes of which one is reached only through ids.
  if (mine.size() == 2 && mine[0] == '.') return ParameterKind::kTable;
  return ParameterKind::kVector;
}

// Per object: is it computed from parameters, and nothing that varies?
std::vector<bool> from_parameters_alone(const Scheme& scheme) {
  std::vector<bool> alone(scheme.objects.size(), false);
  for (const Value in : scheme.inputs) alone[in] = scheme[in].role == Role::kParameter;
  for (const Morphism& m : scheme.morphisms) {
    bool all = !m.inputs.empty();
    for (const Value in : m.inputs) all = all && alone[in];
    for (const Value out : m.outputs) alone[out] = all;
  }
  return alone;
}

}  // namespace

std::vector<ParameterKind> parameter_kinds(const Scheme& scheme) {
  std::vector<ParameterKind> kinds(scheme.objects.size(), ParameterKind::kVector);
  const std::vector<bool> alone = from_parameters_alone(scheme);
  for (size_t i = scheme.morphisms.size(); i-- > 0;) {
    const Morphism& m = scheme.morphisms[i];
    if (m.phase != Phase::kForward) continue;
    for (size_t k = 0; k < m.inputs.size(); ++k) {
      const Value v = m.inputs[k];
      if (!alone[v] || kinds[v] == ParameterKind::kMatrix) continue;
      // A cast, a view or a join of parameters is what its readers make of it. A vector that scales
      // or shifts a matrix stays one, whether it has one axis or is stretched along others.
      const OpDef& def = op_named(m.op);
      const Type &type = scheme[v].type, &made = scheme[m.outputs[0]].type;
      const bool stretched = def.body && type.num_elements() < made.num_elements();
      if (alone[m.outputs[0]] && !def.view && (type.rank() < made.rank() || stretched)) continue;
      const ParameterKind kind = alone[m.outputs[0]]
                                     ? kinds[m.outputs[0]]
                                     : kind_of_use(index_map_of(call_of(scheme, m)), k);
      kinds[v] = std::min(kinds[v], kind);
    }
  }
  return kinds;
}

std::vector<bool> fixed_dtypes(const Scheme& scheme) {
  std::vector<bool> fixed(scheme.objects.size(), false);
  for (const Morphism& m : scheme.morphisms) {
    const OpDef& def = op_named(m.op);
    if (def.body) continue;  // a body stores what it is told to
    OpCall narrow = call_of(scheme, m);
    bool any = false;
    for (size_t k = 0; k < m.inputs.size(); ++k) {
      Type& t = narrow.inputs[k];
      if (!is_float(t.dtype) || fixed[m.inputs[k]]) continue;
      t.dtype = Dtype::kBF16;
      any = true;
    }
    if (!any) continue;
    std::vector<Type> types;
    try {
      types = infer_types(narrow);
    } catch (const Error&) {  // it wants all operands in one dtype, and so its result follows them
      continue;
    }
    for (size_t k = def.says_dtype; k < types.size(); ++k) {
      fixed[m.outputs[k]] = is_float(types[k].dtype) && types[k].dtype != Dtype::kBF16;
    }
  }
  return fixed;
}

namespace {
constexpr std::string_view kUses[] = {"none",   "embedding", "attention_in", "attention_out",
                                      "router", "readout",   "feed_forward", "linear",
                                      "norm",   "other"};
bool is_linear(Use use) { return use >= Use::kAttentionIn && use <= Use::kLinear; }

bool use_matches(Use use, std::string_view word) {
  if (word == "attention") return use == Use::kAttentionIn || use == Use::kAttentionOut;
  if (word == "linear") return is_linear(use);
  return name(use) == word;
}
}  // namespace

// What describe() counts.
std::vector<std::string> use_words() {
  return {"linear",       "attention_in", "attention_out", "attention", "router",
          "feed_forward", "readout",      "norm",          "embedding"};
}

// Of rows that no attention reads, and of rows whose queries are not all at the beginning.
constexpr int64_t kUnread = -1, kScattered = -2;

std::string_view name(Use use) { return kUses[static_cast<size_t>(use)]; }

std::vector<std::string> object_words() {
  return {"activation", "gradient", "parameter", "optimizer_state", "input", "trained",
          "frozen",     "matrix",   "table",     "vector",          "state"};
}
std::vector<std::string> of_words() {
  return {"parameter",       "activation",    "embedding", "attention",
          "attention_in",    "attention_out", "router",    "feed_forward",
          "feed_forward_in", "readout",       "norm",      "linear"};
}
std::vector<std::string> region_words() {
  return {"block", "chain", "attention", "feed_forward", "norm"};
}
std::vector<std::string> morphism_words() {
  std::vector<std::string> words = use_words();
  words.insert(words.end(), {"attention_q", "attention_kv", "feed_forward_in"});
  return words;
}

Roles::Roles(const Scheme& scheme)
    : scheme_(scheme),
      chain_(find_chain(scheme)),
      from_data_(depends_on_data(scheme)),
      kinds_(parameter_kinds(scheme)),
      uses_(scheme.morphisms.size(), Use::kNone),
      uses_of_(scheme.objects.size(), 0),
      origin_(scheme.objects.size(), -1),
      readers_(scheme.objects.size()),
      made_by_(producers(scheme)),
      parameter_gradient_(scheme.objects.size(), false),
      constant_gradient_(scheme.objects.size(), false),
      in_attention_(scheme.objects.size(), false),
      in_feed_forward_(scheme.objects.size(), false),
      attends_(scheme.morphisms.size(), false),
      queries_(scheme.objects.size(), kUnread),
      state_index_(scheme.objects.size(), -1) {
  std::set<std::string> parameters;
  std::set<std::string_view> constants;
  for (const Value in : scheme.inputs) {
    if (scheme[in].role == Role::kParameter) parameters.insert(to_string(scheme[in].source));
  }
  for (size_t i = 0; i < scheme.morphisms.size(); ++i) {
    const Morphism& m = scheme.morphisms[i];
    for (const Value out : m.outputs) {
      const Object& o = scheme[out];
      if (o.role == Role::kActivation && !from_data_[out]) constants.insert(o.source.path);
    }
    for (const Value in : m.inputs) {
      if (m.phase == Phase::kForward) readers_[in].push_back(static_cast<int>(i));
      // A gradient that the update reads is a parameter's, whatever it is called.
      if (m.phase == Phase::kUpdate && scheme[in].role == Role::kGradient) {
        parameter_gradient_[in] = true;
      }
    }
  }
  for (size_t v = 0; v < scheme.objects.size(); ++v) {
    const Object& o = scheme.objects[v];
    const bool gradient = o.role == Role::kGradient;
    if (gradient && parameters.count(to_string(owner_of_gradient(o.source)))) {
      parameter_gradient_[v] = true;
    }
    constant_gradient_[v] = gradient && constants.count(o.source.path);
  }
  // What a parameter's gradient is a view of is one of joined parameters.
  for (size_t i = scheme.morphisms.size(); i-- > 0;) {
    const Morphism& m = scheme.morphisms[i];
    if (!op_named(m.op).view || !parameter_gradient_[m.outputs[0]]) continue;
    if (scheme[m.inputs[0]].role == Role::kGradient) parameter_gradient_[m.inputs[0]] = true;
  }
  for (size_t l = 0; l < chain_.states.size(); ++l) {
    state_index_[chain_.states[l]] = static_cast<int>(l);
  }
  find_attentions();
  find_uses();
  find_queries();
  find_uses_of_objects();
  find_attention_insides();
  find_feed_forward_insides();
}

// An attention is an op that says so, or is written in smaller ones: a product of two activations,
// of which one is made, by bodies and views alone, of another such product, which has an axis of
// one operand that the other lacks: of keys, or of values. Scores and what they mix are these two;
// between them may be a softmax with any mask, or nothing. A gate that is a product of rows, one
// number each, pairs nothing, wherever the residual stream takes it.
void Roles::find_attentions() {
  const Graph graph(scheme_);
  const auto is_product = [&](const Graph&, const Morphism& m) {
    return m.phase == Phase::kForward && op_named(m.op).multiplies && from_data_[m.inputs[0]] &&
           from_data_[m.inputs[1]];
  };
  const auto pairs = [&](const Graph& all, const Morphism& m) {
    if (!is_product(all, m)) return false;
    const IndexMap map = index_map_of(call_of(scheme_, m));
    const auto has_own = [&](const std::string& mine, const std::string& others) {
      return std::any_of(mine.begin(), mine.end(), [&](char c) {
        return std::isalpha(static_cast<unsigned char>(c)) && map.has(map.outputs[0], c) &&
               !map.has(others, c);
      });
    };
    return has_own(map.inputs[0], map.inputs[1]) || has_own(map.inputs[1], map.inputs[0]);
  };
  const auto is_between = [](const Graph&, const Morphism& m) {
    return op_named(m.op).body || op_named(m.op).view;
  };
  const Pattern mixing = {is_product, {{.made_by = {pairs}, .through = is_between}}};
  for (int m = 0; m < graph.num_calls(); ++m) {
    if (op_named(graph.call(m).op).attends) attends_[m] = true;
    const auto found = match(graph, mixing, m);
    if (!found) continue;
    for (const int product : *found) attends_[product] = true;
    note_queries((*found)[1], m);
  }
}

// Of an attention that is written in products: what is mixed are values, and of what scores are
// made keys are what has the axis that mixing sums over, where what lies between keeps the axes.
void Roles::note_queries(int scores, int mixing) {
  const Morphism &first = scheme_.morphisms[scores], &second = scheme_.morphisms[mixing];
  const IndexMap map = index_map_of(call_of(scheme_, first));
  const IndexMap mixed = index_map_of(call_of(scheme_, second));
  const int rank = scheme_[first.outputs[0]].type.rank();
  int weights = 0;  // which operand of the mixing is made of scores
  std::vector<bool> of_scores(scheme_.objects.size(), false);
  of_scores[first.outputs[0]] = true;
  for (int m = scores + 1; m < mixing; ++m) {
    const Morphism& between = scheme_.morphisms[m];
    const auto is_of = [&](Value in) { return of_scores[in]; };
    if (!std::any_of(between.inputs.begin(), between.inputs.end(), is_of)) continue;
    for (const Value out : between.outputs) of_scores[out] = true;
  }
  if (!of_scores[second.inputs[0]]) weights = 1;
  int keys = 1;
  for (int axis = 0; axis < rank && rank == scheme_[second.inputs[weights]].type.rank(); ++axis) {
    const char summed = mixed.inputs[weights][axis];
    if (mixed.has(mixed.outputs[0], summed)) continue;
    keys = map.has(map.inputs[0], map.outputs[0][axis]) ? 0 : 1;
  }
  read_by_attention(second.inputs[1 - weights], 0);
  read_by_attention(first.inputs[keys], 0);
  const Value queries = first.inputs[1 - keys];
  read_by_attention(queries, scheme_[queries].type.dim(-1));
}

void Roles::read_by_attention(Value v, int64_t queries) {
  queries_[v] = queries_[v] == kUnread || queries_[v] == queries ? queries : kScattered;
}

// Against the arrows, from attentions to the linear maps that they read. A row that holds queries
// alone, or none, may be cut and turned on the way; one that holds both is followed through what
// works on single numbers.
void Roles::find_queries() {
  const std::vector<bool> alone = from_parameters_alone(scheme_);
  const auto is_read = [&](Value v) {
    return from_data_[v] && is_float(scheme_[v].type.dtype) && scheme_[v].type.rank() > 0;
  };
  for (size_t i = scheme_.morphisms.size(); i-- > 0;) {
    const Morphism& m = scheme_.morphisms[i];
    if (m.phase != Phase::kForward || m.inputs.empty()) continue;
    const OpDef& def = op_named(m.op);
    const int64_t width = is_read(m.outputs[0]) ? scheme_[m.outputs[0]].type.dim(-1) : 0;
    if (def.attends) {
      const IndexMap map = index_map_of(call_of(scheme_, m));
      const MergedAxis* row = map.merged_axis(map.inputs[0].back());
      // Beside each other in one row, queries are as wide as what the attention gives.
      const bool packed = row && row->segments.size() > 1;
      read_by_attention(m.inputs[0], packed ? width : scheme_[m.inputs[0]].type.dim(-1));
      for (size_t k = 1; k < 3 && k < m.inputs.size() && !packed; ++k) {
        if (is_read(m.inputs[k])) read_by_attention(m.inputs[k], 0);
      }
      continue;
    }
    const int64_t queries = queries_[m.outputs[0]];
    const bool by_parameter = def.weight >= 0 && alone[m.inputs[def.weight]];
    if (attends_[i] || by_parameter || queries == kUnread) continue;
    for (const Value in : m.inputs) {
      if (!is_read(in)) continue;
      const int64_t its_width = scheme_[in].type.dim(-1);
      const bool same_rows = def.body && its_width == width;
      read_by_attention(in, queries == 0 || same_rows ? queries
                            : queries == width        ? its_width
                                                      : kScattered);
    }
  }
}

// Forward facts flow along what is no linear map by a parameter: "an attention reads it" against
// the arrows, "it comes from an attention" along them.
void Roles::find_uses() {
  const size_t count = scheme_.objects.size();
  std::vector<bool> to_attention(count, false), to_choice(count, false), to_loss(count, false);
  std::vector<bool> from_attention(count, false);
  const std::vector<bool> alone = from_parameters_alone(scheme_);
  // A model that is sampled from has no loss; its logits are what it gives.
  const auto is_loss = [](const Morphism& m) { return op_named(m.op).loss; };
  if (std::none_of(scheme_.morphisms.begin(), scheme_.morphisms.end(), is_loss)) {
    for (const Value out : scheme_.outputs) to_loss[out] = true;
  }
  const auto by_parameter = [&](const Morphism& m) {
    const int weight = op_named(m.op).weight;
    return weight >= 0 && alone[m.inputs[weight]];
  };
  for (size_t i = scheme_.morphisms.size(); i-- > 0;) {
    const Morphism& m = scheme_.morphisms[i];
    if (m.phase != Phase::kForward || by_parameter(m)) continue;
    const bool attends = attends_[i], loses = is_loss(m);
    const bool chooses = op_named(m.op).effect == Effect::kChoosing;
    const auto any = [&](const std::vector<bool>& flags) {
      return std::any_of(m.outputs.begin(), m.outputs.end(), [&](Value v) { return flags[v]; });
    };
    for (const Value in : m.inputs) {
      if (attends || any(to_attention)) to_attention[in] = true;
      if (chooses || any(to_choice)) to_choice[in] = true;
      if (loses || any(to_loss)) to_loss[in] = true;
    }
  }
  for (size_t i = 0; i < scheme_.morphisms.size(); ++i) {
    const Morphism& m = scheme_.morphisms[i];
    if (m.phase != Phase::kForward) continue;
    const bool linear = by_parameter(m);
    bool comes = attends_[i], reads_parameter = false, table = false;
    for (const Value in : m.inputs) {
      comes = comes || from_attention[in];
      reads_parameter = reads_parameter || alone[in];
      table = table || (alone[in] && kinds_[in] == ParameterKind::kTable);
    }
    if (linear) {
      const Value x = m.inputs[0], y = m.outputs[0];
      const bool inside = chain_.block_of_morphism[i] >= 0;
      uses_[i] = from_attention[x] ? Use::kAttentionOut
                 : to_attention[y] ? Use::kAttentionIn
                 : to_choice[y]    ? Use::kRouter
                 : to_loss[y]      ? Use::kReadout
                 : inside          ? Use::kFeedForward
                                   : Use::kLinear;
      continue;
    }
    for (const Value out : m.outputs) from_attention[out] = comes;
    if (!reads_parameter || alone[m.outputs[0]]) continue;
    const OpDef& def = op_named(m.op);
    const bool norm = def.body && body_of(call_of(scheme_, m)).needs_whole_rows();
    uses_[i] = def.table >= 0 || table ? Use::kEmbedding : norm ? Use::kNorm : Use::kOther;
  }
}

// A parameter has the uses of whoever reads it, through casts, views and joins; an activation that
// of its maker. What a gradient or a state of the optimizer is of, its source tells.
void Roles::find_uses_of_objects() {
  const std::vector<bool> alone = from_parameters_alone(scheme_);
  for (size_t i = scheme_.morphisms.size(); i-- > 0;) {
    const Morphism& m = scheme_.morphisms[i];
    if (m.phase != Phase::kForward) continue;
    const int first = uses_[i] == Use::kFeedForward && begins_feed_forward(m) ? kBegins : 0;
    const auto use = static_cast<uint16_t>(1 << static_cast<int>(uses_[i]) | first);
    for (const Value out : m.outputs) {
      if (!alone[out]) uses_of_[out] = use;
    }
    for (const Value in : m.inputs) {
      if (alone[in]) uses_of_[in] |= alone[m.outputs[0]] ? uses_of_[m.outputs[0]] : use;
    }
  }
  std::map<std::string, Value> by_source;
  for (size_t v = 0; v < scheme_.objects.size(); ++v) {
    const Object& o = scheme_.objects[v];
    const bool whole = o.role == Role::kParameter || o.role == Role::kActivation;
    if (whole) by_source.emplace(to_string(o.source), static_cast<Value>(v));
  }
  for (size_t v = 0; v < scheme_.objects.size(); ++v) {
    const Object& o = scheme_.objects[v];
    if (o.role != Role::kGradient && o.role != Role::kState) continue;
    const auto found = by_source.find(to_string(owner_of_gradient(o.source)));
    if (found != by_source.end()) origin_[v] = found->second;
  }
}

// Whether no other such map leads to this one by what works on single numbers: a norm, or a state
// of the chain, is where one begins.
bool Roles::begins_feed_forward(const Morphism& map) const {
  std::vector<Value> left = {map.inputs[0]};
  while (!left.empty()) {
    const Value v = left.back();
    left.pop_back();
    if (!from_data_[v] || made_by_[v] < 0 || state_index_[v] >= 0) continue;
    const Morphism& m = scheme_.morphisms[made_by_[v]];
    if (uses_[made_by_[v]] == Use::kFeedForward) return false;
    const OpDef& def = op_named(m.op);
    const OpCall call = call_of(scheme_, m);
    const bool single = def.view || (def.body && !body_of(call).needs_whole_rows());
    if (single) left.insert(left.end(), m.inputs.begin(), m.inputs.end());
  }
  return true;
}

bool Roles::is_used(Value v, std::string_view word) const {
  if (word == "feed_forward_in") return (uses_of_[v] & kBegins) != 0;
  for (size_t use = 0; use < std::size(kUses); ++use) {
    if ((uses_of_[v] >> use & 1) && use_matches(static_cast<Use>(use), word)) return true;
  }
  return false;
}

std::vector<Use> Roles::uses_of(Value parameter) const {
  std::vector<Use> uses;
  for (size_t use = 0; use < std::size(kUses); ++use) {
    if (uses_of_[parameter] >> use & 1) uses.push_back(static_cast<Use>(use));
  }
  return uses;
}

std::string role_of(const Roles& roles, Value parameter) {
  std::vector<std::string> words;
  for (const Use use : roles.uses_of(parameter)) {
    if (use != Use::kNone) words.emplace_back(name(use));
  }
  return words.empty() ? std::string(name(Use::kOther)) : join(words, "+");
}

// Between the linear maps around it: what leads to an attention from them, and what it gives.
void Roles::find_attention_insides() {
  for (size_t i = scheme_.morphisms.size(); i-- > 0;) {
    const Morphism& m = scheme_.morphisms[i];
    if (m.phase != Phase::kForward || is_linear(uses_[i])) continue;
    const bool leads = attends_[i] || in_attention_[m.outputs[0]];
    if (!leads) continue;
    for (const Value out : m.outputs) in_attention_[out] = from_data_[out];
    for (const Value in : m.inputs) {
      const int maker = made_by_[in];
      if (maker < 0 || !from_data_[in] || is_linear(uses_[maker])) continue;
      for (const Value other : scheme_.morphisms[maker].outputs) in_attention_[other] = true;
    }
  }
}

// Between the linear maps of a feed-forward: what is made of their results and of nothing else from
// data (so no sum with a residual), and leads to another of them. A router's weights are there too.
void Roles::find_feed_forward_insides() {
  std::vector<bool> of_maps(scheme_.objects.size(), false);
  std::vector<bool> is_map(scheme_.objects.size(), false);  // a map's result, or a view of it
  for (size_t i = 0; i < scheme_.morphisms.size(); ++i) {
    const Morphism& m = scheme_.morphisms[i];
    if (m.phase != Phase::kForward) continue;
    bool made_of_maps = uses_[i] == Use::kFeedForward || uses_[i] == Use::kRouter;
    if (!is_linear(uses_[i])) {
      const auto is_data = [&](Value in) { return from_data_[in]; };
      made_of_maps = std::any_of(m.inputs.begin(), m.inputs.end(), is_data) &&
                     std::all_of(m.inputs.begin(), m.inputs.end(),
                                 [&](Value in) { return !from_data_[in] || of_maps[in]; });
    }
    const bool views_map = op_named(m.op).view && is_map[m.inputs[0]];
    for (const Value out : m.outputs) {
      of_maps[out] = made_of_maps;
      is_map[out] = is_linear(uses_[i]) || views_map;
    }
  }
  for (size_t i = scheme_.morphisms.size(); i-- > 0;) {
    const Morphism& m = scheme_.morphisms[i];
    if (m.phase != Phase::kForward) continue;
    const bool leads = uses_[i] == Use::kFeedForward ||
                       std::any_of(m.outputs.begin(), m.outputs.end(),
                                   [&](Value out) { return in_feed_forward_[out]; });
    if (!leads) continue;
    for (const Value in : m.inputs) {
      const int maker = made_by_[in];
      if (maker < 0 || !of_maps[in] || is_map[in]) continue;
      for (const Value other : scheme_.morphisms[maker].outputs) in_feed_forward_[other] = true;
    }
  }
}

std::optional<int64_t> Roles::queries_of(int morphism) const {
  const int64_t queries = queries_[scheme_.morphisms[morphism].outputs[0]];
  return queries < 0 ? std::nullopt : std::optional(queries);
}

std::optional<int> Roles::state_index(Value v) const {
  return state_index_[v] < 0 ? std::nullopt : std::optional(state_index_[v]);
}

bool Roles::is(Value v, std::string_view word) const {
  const Object& o = scheme_[v];
  const bool parameter = o.role == Role::kParameter;
  if (word == "activation") {
    // Metrics, rows' sums kept beside a result and constants are none.
    return o.role == Role::kActivation && from_data_[v] && is_float(o.type.dtype) &&
           o.type.rank() > 0 && made_by_[v] >= 0 &&
           scheme_.morphisms[made_by_[v]].outputs[0] == v &&
           !op_named(scheme_.morphisms[made_by_[v]].op).loss;
  }
  if (word == "gradient") return o.role == Role::kGradient && is_float(o.type.dtype);
  if (word == "parameter") return parameter;
  if (word == "optimizer_state") return o.role == Role::kState;
  if (word == "input") return o.role == Role::kInput;
  if (word == "trained") return parameter && !o.frozen;
  if (word == "frozen") return parameter && o.frozen;
  if (word == "state") return state_index_[v] >= 0;
  return parameter && is_kind(v, word);
}

bool Roles::is_of(Value v, std::string_view word) const {
  const Role role = scheme_[v].role;
  if (role == Role::kGradient && word == "parameter") return parameter_gradient_[v];
  if (role == Role::kGradient && word == "activation") {
    // The gradient of what depends on no data is a sum over the data, as a parameter's is.
    return !parameter_gradient_[v] && !constant_gradient_[v] && scheme_[v].type.rank() > 0;
  }
  if (role != Role::kGradient && role != Role::kState) return is_used(v, word);
  const Value of = origin_[v];
  if (of < 0) return false;
  // What is made of parameters alone, a concat of weights, is of their kind.
  const bool made_of_parameters = !from_data_[of] && scheme_[of].role == Role::kActivation;
  return is_used(of, word) || is(of, word) || (made_of_parameters && is_kind(of, word));
}

bool Roles::is_kind(Value v, std::string_view word) const {
  return (word == "matrix" && kinds_[v] == ParameterKind::kMatrix) ||
         (word == "table" && kinds_[v] == ParameterKind::kTable) ||
         (word == "vector" && kinds_[v] == ParameterKind::kVector);
}

bool Roles::is_inside(Value v, std::string_view word) const {
  if (word == "attention") return in_attention_[v];
  if (word == "feed_forward") return in_feed_forward_[v];
  if (word == "norm") {  // what a norm gives, and keeps beside it
    return made_by_[v] >= 0 && morphism_is(made_by_[v], word);
  }
  if (word == "block") return chain_.block_of[v] >= 0 && state_index_[v] < 0;
  return chain_.block_of[v] >= 0;
}

bool Roles::morphism_is(int m, std::string_view word) const {
  if (word == "attention_q" || word == "attention_kv") {
    const Value y = scheme_.morphisms[m].outputs[0];
    if (uses_[m] != Use::kAttentionIn || queries_[y] == kUnread) return false;
    const bool none = queries_[y] == 0, all = queries_[y] == scheme_[y].type.dim(-1);
    return word == "attention_q" ? !none : !all;
  }
  if (word == "feed_forward_in") {
    return uses_[m] == Use::kFeedForward && begins_feed_forward(scheme_.morphisms[m]);
  }
  return scheme_.morphisms[m].phase == Phase::kForward && use_matches(uses_[m], word);
}

bool Roles::morphism_is_inside(int m, std::string_view word) const {
  if (word == "attention") return in_attention_[scheme_.morphisms[m].outputs[0]];
  if (word == "feed_forward") return in_feed_forward_[scheme_.morphisms[m].outputs[0]];
  if (word == "norm") return morphism_is(m, word);
  return chain_.block_of_morphism[m] >= 0;
}

std::string Roles::describe() const {
  const auto plural = [](int64_t n, const std::string& word) {
    return std::to_string(n) + " " + word + (n == 1 ? "" : "s");
  };
  std::string out = chain_.length() ? "a chain of " + plural(chain_.length(), "block")
                                    : std::string("no chain of repeated blocks");
  for (const std::string& word : object_words()) {
    int64_t n = 0;
    for (size_t v = 0; v < scheme_.objects.size(); ++v) n += is(static_cast<Value>(v), word);
    if (n && word != "state") out += ", " + std::to_string(n) + " " + word;
  }
  for (const std::string& word : use_words()) {
    int64_t n = 0;
    for (size_t m = 0; m < uses_.size(); ++m) n += morphism_is(static_cast<int>(m), word);
    if (n) out += ", " + plural(n, "use") + " as " + word;
  }
  return out;
}

}  // namespace adjoint
