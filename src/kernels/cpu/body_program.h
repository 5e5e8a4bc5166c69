// A body as the CPU runs it: its layout, its operands' places and, where there is one, its
// generated code. The interpreter (body_interpret.cpp) makes what the code does not.
#pragma once
#include <memory>

#include "kernels/cpu/jit/body_jit.h"

namespace adjoint {

struct BodyProgram {
  Layout layout;
  std::vector<Type> in_types, out_types;
  Pointers at;
  std::vector<int> direct;               // per node: the output that it writes straight into, or -1
  mutable std::vector<uint64_t> keys;    // per node that is random, of this launch
  std::shared_ptr<const TileCode> code;  // or nullptr: the interpreter does all
  std::vector<std::pair<int, int>> readable;  // nodes that the interpreter reads, and their streams

  // One thread's part of the workspace.
  struct Registers {
    std::byte* args;  // of generated code
    float* scalars;
    const float** rows;
    float* slots;
    float* columns;
    double* totals;
    int64_t slot_floats;
    float* slot(int i) const { return slots + i * slot_floats; }
  };
  Registers registers(int thread) const;
  Registers registers_at(std::byte* base) const;
  std::byte* partials() const { return static_cast<std::byte*>(at.workspace); }

  // Offset of operand or output `strides` at row `row`.
  static int64_t row_offset(const std::vector<int64_t>& dims, const Strides& strides, int64_t row) {
    int64_t offset = 0;
    for (size_t a = dims.size() - 1; a-- > 1;) {
      offset += (row % dims[a]) * strides[a];
      row /= dims[a];
    }
    return dims.size() > 1 ? offset + row * strides[0] : offset;
  }
  int64_t position(int64_t row, int axis_from_end) const {
    for (int back = 1; back < axis_from_end; ++back) {
      row /= layout.dims[layout.dims.size() - 1 - back];
    }
    return row % layout.dims[layout.dims.size() - 1 - axis_from_end];
  }

  void find_direct();
  bool shares_whole_rows() const;
  // All nodes, or one of them, on elements [first, first + n) of a row.
  void evaluate(const Registers& r, int64_t row, int64_t first, int64_t n) const;
  void make(const Registers& r, size_t i, float* y, int64_t row, int64_t first, int64_t n) const;
  void reduce(const Registers& r, size_t i, const ExprNode& node, int64_t n) const;
  void select_rows(const Registers& r, size_t i, const ExprNode& node, float* y, int64_t n) const;
  float* filled(const Registers& r, int spare, float value, int64_t n) const;
  void arithmetic(const Registers& r, size_t i, const ExprNode& node, float* y, int64_t n) const;
  // `sums` holds the sums of all summing outputs for the suffix that this row is part of, each
  // beginning at its own base; `at_suffix` is this piece's place in the suffix. An output that sums
  // more axes has a shorter suffix, which repeats in the longest one.
  void store(const Registers& r, int64_t row, int64_t first, int64_t n, float* sums,
             int64_t at_suffix, bool compact_sums) const;

  // The same by generated code, on `count` rows of one run (see run_of_rows).
  struct Piece {
    int64_t row, count, first, n;
    float* sums = nullptr;
    int64_t at_suffix = 0;
    bool compact_sums = false;
  };
  void prepare_code();
  int64_t run_of_rows(int64_t row, int64_t end) const;
  // Nothing is kept between loops, so that a piece may be as long as a row.
  bool any_length() const {
    return code && layout.tile.all_generated && layout.tile.num_slots == 0;
  }
  void begin_code(const Registers& r) const;
  void run_code(const Registers& r, const Piece& piece) const;
  void run_piece(const Registers& r, const Piece& piece) const;

  // A body that sums nothing, in units: pieces of rows, in order.
  int64_t pieces_of_row() const { return (layout.row() + layout.piece - 1) / layout.piece; }
  int64_t num_units() const { return layout.rows * pieces_of_row(); }
  void run_units(const Registers& r, int64_t begin, int64_t end) const;

  void run() const;
  void run_by_block() const;
  void run_by_column() const;
};

}  // namespace adjoint
