#include "ops/pieces.h"

namespace adjoint {

namespace {

// The place of an id in the piece, and whether it is there.
std::pair<Expr, Expr> place_of(Body& body, int ids, int coordinate, int64_t piece) {
  const auto size = static_cast<double>(piece);
  const Expr place = input(body, ids) - input(body, coordinate) * size;
  return {place, less(constant(body, -1), place) * less(place, constant(body, size))};
}

}  // namespace

Value PiecesCall::ids_in_piece(Value ids) const {
  Body body;
  const auto [place, is_there] = place_of(body, 0, 1, piece);
  body.outputs = {{.node = select(is_there, place, 0).node, .dtype = Dtype::kI32}};
  return builder.emit("map", {ids, coordinate}, {{"body", print(body)}});
}

Value PiecesCall::zero_elsewhere(Value rows, Value ids) const {
  Body body;
  const Expr row = input(body, 0);
  const Expr is_there = place_of(body, 1, 2, piece).second;
  body.outputs = {{.node = select(is_there, row, 0).node}};
  return builder.emit("map", {rows, as_rows(ids), coordinate}, {{"body", print(body)}});
}

}  // namespace adjoint
