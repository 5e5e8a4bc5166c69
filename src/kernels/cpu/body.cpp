// How the CPU runs a body: on one piece of a row at a time, as generated code (body_jit.h) or by
// the interpreter (body_interpret.cpp: one vectorized loop per node, values in the first-level
// cache). Only operands and results touch memory. Every node rounds to float32, so a chain gives
// the same bits whether it runs as one program or as several.
//
// A piece is a whole row where the body reduces rows, else at most kPiece elements. Axes that every
// operand steps through evenly are merged first, so plain elementwise bodies see one long row.
//
// Sums over leading axes: rows are cut into a number of blocks that depends on the shape alone,
// each block has its own partial sums in the workspace, and the partial sums are added in order:
// the same bits for any number of threads. Nothing of this depends on what else the body computes,
// nor does the order of a row's sum: a body gives the same bits alone and joined to others.
#include <memory>

#include "base/philox.h"
#include "device/parallel.h"
#include "kernels/body_readings.h"
#include "kernels/cpu/body_loops.h"
#include "kernels/cpu/body_program.h"
#include "scheme/elements.h"

namespace adjoint {

BodyProgram::Registers BodyProgram::registers(int thread) const {
  return registers_at(partials() + round_up(layout.block_bytes(), {64}).count +
                      thread * layout.thread_bytes().count);
}

BodyProgram::Registers BodyProgram::registers_at(std::byte* base) const {
  const int64_t nodes = static_cast<int64_t>(layout.body.nodes.size());
  Registers r;
  r.args = base;
  base += round_up({tile_args(layout).bytes()}, {64}).count;
  r.rows = reinterpret_cast<const float**>(base);
  r.scalars = reinterpret_cast<float*>(r.args + tile_args(layout).scalar(0));
  r.slots = reinterpret_cast<float*>(base + round_up({nodes * 8}, {64}).count);
  r.slot_floats = round_up({layout.piece * 4}, {64}).count / 4;
  r.columns = r.slots + layout.num_slots * r.slot_floats;
  r.totals = reinterpret_cast<double*>(r.columns + layout.num_summed() * kPiece);
  begin_code(r);
  return r;
}

void BodyProgram::run() const {
  for (size_t i = 0; i < layout.body.nodes.size(); ++i) {
    const ExprNode& node = layout.body.nodes[i];
    if (node.kind != ExprKind::kRandom) continue;
    keys[i] = random_key(*static_cast<const int64_t*>(at.in[node.index]), node.text);
  }
  if (layout.by_column) {
    run_by_column();
  } else if (layout.sums) {
    run_by_block();
  } else {
    const int64_t grain = std::max<int64_t>(1, kWorthAThread / layout.piece);
    parallel_for(num_units(), grain, [&](int64_t begin, int64_t end, int thread) {
      run_units(registers(thread), begin, end);
    });
  }
}

void BodyProgram::run_units(const Registers& r, int64_t begin, int64_t end) const {
  const int64_t pieces = pieces_of_row();
  for (int64_t unit = begin, units = 1; unit < end; unit += units) {
    const int64_t row = unit / pieces, first = unit % pieces * layout.piece;
    if (pieces == 1) units = run_of_rows(row, end);
    if (pieces > 1 && any_length()) units = std::min(end - unit, pieces - unit % pieces);
    const int64_t n = std::min((pieces > 1 ? units : 1) * layout.piece, layout.row() - first);
    const int64_t count = pieces == 1 ? units : 1;
    run_piece(r, {.row = row, .count = count, .first = first, .n = n});
  }
}

void BodyProgram::run_by_block() const {
  const int64_t suffix_rows = layout.rows / layout.summed_rows;
  const int64_t total = layout.total_sums();
  const int64_t piece = any_length() ? layout.row() : layout.piece;
  const int64_t block_elements = layout.rows * layout.row() / layout.blocks;
  const int64_t grain = std::max<int64_t>(1, kWorthAThread / std::max<int64_t>(block_elements, 1));
  auto* partial = reinterpret_cast<float*>(partials());
  parallel_for(layout.blocks, grain, [&](int64_t begin, int64_t end, int thread) {
    const Registers r = registers(thread);
    for (int64_t block = begin; block < end; ++block) {
      float* sums = partial + block * total;
      std::fill(sums, sums + total, 0.0f);
      const int64_t from = layout.summed_rows * block / layout.blocks * suffix_rows;
      const int64_t to = layout.summed_rows * (block + 1) / layout.blocks * suffix_rows;
      for (int64_t row = from, count = 1; row < to; row += count) {
        if (piece == layout.row()) count = run_of_rows(row, to);
        for (int64_t first = 0; first < layout.row(); first += piece) {
          const int64_t n = std::min(piece, layout.row() - first);
          run_piece(r, {.row = row,
                        .count = count,
                        .first = first,
                        .n = n,
                        .sums = sums,
                        .at_suffix = row % suffix_rows * layout.row() + first});
        }
      }
    }
  });
  int64_t base = 0;
  for (size_t k = 0; k < layout.sum_size.size(); ++k) {
    const int64_t size = layout.sum_size[k];
    const bool whole = layout.body.outputs[k].row == BodyOutput::Row::kWhole;
    const int64_t row = whole ? layout.row() : 1;
    parallel_for(size, 4096, [&](int64_t begin, int64_t end, int) {
      constexpr int64_t kColumns = 512;
      double sums[kColumns];
      for (int64_t from = begin; from < end; from += kColumns) {
        const int64_t count = std::min(kColumns, end - from);
        std::fill(sums, sums + count, 0.0);
        for (int64_t block = 0; block < layout.blocks; ++block) {
          accumulate(sums, partial + block * total + base + from, count);
        }
        for (int64_t i = 0; i < count; ++i) {
          const int64_t c = from + i;
          const int64_t offset = row_offset(layout.dims, layout.out[k], row == 1 ? c : c / row) +
                                 c % row * layout.out[k].back();
          store_element(at.out[k], out_types[k].dtype, offset, sums[i]);
        }
      }
    });
    base += size;
  }
}

// Blocks as in run_by_block, one after another, with the same order of sums.
void BodyProgram::run_by_column() const {
  const int64_t suffix_rows = layout.rows / layout.summed_rows;
  const int64_t pieces = (layout.row() + layout.piece - 1) / layout.piece;
  const int64_t sums = layout.num_summed() * kPiece;
  parallel_for(suffix_rows * pieces, 1, [&](int64_t begin, int64_t end, int thread) {
    const Registers r = registers(thread);
    for (int64_t unit = begin; unit < end; ++unit) {
      const int64_t suffix_row = unit / pieces, first = unit % pieces * layout.piece;
      const int64_t n = std::min(layout.piece, layout.row() - first);
      std::fill(r.totals, r.totals + sums, 0.0);
      for (int64_t block = 0; block < layout.blocks; ++block) {
        std::fill(r.columns, r.columns + sums, 0.0f);
        const int64_t to = layout.summed_rows * (block + 1) / layout.blocks;
        for (int64_t lead = layout.summed_rows * block / layout.blocks; lead < to; ++lead) {
          const int64_t row = lead * suffix_rows + suffix_row;
          run_piece(r, {.row = row,
                        .count = 1,
                        .first = first,
                        .n = n,
                        .sums = r.columns,
                        .compact_sums = true});
        }
        accumulate(r.totals, r.columns, sums);
      }
      for (int64_t c = 0; c < sums; ++c) r.columns[c] = static_cast<float>(r.totals[c]);
      const float* from = r.columns;
      for (size_t k = 0; k < layout.sum_size.size(); ++k) {
        if (layout.sum_size[k] == 0) continue;
        const int64_t offset =
            row_offset(layout.dims, layout.out[k], suffix_row) + first * layout.out[k].back();
        scatter_any(at.out[k], out_types[k].dtype, from, offset, layout.out[k].back(), n);
        from += kPiece;
      }
    }
  });
}

Bytes body_workspace(const KernelCall& call) {
  const Layout layout = lay_out(call);
  return round_up(layout.block_bytes(), {64}) + int64_t{call.threads} * layout.thread_bytes();
}

namespace {
std::shared_ptr<BodyProgram> prepare_program(const KernelCall& call, const Pointers& at) {
  auto program = std::make_shared<BodyProgram>();
  program->layout = lay_out(call);
  program->in_types = call.call.inputs;
  program->out_types = call.outputs;
  program->at = at;
  program->keys.resize(program->layout.body.nodes.size());
  program->find_direct();
  program->prepare_code();
  return program;
}
}  // namespace

Launch prepare_body_cpu(const KernelCall& call, const Pointers& at) {
  return [program = prepare_program(call, at)] { program->run(); };
}

Bytes body_unit_registers(const KernelCall& call) { return lay_out(call).thread_bytes(); }

BodyUnits prepare_body_units(const KernelCall& call, const Pointers& at) {
  const auto program = prepare_program(call, at);
  CHECK(!program->layout.sums, "a body in units sums nothing");
  return {.count = program->num_units(),
          .elements = program->layout.piece,
          .run = [program](int64_t begin, int64_t end, std::byte* registers) {
            program->run_units(program->registers_at(registers), begin, end);
          }};
}

}  // namespace adjoint
