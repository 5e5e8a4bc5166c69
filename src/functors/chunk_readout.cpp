// loss(linear(h, W), targets) and its gradient  ->  the same for a few rows of h at a time, so that
// the logits, by far the largest object of a model with a large vocabulary, never exist as a whole.
// Each chunk runs forward and backward: logits, loss, the gradient of the logits (which overwrites
// them), this chunk of h's gradient, and W's gradient, added to that of earlier chunks. No product
// is repeated. Sums over rows are split at the chunks, so the law is reassociating. Each chunk
// reads and writes W's gradient, so a chunk must not be small. The functor acts after the batch is
// split: a part is cut along its own samples, so that a chunk's rows are contiguous and every
// product of a chunk is one product.
#include <algorithm>
#include <map>

#include "analysis/graph.h"
#include "base/error.h"
#include "functors/functor.h"
#include "ops/axes.h"
#include "ops/builder.h"

namespace adjoint {

namespace {

// A chunk of r rows costs 6 r V H operations, and 8 V H bytes to read and write W's gradient: with
// 1024 rows that is 2% of the time of a CPU core that does 15 operations per byte. A chunk may be
// larger where its memory does not matter: up to 16 MiB, or h's own size. On a GPU, which does 160
// operations per byte, it is 3% with 8192 rows.
constexpr int64_t kLeastRows = 1024, kLeastRowsOnGpu = 8192;
constexpr Bytes kUnnoticed{16 << 20};

struct Readout {
  std::vector<int> before = {};  // the linear map, and casts between it and the loss
  int loss = -1, loss_grad = -1;
  std::vector<int> after = {};  // readers of the gradient of the logits, through casts too
  std::vector<int> first =
      {};        // made after the loss but needed by every chunk: a weight's second cast
  int lead = 0;  // axes that count rows

  bool holds(int m) const {
    return m == loss || m == loss_grad || std::count(before.begin(), before.end(), m) ||
           std::count(after.begin(), after.end(), m) || std::count(first.begin(), first.end(), m);
  }
};

// An element of the result for an element of its only operand.
bool is_unary(const Morphism& m) { return op_named(m.op).body && m.inputs.size() == 1; }

// A product that adds to its third operand.
bool has_addend(const Morphism& m) {
  const OpDef& op = op_named(m.op);
  return op.multiplies && has_addend(op, m.inputs.size());
}

bool takes_addend(const Morphism& m) {
  const OpDef& op = op_named(m.op);
  return op.multiplies && op.addend >= 0;
}

class ReadoutFinder {
 public:
  explicit ReadoutFinder(const Scheme& scheme) : scheme_(scheme), graph_(scheme) {}

  std::optional<Readout> at(int loss) const {
    const Morphism& ce = scheme_.morphisms[loss];
    if (op_named(ce.op).loss_grad.empty()) return std::nullopt;
    const Value logits = ce.inputs[0], lse = ce.outputs[2];
    Readout r{.loss = loss, .lead = scheme_[ce.inputs[1]].type.rank()};
    if (r.lead < 1 || !take_linear(r, logits)) return std::nullopt;
    for (const Value v : {logits, lse}) {
      if (graph_.stays(v)) return std::nullopt;
      for (const int reader : graph_.readers(v)) {
        if (reader == loss) continue;
        if (r.loss_grad >= 0 && reader != r.loss_grad) return std::nullopt;
        r.loss_grad = reader;
      }
    }
    if (r.loss_grad >= 0 && !take_gradient(r)) return std::nullopt;
    return r;
  }

  // The place of the chunks: the loss's, or its gradient's if that waits for something.
  std::optional<int> place(Readout& r) const {
    if (r.loss_grad < 0) return r.loss;
    int ready = 0;
    const auto wait_for = [&](int m) {
      for (const Value in : scheme_.morphisms[m].inputs) {
        if (r.holds(graph_.maker(in)) || move_up(r, graph_.maker(in))) continue;
        ready = std::max(ready, graph_.maker(in));
      }
    };
    wait_for(r.loss_grad);
    for (const int m : std::vector<int>(r.after)) wait_for(m);
    if (ready < r.loss) return r.loss;
    if (ready > r.loss_grad) return std::nullopt;
    for (const Value v : scheme_.morphisms[r.loss].outputs) {
      for (const int reader : graph_.readers(v)) {
        if (reader < r.loss_grad) return std::nullopt;
      }
    }
    return r.loss_grad;
  }

 private:
  // A morphism after the loss that reads only the step's inputs can run before it.
  bool move_up(Readout& r, int m) const {
    if (m <= r.loss) return false;
    const Morphism& morphism = scheme_.morphisms[m];
    const auto is_there = [&](Value v) { return graph_.maker(v) < 0; };
    if (!morphism.after.empty() || op_named(morphism.op).effect != Effect::kPure) return false;
    const auto is_late = [&](int reader) { return reader > r.loss_grad || r.holds(reader); };
    for (const Value out : morphism.outputs) {
      if (!std::all_of(graph_.readers(out).begin(), graph_.readers(out).end(), is_late))
        return false;
    }
    if (!std::all_of(morphism.inputs.begin(), morphism.inputs.end(), is_there)) return false;
    r.first.push_back(m);
    return true;
  }

  // Follows the logits back to the linear map that makes them.
  bool take_linear(Readout& r, Value logits) const {
    for (Value v = logits;; v = scheme_.morphisms[r.before.front()].inputs[0]) {
      const int maker = graph_.maker(v);
      if (maker < 0 || graph_.stays(v) || (v != logits && graph_.readers(v).size() != 1))
        return false;
      r.before.insert(r.before.begin(), maker);
      if (op_named(scheme_.morphisms[maker].op).weight >= 0) return true;
      if (!is_unary(scheme_.morphisms[maker])) return false;
      // Each row must be computed by itself, without its position among the others (which a mask
      // needs).
      const IndexMap map = index_map_of(call_of(scheme_, scheme_.morphisms[maker]));
      const std::string rows = map.inputs[0].substr(0, r.lead);
      if (map.outputs[0].substr(0, r.lead) != rows) return false;
      if (rows.find_first_of(map.uncut()) != std::string::npos) return false;
    }
  }

  bool take_gradient(Readout& r) const {
    const Morphism& grad = scheme_.morphisms[r.loss_grad];
    const Morphism& ce = scheme_.morphisms[r.loss];
    if (!is_gradient_of_loss(scheme_, grad, ce)) return false;
    return take_readers(r, grad.outputs[0]);
  }

  // The gradient of the logits may be read only by ops that work row by row or sum over rows.
  bool take_readers(Readout& r, Value dlogits) const {
    if (graph_.stays(dlogits)) return false;
    for (const int reader : graph_.readers(dlogits)) {
      const Morphism& m = scheme_.morphisms[reader];
      if (m.inputs[0] != dlogits || std::count(m.inputs.begin(), m.inputs.end(), dlogits) > 1) {
        return false;
      }
      const OpCall call = call_of(scheme_, m);
      if (call.attrs.count("shape")) return false;
      IndexMap map = index_map_of(call);
      const std::string rows = map.inputs[0].substr(0, r.lead);
      const auto fits = [&](const std::string& letters) {
        return letters.substr(0, r.lead) == rows ||
               letters.find_first_of(rows) == std::string::npos;
      };
      if (!std::all_of(map.inputs.begin(), map.inputs.end(), fits)) return false;
      if (!std::all_of(map.outputs.begin(), map.outputs.end(), fits)) return false;
      // A product that adds to a sum over rows needs all rows, unless each chunk passes the sum on.
      const bool sums = map.outputs[0].find_first_of(rows) == std::string::npos;
      if (has_addend(m) && sums) map.whole.clear();
      if (rows.find_first_of(map.uncut()) != std::string::npos) return false;
      r.after.push_back(reader);
      if (is_unary(m) && same_shape(scheme_[m.outputs[0]].type, scheme_[dlogits].type) &&
          !take_readers(r, m.outputs[0])) {
        return false;
      }
    }
    return true;
  }

  const Scheme& scheme_;
  Graph graph_;
};

// How the rows are cut: one axis into `pieces`, those before it into single steps.
struct Cut {
  int axis = 0;
  int64_t pieces = 1;
  std::vector<int64_t> sizes;  // of the leading axes

  int64_t count() const {
    int64_t n = pieces;
    for (int a = 0; a < axis; ++a) n *= sizes[a];
    return n;
  }
  // The range of axis a in chunk i: start and size.
  std::pair<int64_t, int64_t> range(int64_t i, int a) const {
    if (a > axis) return {0, sizes[a]};
    if (a == axis) {
      const int64_t piece = i % pieces, n = sizes[a];
      return {n * piece / pieces, n * (piece + 1) / pieces - n * piece / pieces};
    }
    int64_t inner = pieces;
    for (int b = a + 1; b < axis; ++b) inner *= sizes[b];
    return {i / inner % sizes[a], 1};
  }
};

Cut cut_rows(const Scheme& scheme, const Readout& r, const Application& application) {
  const Arguments& args = application.args;
  const bool gpu = application.options.target == Target::kCuda;
  const Object& h = scheme[scheme.morphisms[r.before[0]].inputs[0]];
  const Object& logits = scheme[scheme.morphisms[r.loss].inputs[0]];
  Cut cut;
  for (int a = 0; a < r.lead; ++a) cut.sizes.push_back(h.type.dim(a));
  const int64_t row = logits.type.axes.back().physical() * size_of(logits.type.dtype).count;
  const int64_t rows = args.is_word("rows")
                           ? std::max(gpu ? kLeastRowsOnGpu : kLeastRows,
                                      std::max(kUnnoticed, h.type.bytes()).count / row)
                           : args.whole("rows");
  const auto inside = [&](int axis) {
    int64_t n = 1;
    for (int a = axis + 1; a < r.lead; ++a) n *= cut.sizes[a];
    return n;
  };
  while (inside(cut.axis) > rows) ++cut.axis;
  const int64_t steps = rows / inside(cut.axis);  // of the axis, in one chunk
  cut.pieces = (cut.sizes[cut.axis] + steps - 1) / steps;
  return cut;
}

// Writes the chunks. A piece has the name of the whole object, with a suffix.
class Writer {
 public:
  Writer(const Scheme& scheme, Scheme& result, const Readout& r, const Cut& cut)
      : scheme_(scheme), result_(result), r_(r), cut_(cut), builder_(result) {}

  void write() {
    for (const int m : r_.first) result_.morphisms.push_back(scheme_.morphisms[m]);
    for (int64_t i = 0; i < cut_.count(); ++i) {
      chunk_ = i;
      here_.clear();
      for (const int m : r_.before) run(m);
      run(r_.loss);
      if (r_.loss_grad >= 0) run(r_.loss_grad);
      for (const int m : r_.after) run(m);
    }
    for (const Value v : {0, 1}) add_up(r_.loss, scheme_.morphisms[r_.loss].outputs[v]);
    for (const int m : r_.after) {
      for (const Value out : scheme_.morphisms[m].outputs) {
        if (stays_inside(out)) continue;
        if (is_rows(m, out)) {
          join(m, out);
        } else if (!takes_addend(scheme_.morphisms[m])) {
          add_up(m, out);
        }
      }
    }
  }

 private:
  // Whether only other morphisms of the chunk read v, as with a cast of the logits' gradient.
  bool stays_inside(Value v) const {
    return std::any_of(r_.after.begin(), r_.after.end(),
                       [&](int m) { return scheme_.morphisms[m].inputs[0] == v; });
  }

  std::string suffix() const { return ".chunk" + std::to_string(chunk_); }

  // Whether v, an operand or result of m, has the rows as its leading axes.
  bool is_rows(int m, Value v) const {
    const Morphism& morphism = scheme_.morphisms[m];
    const IndexMap map = index_map_of(call_of(scheme_, morphism));
    const auto letters_of = [&](Value of) {
      for (size_t i = 0; i < morphism.inputs.size(); ++i) {
        if (morphism.inputs[i] == of) return map.inputs[i];
      }
      for (size_t i = 0; i < morphism.outputs.size(); ++i) {
        if (morphism.outputs[i] == of) return map.outputs[i];
      }
      return std::string();
    };
    const std::string rows = map.inputs[0].substr(0, r_.lead);
    return letters_of(v).substr(0, r_.lead) == rows;
  }

  Value made_like(Value piece, Value whole) {
    Object& object = result_[piece];
    const Role role = scheme_[whole].role;
    object.role = role == Role::kGradient || role == Role::kMetric ? role : Role::kActivation;
    object.attributes = scheme_[whole].attributes;
    object.source = scheme_[whole].source;
    object.source.path += suffix();
    return piece;
  }

  std::vector<Value> emit(const Morphism& like, std::string_view op, std::vector<Value> inputs,
                          Attrs attrs) {
    builder_.at({like.source.path + suffix(), like.source.facet}, like.phase, Role::kActivation);
    const std::vector<Value> made = builder_.emit_all(op, std::move(inputs), std::move(attrs));
    result_.morphisms.back().epoch = like.epoch;
    result_.morphisms.back().section = like.section;
    return made;
  }

  // This chunk's rows of an operand.
  Value rows_of(const Morphism& reader, Value whole) {
    if (const auto found = here_.find(whole); found != here_.end()) return found->second;
    Value piece = whole;
    for (int a = 0; a <= cut_.axis; ++a) {
      const auto [start, size] = cut_.range(chunk_, a);
      const Type& type = result_[piece].type;
      if (size == type.dim(a)) continue;
      const Attrs attrs = slice_attrs(type.rank(), a, start, size);
      piece = made_like(emit(reader, "slice", {piece}, attrs)[0], whole);
    }
    return here_[whole] = piece;
  }

  void run(int m) {
    const Morphism& morphism = scheme_.morphisms[m];
    std::vector<Value> inputs;
    for (const Value in : morphism.inputs) {
      inputs.push_back(is_rows(m, in) ? rows_of(morphism, in) : in);
    }
    // A product that sums over rows adds to the sum of the chunks before.
    const bool adds = takes_addend(morphism) && !is_rows(m, morphism.outputs[0]);
    if (adds && chunk_ > 0) {
      inputs.resize(2);
      inputs.push_back(pieces_[morphism.outputs[0]].back());
    }
    const std::vector<Value> made = emit(morphism, morphism.op, std::move(inputs), morphism.attrs);
    for (size_t o = 0; o < made.size(); ++o) {
      const Value whole = morphism.outputs[o];
      made_like(made[o], whole);
      here_[whole] = made[o];
      pieces_[whole].push_back(made[o]);
    }
    if (adds && chunk_ + 1 == cut_.count()) replace_last(morphism.outputs[0]);
  }

  // Makes `whole` the result of the last morphism.
  void replace_last(Value whole) {
    result_.morphisms.back().outputs = {whole};
    for (const Morphism& m : scheme_.morphisms) {
      if (std::count(m.outputs.begin(), m.outputs.end(), whole)) {
        result_.morphisms.back().source = m.source;
      }
    }
  }

  // Adds up the chunks' sums, in order.
  void add_up(int m, Value whole) {
    emit(scheme_.morphisms[m], "sum_all", pieces_[whole], {});
    replace_last(whole);
  }

  // Concatenates the rows of all chunks, innermost axis first.
  void join(int m, Value whole) {
    std::vector<Value> parts = pieces_[whole];
    for (int a = cut_.axis; a >= 0 && parts.size() > 1; --a) {
      const size_t n = static_cast<size_t>(a == cut_.axis ? cut_.pieces : cut_.sizes[a]);
      std::vector<Value> joined;
      for (size_t i = 0; i < parts.size(); i += n) {
        chunk_ = static_cast<int64_t>(i / n);
        const std::vector<Value> group(parts.begin() + static_cast<int64_t>(i),
                                       parts.begin() + static_cast<int64_t>(i + n));
        joined.push_back(n == 1 ? group[0]
                                : made_like(emit(scheme_.morphisms[m], "concat", group,
                                                 a ? Attrs{{"axis", int64_t{a}}} : Attrs{})[0],
                                            whole));
        if (n > 1) result_[joined.back()].source.path += ".joined";
      }
      parts = std::move(joined);
    }
    replace_last(whole);
  }

  const Scheme& scheme_;
  Scheme& result_;
  const Readout& r_;
  const Cut& cut_;
  Builder builder_;
  int64_t chunk_ = 0;
  std::map<Value, Value> here_;                 // this chunk's piece, by the whole object
  std::map<Value, std::vector<Value>> pieces_;  // of all chunks
};

// Sets `place` to that of the first morphism after the chunks.
Scheme rewrite(const Scheme& scheme, const Readout& r, const Cut& cut, int& place) {
  Scheme result = scheme;
  result.morphisms.clear();
  int behind = 0;
  for (size_t i = 0; i < scheme.morphisms.size(); ++i) {
    const int m = static_cast<int>(i);
    if (m == place) {
      Writer(scheme, result, r, cut).write();
      behind = static_cast<int>(result.morphisms.size());
    }
    if (!r.holds(m)) result.morphisms.push_back(scheme.morphisms[i]);
  }
  place = behind;
  return compact(result);
}

Scheme chunk_readouts(Scheme scheme, Application& application) {
  for (int i = 0; i < static_cast<int>(scheme.morphisms.size()); ++i) {
    if (op_named(scheme.morphisms[i].op).loss_grad.empty()) continue;
    const ReadoutFinder finder(scheme);
    auto readout = finder.at(i);
    if (!readout) continue;
    auto place = finder.place(*readout);
    const Cut cut = cut_rows(scheme, *readout, application);
    if (!place || cut.count() < 2) continue;
    scheme = rewrite(scheme, *readout, cut, *place);
    i = *place - 1;  // chunks are not cut again
    ++application.matches;
  }
  return scheme;
}

}  // namespace

extern const Functor functor_chunk_readout = {
    .name = "chunk_readout",
    .summary = "the loss and its gradient for a few rows at a time: logits are never whole",
    .law = Law::kReassociating,
    .params = {{.name = "rows",
                .otherwise = "auto",
                .summary = "tokens in a chunk, at most",
                .words = {"auto"},
                .on_small = "4"}},  // half a sample: chunks along both axes
    .by_default = true,
    .may_match_none = true,
    .rules = {{FunctorPhase::kTimed, chunk_readouts}},
};

}  // namespace adjoint
