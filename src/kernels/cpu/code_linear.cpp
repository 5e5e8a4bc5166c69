// Few rows by the codes as they lie; more of them by a matrix of numbers that is made in the
// workspace first.
#include "ops/code_linear.h"

#include <memory>

#include "kernels/backend.h"
#include "kernels/cpu/thin_product.h"

namespace adjoint {

namespace {

int64_t rows_of_x(const OpCall& call) {
  return call.inputs[0].num_elements() / call.inputs[0].dim(-1);
}

bool few_rows(const KernelCall& k) {
  return rows_of_x(k.call) <= kThinRows && k.call.inputs[0].dtype != Dtype::kF64;
}

ThinCodes thin_codes(const KernelCall& k) {
  const OpCall& call = k.call;
  return {.shape = code_linear_shape(call),
          .m = rows_of_x(call),
          .x_step = call.inputs[0].axes.back().physical(),
          .y_step = k.outputs[0].axes.back().physical(),
          .dtype = call.inputs[0].dtype,
          .scale_dtype = call.inputs[2].dtype};
}

// The two calls that it would be apart, the second one's workspace behind the first one's result.
struct DecodeThenMultiply {
  OpCall decode, linear;
  KernelCall of_decode, of_linear;
  Bytes matrix;

  explicit DecodeThenMultiply(const KernelCall& k)
      : decode{.op = "dequantize",
               .inputs = {k.call.inputs[1], k.call.inputs[2]},
               .attrs = {{"format", k.call.text("format")},
                         {"dtype", std::string(name(k.call.inputs[0].dtype))}}},
        linear{.op = "linear", .inputs = {k.call.inputs[0], infer_types(decode)[0]}, .attrs = {}},
        of_decode(decode, k),
        of_linear(linear, k),
        matrix(round_up(linear.inputs[1].bytes(), {64})) {
    if (k.call.inputs.size() > 3) linear.inputs.push_back(k.call.inputs[3]);
    of_decode.outputs = {linear.inputs[1]};
    of_decode.in_strides = {k.in_strides[1], k.in_strides[2]};
    of_decode.out_strides = {dense_strides(linear.inputs[1])};
    of_linear.outputs = k.outputs;
    of_linear.in_strides = {k.in_strides[0], of_decode.out_strides[0]};
    if (k.call.inputs.size() > 3) of_linear.in_strides.push_back(k.in_strides[3]);
    of_linear.out_strides = k.out_strides;
  }
};

Launch code_linear(const KernelCall& k, const Pointers& at) {
  const bool bias = k.call.inputs.size() > 3;
  if (few_rows(k)) {
    return prepare_thin(thin_codes(k), at.in[0], at.in[1], at.in[2], bias ? at.in[3] : nullptr,
                        at.out[0], at.workspace);
  }
  const auto both = std::make_shared<const DecodeThenMultiply>(k);
  auto* matrix = static_cast<std::byte*>(at.workspace);
  Pointers of_linear{
      .in = {at.in[0], matrix}, .out = at.out, .workspace = matrix + both->matrix.count};
  if (bias) of_linear.in.push_back(at.in[3]);
  return [both, decode = prepare(both->of_decode, {.in = {at.in[1], at.in[2]}, .out = {matrix}}),
          multiply = prepare(both->of_linear, of_linear)] {
    decode();
    multiply();
  };
}

}  // namespace

extern const Kernel cpu_code_linear = {
    .op = "code_linear",
    .prepare = code_linear,
    .workspace =
        [](const KernelCall& k) {
          if (few_rows(k)) return thin_workspace(thin_codes(k));
          const DecodeThenMultiply both(k);
          return both.matrix + workspace_bytes(both.of_linear);
        },
};

}  // namespace adjoint
