// y[..., :] = table[ids[...], :]. Ids outside the table read as its last row: what the data holds
// is checked when it is loaded, and a kernel has no way to complain.

#include "base/error.h"
#include "ops/pieces.h"
#include "ops/samples.h"
#include "ops/surface.h"

namespace adjoint {

namespace {

// embed(position, context) means positions 0, 1, ... along the sequence.
std::vector<Value> surface(SurfaceCall& call) {
  const Value ids = call.tensor("ids");
  const Axis rows = call.axis("rows"), width = call.axis("width");
  const Type& type = call.builder.type(ids);
  if (call.builder.scheme()[ids].source.path == "position" && type.dim(0) > rows.size) {
    fail("embed: ", type.dim(0), " positions do not fit a table of ", rows.name, "=", rows.size);
  }
  const Value table = call.parameter("weight", {rows, width}, call.init("init"));
  return call.builder.emit_all("embed", {ids, table});
}

std::vector<Type> infer(const OpCall& call) {
  if (call.inputs.size() != 2) fail("embed: wants ids and a table");
  const Type &ids = call.inputs[0], &table = call.inputs[1];
  if (ids.dtype != Dtype::kI32) fail("embed: ids must be i32, found ", to_string(ids));
  if (table.rank() != 2) fail("embed: the table must have two axes, found ", shape_string(table));
  Type y{.dtype = table.dtype, .axes = ids.axes};
  y.axes.push_back(table.axes[1]);
  return {y};
}

}  // namespace

extern const OpDef op_embed = {
    .name = "embed",
    .summary = "rows of a table, by their ids",
    .params = {{"ids"},
               {"rows", Param::Kind::kSize},
               {"width", Param::Kind::kSize, "hidden"},
               {"init", Param::Kind::kInit, "normal(0.02)"}},
    .surface = surface,
    .infer = infer,
    .index_map =
        [](const OpCall& call) {
          const std::string ids = std::string("abcdefgh").substr(0, call.inputs[0].rank());
          IndexMap map{{ids, ".w"}, {ids + "w"}};
          map.told = '.';
          return map;
        },
    .flops = [](const OpCall&) { return int64_t{0}; },
    .grad =
        [](GradCall& g) {
          if (!g.wants[1]) return;
          g.input_grads[1] = g.builder.emit("embed_grad", {g.inputs[0], g.dout()},
                                            {{"rows", g.call.inputs[1].dim(0)}});
        },
    .wants_dense = true,
    .takes_padding = true,
    .in_pieces =
        [](PiecesCall& p) {
          const Value rows = p.builder.emit("embed", {p.ids_in_piece(p.inputs[0]), p.inputs[1]});
          return std::vector<Value>{p.zero_elsewhere(rows, p.inputs[0])};
        },
    .table = 1,
    .samples =
        [] {
          return std::vector<Sample>{
              {.inputs = {of({2, 3}, Dtype::kI32), of({4, 5})}, .fills = {Sample::Fill::kIds}},
              {.inputs = {of({7}, Dtype::kI32), of({3, 1})},
               .fills = {Sample::Fill::kIds},
               .ids_below = 3}};
        },
    .refused =
        [] {
          return std::vector<Sample>{{.inputs = {of({2, 3}), of({4, 5})}},
                                     {.inputs = {of({2, 3}, Dtype::kI32), of({4})}}};
        },
};

}  // namespace adjoint
