#include "base/error.h"
#include "device/parallel.h"
#include "kernels/kernel.h"
#include "kernels/token_choice.h"
#include "scheme/elements.h"

namespace adjoint {

namespace {

// Logits that are float32 are read where they lie; others are widened first.
struct ChoiceRows {
  Type logits, choice;
  int64_t usable;

  explicit ChoiceRows(const OpCall& call)
      : logits(call.inputs[0]), choice(call.inputs[1]), usable(usable_tokens(call)) {}
  bool widens() const { return logits.dtype != Dtype::kF32; }
  int64_t rows() const { return logits.dim(0) * logits.dim(1); }
};

Launch prepare(const KernelCall& k, const Pointers& at) {
  const ChoiceRows rows(k.call);
  CHECK(k.in_strides[0] == dense_strides(rows.logits), "logits are dense");
  const int64_t step = rows.logits.axes.back().physical(), positions = rows.logits.dim(1);
  const int64_t choice_step = rows.choice.axes.back().physical();
  const void *logits = at.in[0], *choice = at.in[1];
  auto* wide = static_cast<float*>(at.workspace);
  auto* tokens = static_cast<int32_t*>(at.out[0]);
  return [=] {
    parallel_for(rows.rows(), 1, [&](int64_t begin, int64_t end, int) {
      for (int64_t row = begin; row < end; ++row) {
        const float* from = static_cast<const float*>(logits) + row * step;
        if (rows.widens()) {
          float* to = wide + row * rows.usable;
          for (int64_t i = 0; i < rows.usable; ++i) {
            to[i] = static_cast<float>(load_element(logits, rows.logits.dtype, row * step + i));
          }
          from = to;
        }
        const auto number = [&](int64_t i) {
          return static_cast<float>(
              load_element(choice, rows.choice.dtype, row / positions * choice_step + i));
        };
        tokens[row] =
            drawn_token({from, static_cast<size_t>(rows.usable)}, {.temperature = number(0),
                                                                   .top_k = number(1),
                                                                   .top_p = number(2),
                                                                   .min_p = number(3),
                                                                   .number = number(4)});
      }
    });
  };
}

}  // namespace

extern const Kernel cpu_choose_token = {
    .op = "choose_token",
    .prepare = prepare,
    .workspace =
        [](const KernelCall& k) {
          const ChoiceRows rows(k.call);
          return rows.widens() ? rows.rows() * rows.usable * size_of(Dtype::kF32) : Bytes{0};
        },
};

}  // namespace adjoint
