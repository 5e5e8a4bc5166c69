// What fusions ask of the target before they join calls: how it runs bodies, and what the end of a
// product can do. Each backend says its own (kernels/backend.h).
#pragma once
#include "body/body.h"
#include "device/target.h"

namespace adjoint {

struct FusionLimits {
  // Each operand and result of a body is a stream of its own, and a core's prefetchers follow about
  // this many.
  size_t streams = 24;
  // Nodes of a body. The longest chains of a transformer block have half of this; past it there is
  // nothing to gain but compile time, and registers that leave the first-level cache.
  size_t nodes = 160;
  // Elements of a row from which a joined chain is no slower than its pieces, even in cache
  // (measured at 128). Below, starting an instruction costs more than running it, and a plain
  // elementwise op, which runs in pieces, stays out of bodies that are bound to such rows.
  int64_t short_row = 128;
  int64_t piece = 1024;         // elements that one instruction of a body works on, at most
  int64_t sum_blocks = 64;      // blocks of rows that sums over leading axes are shared out in
  int64_t wide_suffix = 16384;  // elements from which on such sums are shared by column instead
  // Can the end of a product of this dtype apply the body to its sums? Null: there is no such end.
  bool (*product_end)(const Body& body, Dtype dtype) = nullptr;
  bool exact_product_end = true;  // and with the same bits every time
  int64_t product_end_terms = 1;  // that a sum must have for such an end to cost less than a pass
};
const FusionLimits& fusion_limits(Target target);

}  // namespace adjoint
