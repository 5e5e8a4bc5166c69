// y = linear(x, W) where W is held as int8 codes and scales, which are multiplied as they are: a
// matrix of numbers is never made. For products that wait for memory, of few rows of x.
#include "ops/code_linear.h"

#include "base/counts.h"
#include "base/error.h"
#include "ops/builder.h"
#include "ops/product_letters.h"
#include "ops/samples.h"

namespace adjoint {

CodeShape code_linear_shape(const OpCall& call) {
  OpCall decode{.op = "dequantize", .inputs = {}, .attrs = {{"format", call.text("format")}}};
  decode.inputs = {call.inputs.begin() + 1, call.inputs.begin() + 3};
  return code_shape(decode);
}

namespace {

std::vector<Type> infer(const OpCall& call) {
  if (call.inputs.size() < 3 || call.inputs.size() > 4) {
    fail("code_linear: wants x, codes, scales and maybe bias, found ", call.inputs.size(),
         " operands");
  }
  const Type &x = call.inputs[0], &codes = call.inputs[1];
  if (call.text("format") != "int8") {
    fail("code_linear: the format must be int8, found '", call.text("format"), "'");
  }
  const CodeShape s = code_linear_shape(call);
  if (codes.rank() != 2 || x.rank() < 1 || x.rank() > 8 || x.dim(-1) != s.row ||
      !is_float(x.dtype)) {
    fail("code_linear: the codes ", to_string(codes), " do not fit x ", to_string(x));
  }
  if (call.inputs.size() == 4) {
    const Type& bias = call.inputs[3];
    if (bias.rank() != 1 || bias.dim(0) != s.rows || bias.dtype != x.dtype) {
      fail("code_linear: the bias ", to_string(bias), " does not fit ", s.rows, " results of ",
           name(x.dtype));
    }
  }
  Type y = x;
  y.axes.back() = codes.axes[0];
  return {y};
}

std::vector<Value> meaning(Builder& b, std::span<const Value> in, const Attrs& attrs) {
  const std::string dtype(name(b.type(in[0]).dtype));
  const Value matrix =
      b.emit("dequantize", {in[1], in[2]}, {{"format", attrs.at("format")}, {"dtype", dtype}});
  const Value y = b.emit("contract", {in[0], matrix}, {{"map", linear_map(b.type(in[0]))}});
  return {in.size() > 3 ? b.emit("add", {y, in[3]}) : y};
}

Sample code_sample(std::vector<int64_t> x, std::vector<int64_t> codes, std::vector<int64_t> scales,
                   bool bias = false) {
  using Fill = Sample::Fill;
  Sample sample{.inputs = {of(std::move(x)), of(codes, Dtype::kI8), of(std::move(scales))},
                .attrs = {{"format", std::string("int8")}},
                .fills = {Fill::kNormal, Fill::kIds, Fill::kPositive},
                .ids_below = 128};
  if (bias) sample.inputs.push_back(of({codes[0]}));
  return sample;
}

}  // namespace

extern const OpDef op_code_linear = {
    .name = "code_linear",
    .summary = "a linear map by a matrix that is held as int8 codes and scales",
    .infer = infer,
    .index_map =
        [](const OpCall& call) {
          const std::string in = leading_letters_of(call.inputs[0]);
          const int rank = call.inputs[2].rank();
          // Columns that share a group's scale stay together.
          const char column = rank == 2 ? '.' : 'i';
          IndexMap map{{in + column, std::string("o") + column,
                        rank == 0   ? ""
                        : rank == 1 ? "o"
                                    : "o."},
                       {in + "o"}};
          if (call.inputs.size() > 3) {
            map.inputs.emplace_back("o");
            map.whole = "i";  // the bias is added once
          }
          return map;
        },
    .flops =
        [](const OpCall& call) {
          return product_of({2, call.inputs[0].num_elements(), call.inputs[1].dim(0)});
        },
    .differentiable = false,
    .wants_dense = true,
    .meaning = meaning,
    .cost = CostClass::kProducts,
    .samples =
        [] {
          return std::vector<Sample>{code_sample({3, 8}, {6, 8}, {}),
                                     code_sample({2, 1, 8}, {6, 8}, {6}, true),
                                     code_sample({1, 1, 8}, {6, 8}, {6, 2}),
                                     code_sample({11, 200}, {37, 200}, {37}),
                                     code_sample({1, 200}, {37, 200}, {37}, true),
                                     code_sample({5, 192}, {33, 192}, {33, 3})};
        },
    .refused =
        [] {
          Sample nf4 = code_sample({3, 8}, {6, 8}, {6});
          nf4.attrs["format"] = std::string("nf4");
          Sample bias = code_sample({3, 8}, {6, 8}, {6}, true);
          bias.inputs[3] = of({5});
          return std::vector<Sample>{code_sample({3, 7}, {6, 8}, {6}),
                                     code_sample({3, 8}, {6, 8}, {5}), nf4, bias};
        },
};

}  // namespace adjoint
