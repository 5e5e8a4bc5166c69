// Positions are followed from the inputs, forward and back through every index map, until nothing
// more is found: a rotary table has no operands, and is known to count positions because of what
// reads it. Then every morphism is written again for fewer of them.
#include "functors/carry_positions.h"

#include <algorithm>
#include <cctype>
#include <map>

#include "base/error.h"
#include "functors/functor.h"
#include "ops/carry.h"

namespace adjoint {

namespace {

class Carrying {
 public:
  Carrying(const Scheme& whole, int64_t count, int64_t most)
      : whole_(whole),
        builder_(after_),
        count_(count),
        most_(most),
        axes_(whole.objects.size(), -1),
        renamed_(whole.objects.size(), -1) {}

  Scheme run() {
    find_positions();
    after_.name = whole_.name;
    for (const Value in : whole_.inputs) {
      Object object = whole_[in];
      if (axes_[in] >= 0) object.type = with_rows(object.type, axes_[in], count_);
      renamed_[in] = after_.add_input(std::move(object));
    }
    origin_ = add_choice(kOrigin);
    if (count_ > 1) find_readout();
    for (size_t i = 0; i < whole_.morphisms.size(); ++i) {
      in_readout_ = readout_.size() > i && readout_[i];
      write(whole_.morphisms[i]);
    }
    for (const Value out : whole_.outputs) after_.outputs.push_back(renamed_[out]);
    return without_dead(std::move(after_));
  }

 private:
  template <class... Parts>
  [[noreturn]] static void refuse(const Morphism& m, const Parts&... parts) {
    fail(m.op, " at ", to_string(m.source), ": ", parts...);
  }
  std::string named(Value v) const { return "'" + to_string(whole_[v].source) + "'"; }

  Value add_choice(std::string_view path) {
    return after_.add_input({.type = {Dtype::kI32, {{"batch", batch_}}},
                             .source = {std::string(path)},
                             .role = Role::kInput});
  }

  // An object may have rows before its first position, so its axis can be longer than the context.
  Type with_rows(Type type, int axis, int64_t rows) const {
    type.axes[axis] = {type.axes[axis].name, type.axes[axis].size - context_ + rows};
    return type;
  }

  // ---- where positions are ----

  void find_positions() {
    for (const Value in : whole_.inputs) {
      const Object& object = whole_[in];
      if (object.role != Role::kInput || object.type.rank() < 2) continue;
      if (context_ == 0) batch_ = object.type.dim(0), context_ = object.type.dim(1);
      CHECK(object.type.dim(0) == batch_ && object.type.dim(1) == context_,
            "inputs are [batch, seq, ...]: " + to_string(object.source));
      axes_[in] = 1;
    }
    if (context_ < 2 || count_ > context_) {
      fail("a sequence of ", context_, " positions does not come ", count_, " at a time");
    }
    for (const Morphism& m : whole_.morphisms) maps_.push_back(index_map_of(call_of(whole_, m)));
    for (bool found = true; found;) {
      found = false;
      for (size_t i = 0; i < whole_.morphisms.size(); ++i) found |= follow(i);
    }
  }

  // The letter of positions in a call; 0: it has none, '.': they are an axis that it treats in its
  // own way.
  char letter_of(size_t i) const {
    const Morphism& m = whole_.morphisms[i];
    for (size_t k = 0; k < m.inputs.size(); ++k) {
      if (axes_[m.inputs[k]] >= 0) return maps_[i].inputs[k][axes_[m.inputs[k]]];
    }
    for (size_t k = 0; k < m.outputs.size(); ++k) {
      if (axes_[m.outputs[k]] >= 0) return maps_[i].outputs[k][axes_[m.outputs[k]]];
    }
    return 0;
  }

  bool follow(size_t i) {
    const Morphism& m = whole_.morphisms[i];
    const char letter = letter_of(i);
    if (letter == 0) return false;
    bool found = false;
    const auto mark = [&](Value v, const std::string& letters) {
      size_t axis = letters.find(letter);
      // Ops that have such an axis, and a rule, leave it where it was.
      if (letter == '.') axis = axes_[m.inputs.empty() ? v : m.inputs[0]];
      if (axis == std::string::npos || letter == '1') return;
      const int at = static_cast<int>(axis);
      if (axes_[v] == at) return;
      if (axes_[v] >= 0) refuse(m, "takes two axes of ", named(v), " for positions");
      if (whole_[v].role != Role::kActivation) {
        refuse(m, "pairs positions with the axis ", whole_[v].type.axes[at].name, " of ", named(v));
      }
      axes_[v] = at;
      found = true;
    };
    for (size_t k = 0; k < m.inputs.size(); ++k) mark(m.inputs[k], maps_[i].inputs[k]);
    for (size_t k = 0; k < m.outputs.size(); ++k) mark(m.outputs[k], maps_[i].outputs[k]);
    return found;
  }

  // Whether a position is a row like any other, in a call that has them.
  bool is_by_row(size_t i) const {
    const char letter = letter_of(i);
    return std::isalpha(static_cast<unsigned char>(letter)) &&
           maps_[i].uncut().find(letter) == std::string::npos &&
           maps_[i].outputs[0].find(letter) != std::string::npos;
  }

  // From the outputs back, as long as one object alone leads to them, position by position: what
  // reads that object is done for one position of each sample.
  void find_readout() {
    const std::vector<int> made_by = producers(whole_);
    const std::vector<std::vector<int>> read_by = readers(whole_);
    CHECK(whole_.outputs.size() == 1, "one object is returned");
    readout_.assign(whole_.morphisms.size(), false);
    for (Value v = whole_.outputs[0];;) {
      const int rank = whole_[v].type.rank();
      if (axes_[v] == 1 && (rank == 2 || rank == 3)) chosen_from_ = v;
      const int maker = made_by[v];
      if (maker < 0 || !is_by_row(maker)) break;
      Value next = -1;
      int sources = 0;
      for (const Value in : whole_.morphisms[maker].inputs) {
        if (axes_[in] >= 0) next = in, ++sources;
      }
      if (sources != 1 || read_by[next].size() > 1) {
        // The object is read elsewhere, but may still be where rows are chosen.
        if (sources == 1 && axes_[next] == 1 && whole_[next].type.rank() == 3) chosen_from_ = next;
        break;
      }
      v = next;
    }
    if (chosen_from_ < 0) fail(named(whole_.outputs[0]), " has no positions to choose one from");
    for (Value v = whole_.outputs[0]; v != chosen_from_;) {
      readout_[made_by[v]] = true;
      for (const Value in : whole_.morphisms[made_by[v]].inputs) {
        if (axes_[in] >= 0) v = in;
      }
    }
    row_ = add_choice(kRow);
  }

  // ---- the morphisms again ----

  Value operand(Value v) {
    const Value now = renamed_[v];
    CHECK(now >= 0, "what is read is made: " + to_string(whole_[v].source));
    if (!in_readout_ || v != chosen_from_) return now;
    return chosen();
  }

  Value chosen() {
    if (chosen_ >= 0) return chosen_;
    const Object& object = whole_[chosen_from_];
    builder_.at(with_facet(object.source, kRow), Phase::kForward, object.role);
    return chosen_ =
               builder_.emit("rows_at", {renamed_[chosen_from_], row_}, {{"size", int64_t{1}}});
  }

  void write(const Morphism& m) {
    const size_t i = &m - whole_.morphisms.data();
    std::vector<Value> inputs;
    for (const Value in : m.inputs) inputs.push_back(operand(in));
    const char letter = letter_of(i);
    if (letter != 0 && !is_by_row(i)) {
      write_by_rule(m, inputs);
    } else {
      write_by_row(m, std::move(inputs));
    }
    if (count_ > 1 && !in_readout_) choose_output(m);
  }

  // An output that nothing is read out of: its own rows are chosen.
  void choose_output(const Morphism& m) {
    for (const Value out : m.outputs) {
      if (out == whole_.outputs[0] && out == chosen_from_) renamed_[out] = chosen();
    }
  }

  void write_by_rule(const Morphism& m, const std::vector<Value>& inputs) {
    const OpDef& def = op_named(m.op);
    if (!def.carry) {
      refuse(m, "needs all positions at once, and has no rule for a few of them");
    }
    const OpCall call = call_of(whole_, m);
    builder_.at(m.source, m.phase, Role::kActivation);
    CarryCall carry{.builder = builder_,
                    .call = call,
                    .inputs = inputs,
                    .axis = axes_[m.inputs.empty() ? m.outputs[0] : m.inputs[0]],
                    .context = context_,
                    .count = count_,
                    .most = most_,
                    .origin = origin_,
                    .keep = [&](Value rows, std::string_view facet, const CarryCall::Kept& as) {
                      return keep(m, rows, facet, as);
                    }};
    std::vector<Value> made;
    try {
      made = def.carry(carry);
    } catch (const Error& e) {
      fail(e.what(), " (at ", to_string(m.source), ")");
    }
    // Results that nobody reads without gradients may have gone.
    for (size_t k = 0; k < made.size(); ++k) {
      renamed_[m.outputs[k]] = made[k];
      adopt(made[k], m.outputs[k]);
    }
  }

  Value keep(const Morphism& m, Value rows, std::string_view facet, const CarryCall::Kept& as) {
    Object state{.type = after_[rows].type,
                 .source = with_facet(m.source, facet),
                 .role = Role::kState,
                 .init = Init{}};
    state.type.axes[1] =
        as.ring ? Axis{std::string(kRing), as.ring} : Axis{"context", as.before + context_};
    const Source source = state.source;
    const Value in = after_.add_input(std::move(state));
    builder_.at(source, m.phase, Role::kState);
    Attrs attrs;
    if (as.before) attrs["from"] = as.before;
    if (as.ring) attrs["ring"] = int64_t{1};
    const Value out = builder_.emit("put_rows", {in, rows, origin_}, std::move(attrs));
    after_.carries.push_back({in, out});
    builder_.at(m.source, m.phase, Role::kActivation);
    return out;
  }

  // `made` is what `old` was, for other positions.
  void adopt(Value made, Value old) {
    Object object = whole_[old];
    object.type = after_[made].type;
    const int more = object.type.rank() - whole_[old].type.rank();
    for (int a = 0; more >= 0 && a < whole_[old].type.rank(); ++a) {
      object.type.axes[a + more].name = whole_[old].type.axes[a].name;
    }
    if (more == 1) object.type.axes[0].name = "batch";
    after_[made] = std::move(object);
  }

  void write_by_row(const Morphism& m, std::vector<Value> inputs) {
    Attrs attrs = m.attrs;
    const int axis = axes_[m.outputs[0]];
    const int64_t rows = in_readout_ ? 1 : count_;
    if (const auto shape = attrs.find("shape"); shape != attrs.end() && axis >= 0) {
      auto& sizes = std::get<std::vector<int64_t>>(shape->second);
      if (sizes.size() != whole_[m.outputs[0]].type.axes.size()) {
        refuse(m, "says a shape, and which of its sizes are positions is not known");
      }
      sizes[axis] += rows - context_;
    }
    builder_.at(m.source, m.phase, Role::kActivation);
    std::vector<Value> made;
    try {
      made = builder_.emit_all(m.op, std::move(inputs), std::move(attrs));
    } catch (const Error& e) {
      fail(e.what(), " (at ", to_string(m.source), ", for ", rows, " positions)");
    }
    for (size_t k = 0; k < made.size(); ++k) {
      Type want = whole_[m.outputs[k]].type;
      if (axes_[m.outputs[k]] >= 0) want = with_rows(want, axes_[m.outputs[k]], rows);
      Type by_sample = want;
      by_sample.axes.insert(by_sample.axes.begin(), {"batch", batch_});
      const Type& have = after_[made[k]].type;
      if (!same_shape(have, want) && !same_shape(have, by_sample)) {
        refuse(m, "makes ", shape_string(have), " of ", rows, " positions, wanted ",
               shape_string(want));
      }
      renamed_[m.outputs[k]] = made[k];
      adopt(made[k], m.outputs[k]);
    }
  }

  const Scheme& whole_;
  Scheme after_;
  Builder builder_;
  int64_t count_, most_, context_ = 0, batch_ = 0;
  std::vector<int> axes_;       // per object: its axis of positions, or -1
  std::vector<IndexMap> maps_;  // per morphism
  std::vector<Value> renamed_;  // per object: what it is now
  Value origin_ = -1, row_ = -1;
  std::vector<bool> readout_;  // per morphism: it reads out one position alone
  bool in_readout_ = false;
  Value chosen_from_ = -1, chosen_ = -1;
};

}  // namespace

Scheme carry_positions(const Scheme& whole, int64_t count, int64_t most) {
  CHECK(whole.carries.empty() && whole.parts == 1, "a forward scheme carries nothing yet");
  CHECK(count <= most, "no step has more positions than there is room for");
  return Carrying(whole, count, most).run();
}

extern const Functor functor_cache = {
    .name = "cache",
    .summary =
        "a few positions at a time; keys, values and whatever else later positions ask of "
        "earlier ones are kept",
    .law = Law::kReassociating,
    .params = {{.name = "positions", .otherwise = "1", .summary = "that one step takes"},
               {.name = "most",
                .otherwise = "positions",
                .summary = "that any step takes which goes on from the same state",
                .words = {"positions"}}},
    .may_match_none = true,
    .of_forward = true,
    .rules = {{FunctorPhase::kPositions,
               [](Scheme scheme, Application& application) {
                 const Arguments& args = application.args;
                 const int64_t count = args.whole("positions");
                 const int64_t most = args.is_word("most") ? count : args.whole("most");
                 if (count > most) {
                   application.refuse("a step takes ", count, " positions, and the most is ", most);
                 }
                 Scheme few = carry_positions(scheme, count, most);
                 application.matches += static_cast<int64_t>(few.carries.size());
                 return few;
               }}},
};

}  // namespace adjoint
