#include "kernels/body_layout.h"

#include <algorithm>

#include "body/facts.h"
#include "kernels/body_readings.h"
#include "kernels/cpu/jit/body_jit.h"

namespace adjoint {

namespace {

// Shorter pieces where many values live at once, so that they stay in the first-level cache.
int64_t piece_for(int num_slots) {
  int64_t piece = kPiece;
  while (piece > 256 && piece * num_slots > 12 * kPiece) piece /= 2;
  return piece;
}

}  // namespace

static void merge_axes(BodySpace& layout) {
  const bool one_a_row =
      std::any_of(layout.body.outputs.begin(), layout.body.outputs.end(),
                  [](const BodyOutput& out) { return out.row == BodyOutput::Row::kOne; });
  const bool keep_row = layout.body.needs_whole_rows() || one_a_row;
  for (size_t a = layout.dims.size() - 1; a-- > 0;) {
    const size_t b = a + 1;
    const bool edge = std::count(layout.leads.begin(), layout.leads.end(), b) > 0;
    if (edge || (keep_row && b + 1 == layout.dims.size())) continue;
    const bool one_a = layout.dims[a] == 1, one_b = layout.dims[b] == 1;
    const auto even = [&](const Strides& s) {
      return one_a || one_b || s[a] == s[b] * layout.dims[b];
    };
    if (!std::all_of(layout.in.begin(), layout.in.end(), even) ||
        !std::all_of(layout.out.begin(), layout.out.end(), even)) {
      continue;
    }
    layout.dims[b] *= layout.dims[a];
    layout.dims.erase(layout.dims.begin() + a);
    for (auto* all : {&layout.in, &layout.out}) {
      for (Strides& s : *all) {
        if (one_b) s[b] = s[a];
        s.erase(s.begin() + a);
      }
    }
    for (size_t& lead : layout.leads) lead -= a < lead;
  }
}

// Registers are assigned by last use; an elementwise instruction may overwrite an operand that it
// reads last.
static void assign_slots(Layout& layout, const std::vector<Type>& in_types) {
  const Body& body = layout.body;
  std::vector<int> last(body.nodes.size(), -1);
  for (size_t i = 0; i < body.nodes.size(); ++i) {
    for (int a = 0; a < facts(body.nodes[i].kind).arity; ++a) {
      last[body.nodes[i].args[a]] = static_cast<int>(i);
    }
  }
  const int end = static_cast<int>(body.nodes.size());
  for (const BodyOutput& out : body.outputs) last[out.node] = end;
  std::vector<int> free_slots;
  layout.slot.assign(body.nodes.size(), -1);
  const auto take = [&] {
    if (free_slots.empty()) return layout.num_slots++;
    const int slot = free_slots.back();
    free_slots.pop_back();
    return slot;
  };
  for (size_t i = 0; i < body.nodes.size(); ++i) {
    const ExprNode& n = body.nodes[i];
    const auto free_operands = [&] {
      for (int a = 0; a < facts(n.kind).arity; ++a) {
        const int arg = n.args[a];
        const bool again = a > 0 && (arg == n.args[0] || (a > 1 && arg == n.args[1]));
        if (!again && last[arg] == static_cast<int>(i) && layout.slot[arg] >= 0) {
          free_slots.push_back(layout.slot[arg]);
        }
      }
    };
    const bool in_place = n.kind != ExprKind::kRotate && n.kind != ExprKind::kSelect;
    if (in_place) free_operands();
    if (layout.varies[i] && n.kind != ExprKind::kConst) {
      // An operand is read in place, except where it is one of several results: an earlier result
      // may have overwritten it by then.
      const bool direct = n.kind == ExprKind::kInput && layout.in[n.index].back() == 1 &&
                          in_types[n.index].dtype == Dtype::kF32 &&
                          (last[i] < end || body.outputs.size() == 1);
      if (!direct) layout.slot[i] = take();
    }
    if (!in_place) free_operands();
    if (last[i] < 0 && layout.slot[i] >= 0) free_slots.push_back(layout.slot[i]);
  }
}

// Elements of the axes from `leads` on.
static int64_t suffix_of(const BodySpace& space, size_t leads) {
  int64_t suffix = 1;
  for (size_t a = leads; a < space.dims.size(); ++a) suffix *= space.dims[a];
  return suffix;
}

BodySpace space_layout(const KernelCall& call) {
  BodySpace layout;
  layout.body = body_of(call.call);
  const std::vector<Axis> space = space_of(call.call);
  for (const Axis& axis : space) layout.dims.push_back(axis.size);
  for (size_t a = 1; a < space.size(); ++a) layout.sample *= space[a].size;
  for (size_t i = 0; i < call.call.inputs.size(); ++i) {
    layout.in.push_back(stretch(call.in_strides[i], call.call.inputs[i], space));
  }
  for (size_t k = 0; k < call.outputs.size(); ++k) {
    layout.out.push_back(stretch_output(call.out_strides[k], layout.body.outputs[k], space.size()));
  }
  if (space.empty()) {
    layout.dims = {1};
    for (auto* all : {&layout.in, &layout.out}) {
      for (Strides& s : *all) s = {0};
    }
  }
  // The random counter is no part of the iteration space.
  for (const ExprNode& n : layout.body.nodes) {
    if (n.kind == ExprKind::kRandom) layout.in[n.index].assign(layout.dims.size(), 0);
  }
  for (const BodyOutput& out : layout.body.outputs) {
    const bool dropped = out.row == BodyOutput::Row::kDropped;
    layout.leads.push_back(dropped ? layout.dims.size() - 1 : out.summed_axes);
  }
  if (!layout.body.uses_index() && layout.dims.size() > 1) merge_axes(layout);
  for (size_t k = 0; k < layout.body.outputs.size(); ++k) {
    const BodyOutput& out = layout.body.outputs[k];
    if (!is_sum(out)) continue;
    layout.alike = layout.alike && out.row == BodyOutput::Row::kWhole &&
                   (!layout.sums || layout.leads[k] == layout.leading);
    layout.leading = layout.sums ? std::min(layout.leading, layout.leads[k]) : layout.leads[k];
    layout.sums = true;
  }

  for (size_t a = 0; a + 1 < layout.dims.size(); ++a) layout.rows *= layout.dims[a];
  for (size_t a = 0; a < layout.leading; ++a) layout.summed_rows *= layout.dims[a];
  for (size_t k = 0; k < layout.body.outputs.size(); ++k) {
    const BodyOutput& out = layout.body.outputs[k];
    const bool dropped = out.row == BodyOutput::Row::kDropped;
    const int64_t suffix = suffix_of(layout, layout.leads[k]);
    const bool one = out.row == BodyOutput::Row::kOne;
    layout.sum_size.push_back(!is_sum(out) ? 0
                              : dropped    ? 1
                              : one        ? suffix / layout.row()
                                           : suffix);
  }
  for (const ExprNode& n : layout.body.nodes) {
    bool varies = false;
    switch (n.kind) {
      case ExprKind::kInput:
        varies = layout.in[n.index].back() != 0;
        break;
      case ExprKind::kIndex:
        varies = n.index == 0;
        break;
      case ExprKind::kRandom:
      case ExprKind::kRotate:
        varies = true;
        break;
      case ExprKind::kRowSum:
      case ExprKind::kRowMax:
        break;
      default:
        for (int a = 0; a < facts(n.kind).arity; ++a) varies = varies || layout.varies[n.args[a]];
    }
    layout.varies.push_back(varies);
  }
  return layout;
}

Layout lay_out(const KernelCall& call) {
  Layout layout;
  static_cast<BodySpace&>(layout) = space_layout(call);
  const bool whole = layout.body.needs_whole_rows();
  layout.by_column =
      layout.sums && layout.alike && !whole && suffix_of(layout, layout.leading) >= kWideSuffix;
  layout.blocks = layout.sums ? std::min(layout.summed_rows, kMaxBlocks) : 1;

  assign_slots(layout, call.call.inputs);
  layout.tile = cut_into_segments(layout, call.call.inputs, call.outputs);
  layout.tile_bytes = tile_args(layout).bytes();
  // Three more registers for scalars that `select` or an output needs as rows.
  layout.num_slots = std::max(layout.num_slots, layout.tile.num_slots) + 3;
  layout.piece = whole ? layout.row() : std::min(layout.row(), piece_for(layout.num_slots));
  return layout;
}

}  // namespace adjoint
