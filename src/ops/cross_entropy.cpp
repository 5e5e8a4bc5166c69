// sum = sum over rows of log(sum(exp(logits))) - logits[target], count = rows that are not ignored.
// The loss is this pair: whatever splits a batch adds pairs, and the step divides once. The log of
// the row's sum is kept (one number a row), so the gradient reads the logits once and no
// probabilities are ever stored. Smoothed targets, the square of the log-sum and a soft cap of the
// logits are options of the same pass over a row, so that no second copy of the logits is made.

#include "ops/cross_entropy.h"

#include <cmath>

#include "base/error.h"
#include "ops/axes.h"
#include "ops/builder.h"
#include "ops/pieces.h"
#include "ops/samples.h"
#include "ops/surface.h"

namespace adjoint {

namespace {

std::vector<Type> infer(const OpCall& call) {
  check_cross_entropy_operands(call);
  const Type& logits = call.inputs[0];
  const Dtype sums = logits.dtype == Dtype::kF64 ? Dtype::kF64 : Dtype::kF32;
  Type lse{.dtype = sums, .axes = logits.axes};
  lse.axes.pop_back();
  return {{sums, {}}, {sums, {}}, lse};
}

void grad(GradCall& g) {
  if (!g.wants[0] || !g.output_grads[0]) return;
  Attrs attrs = g.call.attrs;
  attrs.emplace("ignore", ignored_target(g.call));
  g.input_grads[0] = g.builder.emit(
      "cross_entropy_grad", {g.inputs[0], g.inputs[1], g.outputs[2], g.dout(0)}, std::move(attrs));
}

// Every rank's log-sums and targets' logits side by side, [ranks, ..., kinds], and the loss of
// them.
std::vector<Value> in_pieces(PiecesCall& p) {
  Builder& b = p.builder;
  Attrs attrs = p.call.attrs;
  attrs["classes"] = p.whole;
  attrs["ignore"] = ignored_target(p.call);
  const Value targets = p.as_rows(p.inputs[1]);
  Attrs piece = attrs;
  piece["piece"] = p.piece;
  piece.erase("z");
  const Value logits = p.inputs[0];
  const auto mine = b.emit_all("loss_piece", {logits, targets, p.coordinate}, piece);
  const int rank = b.type(logits).rank(), kinds = static_cast<int>(mine.size());
  const Value joined = b.emit("concat", mine, {{"axis", int64_t{rank - 1}}});
  const Value all = p.gathered(b.emit("unsqueeze", {joined}, {{"axis", int64_t{0}}}));
  std::vector<int64_t> order;
  for (int a = 1; a <= rank; ++a) order.push_back(a);
  order.push_back(0);
  const Value by_rank = b.emit("transpose", {all}, {{"order", order}});  // [..., kinds, ranks]
  std::vector<Value> operands = {targets};
  for (int k = 0; k < kinds; ++k) {
    const Value one = b.emit("slice", {by_rank}, slice_attrs(rank + 1, rank - 1, k, 1));
    operands.push_back(b.emit("squeeze", {one}, {{"axis", int64_t{rank - 1}}}));
  }
  attrs.erase("cap");
  const auto made = b.emit_all("loss_joined", operands, attrs);
  return {made[0], made[1], b.emit("squeeze", {made[2]}, {{"axis", int64_t{rank - 1}}})};
}

Sample with_option(const std::string& name, double value) {
  return {.inputs = {of({3, 5}), of({3}, Dtype::kI32)}, .attrs = {{name, value}}};
}

std::vector<Value> surface(SurfaceCall& call) {
  const double ignore = call.number("ignore");
  if (std::floor(ignore) != ignore || std::abs(ignore) > 0x7fffffff) {
    fail("cross_entropy: ignore must be a whole number that a target can be, found ", ignore);
  }
  Attrs attrs = {{"ignore", static_cast<int64_t>(ignore)}};
  for (const char* option : {"smoothing", "z", "cap"}) {
    if (const double value = call.number(option); value != 0) attrs[option] = value;
  }
  const auto made = call.builder.emit_all(
      "cross_entropy", {call.tensor("logits"), call.tensor("targets")}, std::move(attrs));
  return {made[0], made[1]};  // the pair; lse is the gradient's business
}

}  // namespace

void check_cross_entropy_operands(const OpCall& call) {
  if (call.inputs.size() < 2) fail(call.op, ": wants logits and targets");
  const Type &logits = call.inputs[0], &targets = call.inputs[1];
  bool fits =
      targets.dtype == Dtype::kI32 && is_float(logits.dtype) && logits.rank() == targets.rank() + 1;
  for (int i = 0; fits && i < targets.rank(); ++i) fits = logits.dim(i) == targets.dim(i);
  if (!fits) {
    fail(call.op, ": targets ", to_string(targets), " do not fit logits ", to_string(logits),
         ": floating logits and one i32 target a row are wanted");
  }
  cross_entropy_options(call);
}

CrossEntropyOptions cross_entropy_options(const OpCall& call) {
  const CrossEntropyOptions o{.smoothing = call.number("smoothing", 0),
                              .z = call.number("z", 0),
                              .cap = call.number("cap", 0)};
  if (!(o.smoothing >= 0 && o.smoothing < 1)) {
    fail(call.op, ": smoothing must be from 0 to less than 1, found ", o.smoothing);
  }
  // Beyond these float32 has no room for squares, or for quotients by the cap.
  if (!(o.z >= 0 && o.z <= 1e6)) fail(call.op, ": z must be from 0 to 1e6, found ", o.z);
  if (!(o.cap == 0 || (o.cap >= 1e-6 && o.cap <= 1e6))) {
    fail(call.op, ": cap must be 0, for none, or from 1e-6 to 1e6, found ", o.cap);
  }
  return o;
}

void check_class_piece(const OpCall& call, size_t operands) {
  bool fits = call.inputs.size() == operands && is_float(call.inputs[0].dtype) &&
              call.inputs[0].rank() > 0 && call.inputs[0].dim(-1) == call.integer("piece", 0) &&
              call.integer("classes", 0) > 0;
  if (fits) {
    Type targets = with_dtype(call.inputs[0], Dtype::kI32);
    targets.axes.back() = {"", 1};
    const Type& coordinate = call.inputs.back();
    fits = same_shape(call.inputs[1], targets) && call.inputs[1].dtype == Dtype::kI32 &&
           coordinate.rank() == 0 && coordinate.dtype == Dtype::kI32;
  }
  if (!fits) {
    fail(call.op, ": wants logits [..., piece], targets [..., 1] and the rank's coordinate");
  }
}

ClassPiece::ClassPiece(Body& body, const OpCall& call, Expr logits, Expr targets, Expr coordinate) {
  const double cap = cross_entropy_options(call).cap;
  const Expr id = index_along(body, 0) + coordinate * call.number("piece");
  is_class = less(id, constant(body, call.number("classes")));
  is_target = equal(id, targets);
  logit = cap > 0 ? tanh(logits * (1 / cap)) * cap : logits;
}

void drop_training_terms(Morphism& loss) {
  loss.attrs.erase("smoothing");
  loss.attrs.erase("z");
}

Value softmax_operand(Builder& b, const Morphism& loss) {
  const OpCall call{.op = op_named(loss.op).name, .inputs = {}, .attrs = loss.attrs};
  const double cap = cross_entropy_options(call).cap;
  if (cap == 0) return loss.inputs[0];
  const Source source = b.source();
  const auto at = [&](std::string_view part) -> Builder& {
    return b.at({source.path + std::string(part)}, b.phase(), b.role());
  };
  const Value small = at(".small").emit("scale", {loss.inputs[0]}, {{"by", 1 / cap}});
  const Value bent = at(".bent").emit("tanh", {small});
  return at("").emit("scale", {bent}, {{"by", cap}});
}

extern const OpDef op_cross_entropy = {
    .name = "cross_entropy",
    .summary =
        "(sum, count) of -log softmax(logits)[target] over rows whose target is not `ignore`",
    .params = {{"logits"},
               {"targets"},
               {"ignore", Param::Kind::kNumber, "-1"},
               {"smoothing", Param::Kind::kNumber, "0"},
               {"z", Param::Kind::kNumber, "0"},
               {"cap", Param::Kind::kNumber, "0"}},
    .surface = surface,
    .infer = infer,
    .index_map =
        [](const OpCall& call) {
          const std::string rows = std::string("abcdefgh").substr(0, call.inputs[1].rank());
          IndexMap map{{rows + "v", rows}, {"", "", rows}, "v"};
          map.told = 'v';
          map.told_joins = true;
          return map;
        },
    .flops =
        [](const OpCall& call) {
          const CrossEntropyOptions o = cross_entropy_options(call);
          const int64_t more = (o.smoothing > 0 ? 1 : 0) + (o.cap > 0 ? 3 : 0);
          return (4 + more) * call.inputs[0].num_elements();
        },
    .grad = grad,
    .output_names = {"count", "lse"},
    .wants_dense = true,
    .takes_padding = true,
    .in_pieces = in_pieces,
    .targets = 1,
    .loss = true,
    .counted_by = "count_targets",
    .loss_grad = "cross_entropy_grad",
    .loss_with_grad = "cross_entropy_with_grad",
    .samples =
        [] {
          const auto at = [](std::vector<int64_t> rows, int64_t classes, int64_t ignore,
                             Attrs options = {}) {
            Type targets = of(rows, Dtype::kI32), logits = of(rows);
            logits.axes.push_back({"v", classes});
            options["ignore"] = ignore;
            return Sample{.inputs = {logits, targets},
                          .attrs = std::move(options),
                          .fills = {Sample::Fill::kNormal, Sample::Fill::kIds},
                          .ids_below = classes,
                          .ignored_id = ignore};
          };
          return std::vector<Sample>{
              at({3}, 5, -1),
              at({2, 3}, 37, -100),
              at({97}, 2, 1),
              at({2, 3}, 37, -100, {{"smoothing", 0.125}}),
              at({7}, 5, -1, {{"z", 0.25}}),
              at({7}, 5, -1, {{"cap", 1.5}}),
              at({3, 5}, 37, 2, {{"smoothing", 0.25}, {"z", 0.125}, {"cap", 2.0}})};
        },
    .refused =
        [] {
          return std::vector<Sample>{{.inputs = {of({3, 5}), of({4}, Dtype::kI32)}},
                                     {.inputs = {of({3, 5}), of({3})}},
                                     {.inputs = {of({3, 5}, Dtype::kI32), of({3}, Dtype::kI32)}},
                                     with_option("smoothing", -0.1),
                                     with_option("smoothing", 1.0),
                                     with_option("z", -1e-4),
                                     with_option("z", NAN),
                                     with_option("cap", -30.0),
                                     with_option("cap", 1e-9)};
        },
};

}  // namespace adjoint
