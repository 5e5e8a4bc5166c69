// dweight[e, p, q] = sum over the rows whose choice is e of a[row, p] * b[row, q]: the gradient of
// expert_linear's weight. Experts that nobody chose get zeros. An addend of the result's type is
// added to the sums, and may be overwritten by them: that is how a sum over parts grows in place.
#include "base/counts.h"
#include "base/error.h"
#include "ops/builder.h"
#include "ops/expert_linear.h"
#include "ops/samples.h"

namespace adjoint {

ExpertGradShape expert_grad_shape(const OpCall& call) {
  const Type &a = call.inputs[0], &b = call.inputs[1], &choice = call.inputs[2];
  ExpertGradShape s;
  s.chosen = choice.dim(-1), s.experts = call.integer("experts");
  s.tokens = s.chosen ? choice.num_elements() / s.chosen : 0;
  s.p = a.dim(-1), s.q = b.dim(-1);
  s.a_each = a.rank() == choice.rank() + 1;
  s.b_each = b.rank() == choice.rank() + 1;
  s.addend = call.inputs.size() > 3;
  return s;
}

namespace {

std::vector<Type> infer_expert_grad(const OpCall& call) {
  if (call.inputs.size() != 3 && call.inputs.size() != 4) {
    fail(
        "expert_linear_grad: wants two objects with rows, their choice and maybe an addend, found ",
        call.inputs.size(), " operands");
  }
  const Type &a = call.inputs[0], &b = call.inputs[1], &choice = call.inputs[2];
  has_row_per_choice(call, 0, choice);
  has_row_per_choice(call, 1, choice);
  if (a.dtype != b.dtype) {
    fail("expert_linear_grad: operands have one floating dtype, found ", name(a.dtype), " and ",
         name(b.dtype));
  }
  const int64_t experts = call.integer("experts");
  if (experts < 1) fail("expert_linear_grad: experts must be at least 1, found ", experts);
  const Type& like = call.inputs.size() > 3 ? call.inputs[3] : a;
  const auto dtype = dtype_named(call.text("dtype", name(like.dtype)));
  // Sums are float64 where all is, so a kernel is all float64 or not at all.
  if (!dtype || !is_float(*dtype) || (*dtype == Dtype::kF64) != (a.dtype == Dtype::kF64)) {
    fail("expert_linear_grad: rows of ", name(a.dtype), " are not summed to '",
         call.text("dtype", name(like.dtype)), "'");
  }
  const Type out{*dtype, {{"experts", experts}, a.axes.back(), b.axes.back()}};
  if (call.inputs.size() > 3 &&
      (!same_shape(call.inputs[3], out) || call.inputs[3].dtype != out.dtype)) {
    fail("expert_linear_grad: the addend must be ", to_string(out), " as the result is, found ",
         to_string(call.inputs[3]));
  }
  return {out};
}

std::vector<Sample> expert_grad_samples() {
  const auto at = [](Type a, Type b, std::vector<int64_t> choice, int64_t experts, int64_t below) {
    return Sample{.inputs = {std::move(a), std::move(b), of(std::move(choice), Dtype::kI32)},
                  .attrs = {{"experts", experts}},
                  .fills = {Sample::Fill::kNormal, Sample::Fill::kNormal, Sample::Fill::kIds},
                  .ids_below = below};
  };
  Sample plus = at(of({2, 3, 2, 7}), of({2, 3, 5}), {2, 3, 2}, 5, 4);  // the last stays as it was
  plus.inputs.push_back(of({5, 7, 5}));
  Sample wide = at(of({9, 2, 8}, Dtype::kBF16), of({9, 16}, Dtype::kBF16), {9, 2}, 3, 3);
  wide.attrs["dtype"] = std::string("f32");
  return {at(of({2, 3, 2, 7}), of({2, 3, 5}), {2, 3, 2}, 4, 4),
          at(of({2, 3, 2, 7}), of({2, 3, 2, 5}), {2, 3, 2}, 6, 4),  // two that nobody chooses
          at(of({2, 3, 7}), of({2, 3, 2, 5}), {2, 3, 2}, 4, 4),
          at(of({4, 3}), of({4, 2}), {4, 2}, 2, 2),
          at(of({1, 1}), of({1, 1}), {1, 1}, 1, 1),
          at(of({2, 150, 2, 24}), of({2, 150, 40}), {2, 150, 2}, 3, 3),
          plus,
          wide};
}

}  // namespace

extern const OpDef op_expert_linear_grad = {
    .name = "expert_linear_grad",
    .summary = "sums of products of rows by their experts: the gradient of expert_linear's weight",
    .infer = infer_expert_grad,
    .index_map =
        [](const OpCall& call) {
          const ExpertGradShape s = expert_grad_shape(call);
          const std::string tokens = std::string("abcdefg").substr(0, call.inputs[2].rank() - 1);
          const std::string rows = tokens + "k";
          IndexMap map{{(s.a_each ? rows : tokens) + "p", (s.b_each ? rows : tokens) + "q", rows},
                       {".pq"}};
          if (s.addend) {
            map.inputs.push_back(".pq");
            map.whole = rows;  // the addend is added once
          }
          return map;
        },
    .flops =
        [](const OpCall& call) {
          const ExpertGradShape s = expert_grad_shape(call);
          return product_of({2, s.count(), s.p, s.q});
        },
    .differentiable = false,
    .one_dtype = true,
    .says_dtype = true,
    .wants_dense = true,
    .multiplies = true,
    .may_overwrite = {{0, 3}},
    .linear =
        [](const OpCall& call) { return call.inputs.size() == 3 ? Linear::kEach : Linear::kNo; },
    .cost = CostClass::kProducts,
    .addend = 3,
    .samples = expert_grad_samples,
    .refused =
        [] {
          const Type choice = of({3, 2}, Dtype::kI32);
          const Attrs four = {{"experts", int64_t{4}}};
          return std::vector<Sample>{
              {.inputs = {of({3, 5}), of({3, 7}), choice}},
              {.inputs = {of({3, 5}), of({3, 7}), choice}, .attrs = {{"experts", int64_t{0}}}},
              {.inputs = {of({3, 5}), of({4, 7}), choice}, .attrs = four},
              {.inputs = {of({3, 3, 5}), of({3, 7}), choice}, .attrs = four},
              {.inputs = {of({3, 5}), of({3, 7}), of({3, 2})}, .attrs = four},
              {.inputs = {of({3, 5}), of({3, 7}, Dtype::kBF16), choice}, .attrs = four},
              {.inputs = {of({3, 5}), of({3, 7}), choice, of({4, 7, 5})}, .attrs = four},
              {.inputs = {of({3, 5}), of({3, 7}), choice},
               .attrs = {{"experts", int64_t{4}}, {"dtype", std::string("i32")}}},
              {.inputs = {of({3, 5}), of({3, 7})}, .attrs = four}};
        },
};

}  // namespace adjoint
