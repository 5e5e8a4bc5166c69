// A batch in n parts (microbatches)  ->  prologue, a body that runs n times, epilogue. The body is
// the step of one part; its sums over samples are added to float32 accumulators, in the order of
// the parts, and whatever reads those sums is in the epilogue. Inputs stay whole: the body takes
// its part of them, and an uneven batch is padded with samples that do not count. Activations
// shrink n times, at the price of accumulators and n times as many launches.
#include <algorithm>
#include <array>
#include <set>

#include "analysis/batch_split.h"
#include "analysis/padding.h"
#include "analysis/spread.h"
#include "base/error.h"
#include "functors/phases.h"
#include "ops/builder.h"

namespace adjoint {

namespace {

struct Parts {
  int64_t count = 1, samples = 1, size = 1;
  bool padded() const { return count * size != samples; }
};

// `wanted`: also where the batch is one part, which then is the whole of it.
Parts parts_of(const Scheme& scheme, std::string_view who, bool wanted) {
  Parts parts;
  const Object* first = nullptr;
  for (const Value in : scheme.inputs) {
    const Object& data = scheme[in];
    if (data.role != Role::kInput) continue;
    if (!first) {
      first = &data;
      parts.count = data.attributes.parts;
    } else if (data.attributes.parts != parts.count) {
      fail(who, ": '", to_string(first->source), "' comes in ", parts.count, " parts and '",
           to_string(data.source), "' in ", data.attributes.parts, "; a batch has one number");
    }
    if (parts.count == 1 && !wanted) continue;
    const int64_t samples = data.type.rank() ? data.type.dim(0) : 0;
    if (first == &data) parts.samples = samples;
    if (samples < 1 || samples != parts.samples) {
      fail(who, ": '", to_string(data.source), "' is ", to_string(data.type),
           "; every input of the batch must begin with the same axis of samples");
    }
  }
  if (parts.count > parts.samples) {
    const std::string_view many = parts.samples == 1 ? "" : "s";
    fail(who, ": the batch has ", parts.samples, " sample", many, ", so at most ", parts.samples,
         " part", many, "; found ", parts.count);
  }
  parts.size = (parts.samples + parts.count - 1) / parts.count;
  // Parts that would be all padding are left out: 5 samples in 4 parts of 2 are 3 parts.
  parts.count = (parts.samples + parts.size - 1) / parts.size;
  return parts;
}

class Realization {
 public:
  Realization(const Scheme& scheme, const Parts& parts, std::string_view who)
      : scheme_(scheme),
        parts_(parts),
        who_(who),
        split_(split_batch(scheme, who, parts.padded())),
        read_by_(readers(scheme)),
        made_by_(producers(scheme)),
        fills_(ignored_targets(scheme)),
        result_(scheme),
        totals_(scheme.objects.size(), -1) {}

  Scheme run() {
    result_.morphisms.clear();
    result_.parts = static_cast<int>(parts_.count);
    for (const Value in : result_.inputs) result_[in].attributes.parts = 1;
    add_index();
    for (size_t i = 0; i < scheme_.morphisms.size(); ++i) add_morphism(i);
    Morphism next{.op = "map",
                  .inputs = {index_},
                  .outputs = {next_index_},
                  .attrs = {{"body", std::string("add(x0, 1)/i32")}},
                  .source = {"part", "index"}};
    body().push_back(std::move(next));
    for (std::vector<Morphism>& section : sections_) {
      std::move(section.begin(), section.end(), std::back_inserter(result_.morphisms));
    }
    for (Value& out : result_.outputs) out = total_of(out);
    for (Carry& c : result_.carries) c.out = total_of(c.out);
    return std::move(result_);
  }

 private:
  // Adds a morphism at the end of a section; its result is like `like`.
  Value emit(Section section, std::string_view op, std::vector<Value> inputs, Attrs attrs,
             Phase phase, const Object& like) {
    const Value out = result_.add(like);
    sections_[static_cast<size_t>(section)].push_back({.op = std::string(op),
                                                       .inputs = std::move(inputs),
                                                       .outputs = {out},
                                                       .attrs = std::move(attrs),
                                                       .source = like.source,
                                                       .phase = phase,
                                                       .section = section});
    return out;
  }

  // An object derived from another one: the same role and attributes, the source with a suffix.
  static Object derived(Object object, const std::string& suffix = "") {
    std::string& facet = object.source.facet;
    if (!suffix.empty()) facet += (facet.empty() ? "" : ".") + suffix;
    object.attributes.residence = Residence::kUnsaid;
    object.attributes.parts = 1;
    object.init.reset();
    return object;
  }

  // The index of the part: 0 at first, one more after every iteration.
  void add_index() {
    Object index{.type = {Dtype::kI32, {}}, .source = {"part", "index"}, .role = Role::kControl};
    index_ =
        emit(Section::kPrologue, "fill", {},
             {{"shape", std::vector<int64_t>{}}, {"value", 0.0}, {"dtype", std::string("i32")}},
             Phase::kForward, index);
    next_index_ = result_.add(index);
    result_.loop.push_back({index_, next_index_});
  }

  // Whoever else reads targets, as the derived gradient of a loss does, sees the samples that pad a
  // part as ignored, too.
  int64_t fill_for(const Morphism& m, size_t operand) const {
    const bool targets = static_cast<int>(operand) == op_named(m.op).targets;
    if (targets) return ignored_target(call_of(scheme_, m));
    const std::set<int64_t>& ignored = fills_[m.inputs[operand]];
    if (ignored.size() > 1 && parts_.padded()) {
      fail(who_, ": losses ignore ", *ignored.begin(), " and ", *ignored.rbegin(), " of '",
           to_string(scheme_[m.inputs[operand]].source),
           "', and the last part has samples that do not count; choose a number of parts that "
           "divides the batch");
    }
    return ignored.empty() ? 0 : *ignored.begin();
  }

  // This part of a whole object.
  Value part_of(Value whole, int64_t fill) {
    const auto [found, fresh] = taken_.emplace(std::pair{whole, fill}, -1);
    if (!fresh) return found->second;
    Object part = derived(scheme_[whole], "part");
    part.role = Role::kActivation;
    part.type.axes[0] = {part.type.axes[0].name, parts_.size};
    found->second = emit(Section::kBody, "part", {whole, index_},
                         {{"size", parts_.size}, {"fill", fill}}, Phase::kForward, part);
    return found->second;
  }

  Value counter_of_part(Value counter) {
    const auto [found, fresh] = counters_.emplace(counter, -1);
    if (fresh) {
      found->second =
          emit(Section::kBody, "part_counter", {counter, index_}, {{"size", parts_.size}},
               Phase::kForward, derived(scheme_[counter], "part"));
    }
    return found->second;
  }

  void add_morphism(size_t i) {
    Morphism m = scheme_.morphisms[i];
    m.section = split_.sections[i];
    if (split_.letters[i]) shrink(m, split_.letters[i]);
    if (split_.ahead[i]) {
      for (Value& in : m.inputs) in = whole_of(in);
    }
    if (m.section == Section::kEpilogue) {
      for (Value& in : m.inputs) in = total_of(in);
    }
    const std::vector<Value> made = m.outputs;
    const Phase phase = m.phase;
    std::vector<Morphism>& section = sections_[static_cast<size_t>(m.section)];
    if (m.section == Section::kBody) {
      for (const Value out : made) made_at_[out] = section.size();
    }
    section.push_back(std::move(m));
    for (const Value out : made) {
      if (split_.summed[out]) accumulate(out, phase);
    }
  }

  // What a sum that is known ahead reads: inputs are whole, and what is made of them is made once
  // more, of all samples.
  Value whole_of(Value v) {
    if (made_by_[v] < 0) return v;
    const auto [found, fresh] = wholes_.emplace(v, v);
    if (!fresh) return found->second;
    Morphism again = scheme_.morphisms[made_by_[v]];
    for (Value& in : again.inputs) in = whole_of(in);
    for (Value& out : again.outputs) {
      const Value original = out;
      out = result_.add(derived(scheme_[original], "whole"));
      wholes_[original] = out;
    }
    again.section = Section::kPrologue;
    sections_[static_cast<size_t>(Section::kPrologue)].push_back(std::move(again));
    return wholes_[v];
  }

  // A call on the whole batch becomes one on a part.
  void shrink(Morphism& m, char letter) {
    const IndexMap map = index_map_of(call_of(scheme_, m));
    const Morphism original = m;
    for (size_t k = 0; k < m.inputs.size(); ++k) {
      const Value in = m.inputs[k];
      const Object& object = scheme_[in];
      const bool invariant = split_.kinds[in] == Batchwise::kInvariant;
      if (object.role == Role::kInput && !invariant) {
        m.inputs[k] = part_of(in, fill_for(original, k));
      } else if (object.role == Role::kControl && object.type == random_counter_type()) {
        m.inputs[k] = counter_of_part(in);
      } else if (invariant && map.inputs[k].find(letter) == 0) {
        m.inputs[k] = part_of(in, 0);
      }
    }
    shrink_attrs(call_of(scheme_, original), letter, parts_.samples, parts_.size, m.attrs);
    for (const Value out : m.outputs) {
      if (split_.kinds[out] != Batchwise::kSplit) continue;
      Axis& axis = result_[out].type.axes[split_.axes[out]];
      axis = {axis.name, parts_.size};
    }
  }

  // sum = sum + this part, from zeros, in float32. The sum has the name of the whole object, and is
  // rounded to its precision once, if a reader needs that.
  void accumulate(Value partial, Phase phase) {
    const Object whole = scheme_[partial];
    const bool narrow = size_of(whole.type.dtype) < size_of(Dtype::kF32);
    const bool rounded = narrow && !reads_wide(partial);
    Object sum = derived(whole, rounded ? "sum" : "");
    if (narrow) sum.type.dtype = Dtype::kF32;
    std::vector<int64_t> shape;
    for (const Axis& axis : sum.type.axes) shape.push_back(axis.size);
    const Value begin =
        emit(Section::kPrologue, "fill", {},
             {{"shape", shape}, {"value", 0.0}, {"dtype", std::string(name(sum.type.dtype))}},
             phase, derived(sum, "begin"));
    const bool wide = !read_in_body(partial) && (!narrow || widen(partial));
    Value after = partial;
    if (Morphism* product = wide ? adder_of(partial) : nullptr) {
      // The product adds to the sum directly; the part alone is never stored.
      product->inputs.push_back(begin);
      result_[partial] = sum;
    } else {
      result_[partial].source = derived(whole, "part").source;
      after = emit(Section::kBody, "add", {begin, partial}, {}, phase, sum);
    }
    result_.loop.push_back({begin, after});
    totals_[partial] = after;
    if (rounded) {
      totals_[partial] =
          emit(Section::kEpilogue, "cast", {after},
               {{"dtype", std::string(name(whole.type.dtype))}}, phase, derived(whole));
    } else if (narrow) {
      widen_views(partial);
    }
  }

  bool read_in_body(Value v) const {
    return std::any_of(read_by_[v].begin(), read_by_[v].end(),
                       [&](int i) { return split_.sections[i] == Section::kBody; });
  }

  std::vector<Morphism>& body() { return sections_[static_cast<size_t>(Section::kBody)]; }
  Morphism& maker_of(Value v) { return body()[made_at_.at(v)]; }

  // Whether v is a term that only this sum reads, and only once (not as in t + t).
  bool is_own_term(Value v) const {
    if (!made_at_.count(v) || split_.kinds[v] != Batchwise::kPartial || split_.summed[v]) {
      return false;
    }
    if (read_by_[v].size() != 1) return false;
    const std::vector<Value>& read = scheme_.morphisms[read_by_[v][0]].inputs;
    return std::count(read.begin(), read.end(), v) == 1;
  }

  // The matrix product that can add to the sum so far: the one that makes v, or one of v's terms.
  Morphism* adder_of(Value v) {
    Morphism& maker = maker_of(v);
    if (may_take_addend(op_named(maker.op), maker.inputs.size())) return &maker;
    if (!is_addition(call_of(result_, maker))) return nullptr;
    for (const Value term : maker.inputs) {
      if (!is_own_term(term) || result_[term].type != result_[v].type) continue;
      if (Morphism* product = adder_of(term)) return product;
    }
    return nullptr;
  }

  // Makes v in float32, so that only the sum is rounded, if its maker can.
  bool widen(Value v) {
    if (!can_widen(v)) return false;
    Morphism& maker = maker_of(v);
    result_[v].type.dtype = Dtype::kF32;
    if (op_named(maker.op).says_dtype) {
      maker.attrs["dtype"] = std::string("f32");
    } else if (says_body(maker)) {
      auto& text = std::get<std::string>(maker.attrs["body"]);
      Body body = parse_body(text);
      const auto k = std::find(maker.outputs.begin(), maker.outputs.end(), v);
      body.outputs[k - maker.outputs.begin()].dtype = Dtype::kF32;
      text = print(body);
    } else {
      const std::vector<Value> terms = maker.inputs;
      for (const Value term : terms) widen(term);
    }
    return true;
  }
  bool can_widen(Value v) const {
    const Morphism& maker = sections_[static_cast<size_t>(Section::kBody)][made_at_.at(v)];
    if (op_named(maker.op).says_dtype) return maker.outputs[0] == v;
    if (says_body(maker)) return true;
    if (!is_addition(call_of(result_, maker))) return false;
    return std::all_of(maker.inputs.begin(), maker.inputs.end(),
                       [&](Value term) { return is_own_term(term) && can_widen(term); });
  }

  // Whether all readers of the sum, through views too, give the same types if it is float32.
  bool reads_wide(Value v) const {
    if (std::count(scheme_.outputs.begin(), scheme_.outputs.end(), v)) return false;
    return std::all_of(read_by_[v].begin(), read_by_[v].end(), [&](int i) {
      const Morphism& m = scheme_.morphisms[i];
      if (split_.sections[i] == Section::kBody) return true;  // reads the part
      if (op_named(m.op).view) return reads_wide(m.outputs[0]);
      return makes_the_same(m, v);
    });
  }
  bool makes_the_same(const Morphism& m, Value widened) const {
    OpCall call = call_of(scheme_, m);
    if (op_named(m.op).one_dtype) return false;
    for (size_t k = 0; k < m.inputs.size(); ++k) {
      if (m.inputs[k] == widened) call.inputs[k].dtype = Dtype::kF32;
    }
    try {
      const std::vector<Type> made = infer_types(call);
      for (size_t o = 0; o < made.size(); ++o) {
        if (made[o] != scheme_[m.outputs[o]].type) return false;
      }
    } catch (const Error&) {
      return false;  // it does not take float32
    }
    return true;
  }
  void widen_views(Value v) {
    for (const int i : read_by_[v]) {
      const Morphism& m = scheme_.morphisms[i];
      if (split_.sections[i] == Section::kBody || !op_named(m.op).view) continue;
      result_[m.outputs[0]].type.dtype = Dtype::kF32;
      widen_views(m.outputs[0]);
    }
  }

  Value total_of(Value v) const { return totals_[v] >= 0 ? totals_[v] : v; }

  const Scheme& scheme_;
  Parts parts_;
  std::string_view who_;
  BatchSplit split_;
  std::vector<std::vector<int>> read_by_;
  std::vector<int> made_by_;
  std::map<Value, Value> wholes_;         // by the object of a part
  std::vector<std::set<int64_t>> fills_;  // per object: the targets that losses ignore
  Scheme result_;
  std::array<std::vector<Morphism>, 3> sections_;
  std::vector<Value> totals_;                         // per partial object: its sum
  std::map<std::pair<Value, int64_t>, Value> taken_;  // by the whole object and the padding value
  std::map<Value, Value> counters_;
  std::map<Value, size_t> made_at_;  // per object of the body: its maker's place there
  Value index_ = -1, next_index_ = -1;
};

}  // namespace

Scheme realize_time(const Scheme& scheme, std::string_view who) {
  // Stages want a prologue, a body and an epilogue also of one part, and so do sums use by use.
  const bool by_use = std::any_of(scheme.objects.begin(), scheme.objects.end(),
                                  [](const Object& o) { return o.attributes.use_by_use; });
  const bool wanted = by_use || !scheme.schedule.empty();
  const Parts parts = parts_of(scheme, who, wanted);
  if (parts.count == 1 && !wanted) return scheme;
  CHECK(scheme.parts == 1 && scheme.loop.empty(), "a step is split in time once");
  return Realization(scheme, parts, who).run();
}

}  // namespace adjoint
