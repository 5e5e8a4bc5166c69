// dtable[r, :] = sum of dy over the places whose id is r. Threads share out the columns, so no two
// write one element, no atomics are needed, and the order of every sum is that of the data. Shares
// of rows would be uneven: a tokenizer gives its first ids to what is frequent. A third operand of
// the result's type is added to the sums, and may be overwritten by them: rows without a place then
// stay as they lie.

#include "base/error.h"
#include "ops/pieces.h"
#include "ops/samples.h"

namespace adjoint {

namespace {

std::vector<Type> infer(const OpCall& call) {
  if (call.inputs.size() != 2 && call.inputs.size() != 3) {
    fail("embed_grad: wants ids, the gradient of the rows, and maybe an addend");
  }
  const Type &ids = call.inputs[0], &dy = call.inputs[1];
  bool fits = ids.dtype == Dtype::kI32 && is_float(dy.dtype) && dy.rank() == ids.rank() + 1;
  for (int i = 0; fits && i < ids.rank(); ++i) fits = ids.dim(i) == dy.dim(i);
  if (!fits) {
    fail("embed_grad: ids ", to_string(ids), " do not fit rows ", to_string(dy),
         ": one i32 id for each row of floating numbers is wanted");
  }
  const auto dtype = dtype_named(call.text("dtype", name(dy.dtype)));
  // Sums are float64 where all is, so a kernel is all float64 or not at all.
  if (!dtype || !is_float(*dtype) || (*dtype == Dtype::kF64) != (dy.dtype == Dtype::kF64)) {
    fail("embed_grad: rows of ", name(dy.dtype), " are not summed to '",
         call.text("dtype", name(dy.dtype)), "'");
  }
  const Type out{*dtype, {{"rows", call.integer("rows")}, dy.axes.back()}};
  if (call.inputs.size() == 3 &&
      (!same_shape(call.inputs[2], out) || call.inputs[2].dtype != out.dtype)) {
    fail("embed_grad: the addend must be ", to_string(out), " as the result is, found ",
         to_string(call.inputs[2]));
  }
  return {out};
}

}  // namespace

extern const OpDef op_embed_grad = {
    .name = "embed_grad",
    .summary = "sums of rows by their ids: the gradient of embed's table",
    .infer = infer,
    .index_map =
        [](const OpCall& call) {
          const std::string ids = std::string("abcdefgh").substr(0, call.inputs[0].rank());
          IndexMap map{{ids, ids + "w"}, {".w"}};
          map.told = '.';
          if (call.inputs.size() < 3) return map;
          map.inputs.emplace_back(".w");
          map.whole = ids;  // the addend is added once
          return map;
        },
    .flops = [](const OpCall& call) { return call.inputs[1].num_elements(); },
    .grad =
        [](GradCall& g) {
          if (g.wants[1]) g.input_grads[1] = g.builder.emit("embed", {g.inputs[0], g.dout()});
          if (g.inputs.size() > 2 && g.wants[2]) g.input_grads[2] = g.dout();
        },
    .says_dtype = true,
    .wants_dense = true,
    .takes_padding = true,
    .may_overwrite = {{0, 2}},
    .in_pieces =
        [](PiecesCall& p) {
          std::vector<Value> operands = {p.ids_in_piece(p.inputs[0]),
                                         p.zero_elsewhere(p.inputs[1], p.inputs[0])};
          if (p.inputs.size() > 2) operands.push_back(p.inputs[2]);
          Attrs attrs = p.call.attrs;
          attrs["rows"] = p.piece;
          return p.builder.emit_all("embed_grad", operands, attrs);
        },
    .linear =
        [](const OpCall& call) { return call.inputs.size() == 2 ? Linear::kEach : Linear::kNo; },
    .addend = 2,
    .samples =
        [] {
          return std::vector<Sample>{
              {.inputs = {of({2, 3}, Dtype::kI32), of({2, 3, 5})},
               .attrs = {{"rows", int64_t{4}}},
               .fills = {Sample::Fill::kIds}},
              {.inputs = {of({97}, Dtype::kI32), of({97, 3})},
               .attrs = {{"rows", int64_t{40}}},
               .fills = {Sample::Fill::kIds},
               .ids_below = 40},
              {.inputs = {of({700}, Dtype::kI32), of({700, 2})},  // long sums of one row
               .attrs = {{"rows", int64_t{2}}},
               .fills = {Sample::Fill::kIds, Sample::Fill::kOne},
               .ids_below = 2},
              {.inputs = {of({23}, Dtype::kI32), of({23, 40})},  // columns for three threads
               .attrs = {{"rows", int64_t{7}}},
               .fills = {Sample::Fill::kIds},
               .ids_below = 7},
              {.inputs = {of({31}, Dtype::kI32), of({31, 3}, Dtype::kBF16)},  // a wide table's
               .attrs = {{"rows", int64_t{4}}, {"dtype", std::string("f32")}},
               .fills = {Sample::Fill::kIds}},
              {.inputs = {of({300}, Dtype::kI32), of({300, 8}), of({9, 8})},
               .attrs = {{"rows", int64_t{9}}},
               .fills = {Sample::Fill::kIds},
               .ids_below = 5}};  // rows that nothing is added to
        },
    .refused =
        [] {
          return std::vector<Sample>{
              {.inputs = {of({2, 3}, Dtype::kI32), of({2, 3})}, .attrs = {{"rows", int64_t{4}}}},
              {.inputs = {of({2}, Dtype::kI32), of({2, 3}), of({5, 3})},
               .attrs = {{"rows", int64_t{4}}}},
              {.inputs = {of({2}, Dtype::kI32), of({3, 3})}, .attrs = {{"rows", int64_t{4}}}},
              {.inputs = {of({2}, Dtype::kI32), of({2, 3}, Dtype::kI32)},
               .attrs = {{"rows", int64_t{4}}}},
              {.inputs = {of({2}, Dtype::kI32), of({2, 3})},
               .attrs = {{"rows", int64_t{4}}, {"dtype", std::string("i32")}}},
              {.inputs = {of({2}, Dtype::kI32), of({2, 3}), of({4, 3}, Dtype::kBF16)},
               .attrs = {{"rows", int64_t{4}}}}};
        },
};

}  // namespace adjoint
