// codes, scales -> the matrix that they stand for, in the dtype that its readers want (quantize.h
// has the formats). How many neighbours share a scale is what the shapes say: none for one scale in
// all, one axis less for one a row, else one per group of a row.
#include "base/error.h"
#include "ops/builder.h"
#include "ops/quantize.h"
#include "ops/samples.h"

namespace adjoint {

CodeShape code_shape(const OpCall& call) {
  if (call.inputs.size() != 2) fail("dequantize: wants codes and scales");
  const Type &codes = call.inputs[0], &scales = call.inputs[1];
  const std::string format = call.text("format");
  const auto kind = code_kind(format);
  if (!kind) fail("dequantize: the format must be int8, int4 or nf4, found '", format, "'");
  CodeShape s{.kind = *kind, .packed = codes_per_byte(*kind) > 1};
  const Dtype wanted = s.packed ? Dtype::kU8 : Dtype::kI8;
  if (codes.dtype != wanted || codes.rank() < 1 || !is_float(scales.dtype)) {
    fail("dequantize: codes of ", format, " are ", name(wanted), " and scales are floating, found ",
         to_string(codes), " and ", to_string(scales));
  }
  for (const Type* t : {&codes, &scales}) {
    if (t->num_elements() != t->num_physical())
      fail("dequantize: codes and scales have no padding");
  }
  s.row = codes.dim(-1) * (s.packed ? 2 : 1);
  s.rows = codes.num_elements() / codes.dim(-1);
  s.one_scale = scales.rank() == 0;
  bool fits_codes =
      s.one_scale || scales.rank() + 1 == codes.rank() || scales.rank() == codes.rank();
  for (int i = 0; fits_codes && i < scales.rank() && i + 1 < codes.rank(); ++i) {
    fits_codes = scales.dim(i) == codes.dim(i);
  }
  if (fits_codes && scales.rank() == codes.rank()) {
    s.groups = scales.dim(-1);
    fits_codes = codes.dim(-1) % s.groups == 0;
  }
  if (!fits_codes) {
    fail("dequantize: scales ", shape_string(scales), " do not fit codes ", shape_string(codes));
  }
  return s;
}

namespace {

std::vector<Type> infer(const OpCall& call) {
  const CodeShape s = code_shape(call);
  const auto dtype = dtype_named(call.text("dtype", name(call.inputs[1].dtype)));
  if (!dtype || !is_float(*dtype)) {
    fail("dequantize: '", call.text("dtype"), "' is no floating dtype");
  }
  Type out{*dtype, call.inputs[0].axes};
  out.axes.back().size = s.row;
  return {out};
}

IndexMap index_map(const OpCall& call) {
  const CodeShape s = code_shape(call);
  const std::string rows = std::string("abcdefgh").substr(0, call.inputs[0].rank() - 1);
  // Columns that share a byte or a group's scale stay together.
  const std::string column = s.packed || call.inputs[1].rank() == call.inputs[0].rank() ? "." : "i";
  std::string scales = s.one_scale ? "" : rows;
  if (call.inputs[1].rank() == call.inputs[0].rank()) scales += ".";
  return {{rows + column, scales}, {rows + column}};
}

Sample sample(const char* format, std::vector<int64_t> codes, std::vector<int64_t> scales) {
  const bool packed = std::string_view(format) != "int8";
  return {.inputs = {of(std::move(codes), packed ? Dtype::kU8 : Dtype::kI8), of(std::move(scales))},
          .attrs = {{"format", std::string(format)}},
          .fills = {Sample::Fill::kIds, Sample::Fill::kPositive},
          .ids_below = packed ? 256 : 128};
}

}  // namespace

extern const OpDef op_dequantize = {
    .name = "dequantize",
    .summary = "the matrix that int8, int4 or nf4 codes and their scales stand for",
    .infer = infer,
    .index_map = index_map,
    .flops =
        [](const OpCall& call) {
          const CodeShape s = code_shape(call);
          return s.rows * s.row;
        },
    .differentiable = false,
    .says_dtype = true,
    .wants_dense = true,
    .decodes = true,
    .samples =
        [] {
          return std::vector<Sample>{
              sample("int8", {6, 8}, {}),      sample("int8", {6, 8}, {6}),
              sample("int8", {6, 8}, {6, 2}),  sample("int8", {3, 2, 5}, {3, 2}),
              sample("nf4", {6, 8}, {}),       sample("nf4", {6, 8}, {6}),
              sample("nf4", {40, 8}, {40, 4}), sample("int4", {6, 8}, {6}),
              sample("int4", {40, 8}, {40, 4})};
        },
    .refused =
        [] {
          return std::vector<Sample>{
              sample("int8", {6, 8}, {5}),
              sample("int8", {6, 8}, {6, 3}),
              sample("nf3", {6, 8}, {6}),
              {.inputs = {of({6, 8}), of({6})}, .attrs = {{"format", std::string("int8")}}}};
        },
};

}  // namespace adjoint
