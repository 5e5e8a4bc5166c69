// Arguments for a body's generated code: pointers to the first row of a run, and the steps between
// rows. Rows of a run differ only in their position along one axis, so no division is needed, and
// one call does the whole run if the interpreter is not involved.
#include "base/philox.h"
#include "kernels/cpu/body_program.h"
#include "scheme/elements.h"

namespace adjoint {

void BodyProgram::prepare_code() {
  if (!shares_whole_rows()) return;
  code = generate_tile(layout, in_types, out_types);
  if (!code) return;
  const TileArgs args = tile_args(layout);
  for (size_t i = 0; i < layout.body.nodes.size(); ++i) {
    const int node = static_cast<int>(i);
    const int slot = layout.tile.slot[i], out = layout.tile.kept_in[i];
    if (slot >= 0) readable.emplace_back(node, args.slot(slot));
    if (out >= 0) readable.emplace_back(node, args.output(out));
    if (layout.tile.maker[i] == Maker::kLoaded) {
      readable.emplace_back(node, layout.body.nodes[i].index);
    }
  }
}

int64_t BodyProgram::run_of_rows(int64_t row, int64_t end) const {
  if (!code || !layout.tile.all_generated || layout.dims.size() < 2) return 1;
  const int64_t inner = layout.dims[layout.dims.size() - 2];
  return layout.dims.size() == 2 ? end - row : std::min(end - row, inner - row % inner);
}

template <class T>
static T& field(std::byte* args, int64_t offset) {
  return *reinterpret_cast<T*>(args + offset);
}

void BodyProgram::begin_code(const Registers& r) const {
  if (!code) return;
  const TileArgs args = tile_args(layout);
  const auto bytes_of_step = [&](const Strides& strides, Dtype dtype) {
    const size_t rank = strides.size();
    return rank < 2 ? 0 : strides[rank - 2] * size_of(dtype).count;
  };
  field<const void*>(r.args, TileArgs::kConstants) = code->constants;
  for (size_t i = 0; i < layout.in.size(); ++i) {
    field<int64_t>(r.args, args.step(i)) = bytes_of_step(layout.in[i], in_types[i].dtype);
  }
  for (size_t k = 0; k < layout.out.size(); ++k) {
    const int64_t sums = layout.sum_size[k];
    field<int64_t>(r.args, args.step(args.output(k))) =
        sums == 0              ? bytes_of_step(layout.out[k], out_types[k].dtype)
        : sums == layout.row() ? 0
                               : layout.row() * static_cast<int64_t>(sizeof(float));
  }
  for (int i = 0; i < layout.tile.num_slots; ++i) {
    field<float*>(r.args, args.stream(args.slot(i))) = r.slot(i);
    field<int64_t>(r.args, args.step(args.slot(i))) = 0;
  }
  for (size_t i = 0; i < layout.body.nodes.size(); ++i) {
    const ExprNode& n = layout.body.nodes[i];
    if (n.kind == ExprKind::kConst) r.scalars[i] = static_cast<float>(n.value);
  }
}

void BodyProgram::run_code(const Registers& r, const Piece& piece) const {
  const TileArgs args = tile_args(layout);
  const auto place = [&](const void* data, Dtype dtype, const Strides& strides) {
    const int64_t offset =
        row_offset(layout.dims, strides, piece.row) + piece.first * strides.back();
    return static_cast<const std::byte*>(data) + offset * size_of(dtype).count;
  };
  field<int64_t>(r.args, TileArgs::kElements) = piece.n;
  field<int64_t>(r.args, TileArgs::kRows) = piece.count;
  for (size_t i = 0; i < layout.in.size(); ++i) {
    field<const void*>(r.args, args.stream(i)) = place(at.in[i], in_types[i].dtype, layout.in[i]);
  }
  float* sums = piece.sums;
  for (size_t k = 0; k < layout.out.size(); ++k) {
    auto& stream = field<const void*>(r.args, args.stream(args.output(k)));
    if (layout.sum_size[k] == 0) {
      stream = place(at.out[k], out_types[k].dtype, layout.out[k]);
      continue;
    }
    stream = sums + piece.at_suffix % layout.sum_size[k];
    sums += piece.compact_sums ? kPiece : layout.sum_size[k];
  }
  if (layout.tile.all_generated) {
    code->functions[0](r.args);
    return;
  }
  for (const auto& [node, stream] : readable) {
    r.rows[node] = field<const float*>(r.args, args.stream(stream));
  }
  size_t group = 0;
  for (size_t s = 0; s < layout.tile.segments.size(); ++s) {
    const Segment& segment = layout.tile.segments[s];
    for (const int i : segment.calls) {
      const int slot = layout.tile.slot[i];
      make(r, i, slot >= 0 ? r.slot(slot) : nullptr, piece.row, piece.first, piece.n);
    }
    if (s == 0 || !segment.calls.empty()) code->functions[group++](r.args);
  }
  store(r, piece.row, piece.first, piece.n, piece.sums, piece.at_suffix, piece.compact_sums);
}

void BodyProgram::run_piece(const Registers& r, const Piece& piece) const {
  if (code) return run_code(r, piece);
  evaluate(r, piece.row, piece.first, piece.n);
  store(r, piece.row, piece.first, piece.n, piece.sums, piece.at_suffix, piece.compact_sums);
}

}  // namespace adjoint
