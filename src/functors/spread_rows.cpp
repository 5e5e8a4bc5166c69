// f(rows)  ->  f(rows) {few_rows=1}, where rows are few: a target may sum a row by more threads
// than it would among many rows (ops/few_rows.h). Of a token that is generated nobody expects the
// bits that it has among others; a step that trains keeps them, whatever parts its batch comes in.
#include "functors/functor.h"
#include "ops/few_rows.h"
#include "ops/op_def.h"

namespace adjoint {

namespace {

constexpr int64_t kMostRows = 64;  // with a block for each, half of a large GPU is idle

Scheme spread(Scheme scheme, Application& application) {
  for (Morphism& m : scheme.morphisms) {
    if (!is_row_op(op_named(m.op))) continue;
    const Type& type = scheme[m.outputs[0]].type;
    if (type.rank() == 0 || type.num_elements() > kMostRows * type.dim(-1)) continue;
    if (!body_of(call_of(scheme, m)).needs_whole_rows()) continue;
    m.attrs[std::string(kFewRows)] = int64_t{1};
    ++application.matches;
  }
  return scheme;
}

}  // namespace

extern const Functor functor_spread_rows = {
    .name = "spread_rows",
    .summary = "a row of few may be summed by more threads than one of many",
    .law = Law::kReassociating,
    .may_match_none = true,
    .of_forward = true,
    .rules = {{FunctorPhase::kExact, spread}},
};

}  // namespace adjoint
