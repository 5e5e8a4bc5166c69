// dlogits = dsum * (exp(logits - lse) - onehot(target)), 0 on ignored rows. With options the ones
// are smoothed, the first is times 1 + 2 z lse, and what is capped is times 1 - tanh^2. May take
// the logits' place.

#include "base/error.h"
#include "ops/builder.h"
#include "ops/cross_entropy.h"
#include "ops/pieces.h"
#include "ops/samples.h"

namespace adjoint {

namespace {

std::vector<Type> infer(const OpCall& call) {
  check_cross_entropy_operands(call);
  if (call.inputs.size() != 4) {
    fail("cross_entropy_grad: wants logits, targets, lse and the gradient of the sum, found ",
         call.inputs.size(), " operands");
  }
  const Type &logits = call.inputs[0], &lse = call.inputs[2], &dsum = call.inputs[3];
  const Dtype wide = logits.dtype == Dtype::kF64 ? Dtype::kF64 : Dtype::kF32;
  const Type wanted = with_dtype(call.inputs[1], wide);
  if (!same_shape(lse, wanted) || lse.dtype != wide) {
    fail("cross_entropy_grad: the log-sums of logits ", to_string(logits), " are ",
         to_string(wanted), ", found ", to_string(lse));
  }
  if (dsum.rank() != 0 || !is_float(dsum.dtype)) {
    fail("cross_entropy_grad: the gradient of the sum is one floating number, found ",
         to_string(dsum));
  }
  return {logits};
}

}  // namespace

extern const OpDef op_cross_entropy_grad = {
    .name = "cross_entropy_grad",
    .summary = "the gradient of cross_entropy's logits",
    .infer = infer,
    .index_map =
        [](const OpCall& call) {
          const std::string rows = std::string("abcdefgh").substr(0, call.inputs[1].rank());
          IndexMap map{{rows + "v", rows, rows, ""}, {rows + "v"}, "v"};
          map.told = 'v';
          return map;
        },
    .flops =
        [](const OpCall& call) {
          const CrossEntropyOptions o = cross_entropy_options(call);
          const int64_t more = (o.smoothing > 0 ? 1 : 0) + (o.cap > 0 ? 6 : 0);
          return (3 + more) * call.inputs[0].num_elements();
        },
    .differentiable = false,
    .wants_dense = true,
    .takes_padding = true,
    .may_overwrite = {{0, 0}},
    .in_pieces =
        [](PiecesCall& p) {
          Attrs attrs = p.call.attrs;
          attrs["classes"] = p.whole;
          attrs["piece"] = p.piece;
          attrs["ignore"] = ignored_target(p.call);
          return std::vector<Value>{
              p.builder.emit("loss_piece_grad",
                             {p.inputs[0], p.as_rows(p.inputs[1]), p.as_rows(p.inputs[2]),
                              p.inputs[3], p.coordinate},
                             attrs)};
        },
    .targets = 1,
    .samples =
        [] {
          const auto with = [](Attrs options) {
            options["ignore"] = int64_t{-1};
            return Sample{
                .inputs = {of({3, 5}), of({3}, Dtype::kI32), of({3}), of({})},
                .attrs = std::move(options),
                .fills = {Sample::Fill::kNormal, Sample::Fill::kIds, Sample::Fill::kPositive},
                .ids_below = 5};
          };
          return std::vector<Sample>{with({}), with({{"smoothing", 0.25}}), with({{"z", 0.125}}),
                                     with({{"cap", 2.0}}),
                                     with({{"smoothing", 0.25}, {"z", 0.125}, {"cap", 2.0}})};
        },
    .refused =
        [] {
          const Type targets = of({3}, Dtype::kI32);
          return std::vector<Sample>{
              {.inputs = {of({3, 5}), of({4}, Dtype::kI32), of({3}), of({})}},
              {.inputs = {of({3, 5}), targets, of({3})}},
              {.inputs = {of({3, 5}), targets, of({2}), of({})}},
              {.inputs = {of({3, 5}), targets, of({3}, Dtype::kBF16), of({})}},
              {.inputs = {of({3, 5}, Dtype::kBF16), targets, of({3}, Dtype::kBF16), of({})}},
              {.inputs = {of({3, 5}), targets, of({3}), of({}, Dtype::kI32)}},
              {.inputs = {of({3, 5}), targets, of({3}), of({3})}},
              {.inputs = {of({3, 5}), targets, of({3}), of({})}, .attrs = {{"smoothing", 1.5}}}};
        },
};

}  // namespace adjoint
