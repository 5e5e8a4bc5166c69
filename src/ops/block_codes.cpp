#include "ops/block_codes.h"

#include "base/error.h"
#include "ops/samples.h"

namespace adjoint {

const DynamicLevels& dynamic_levels(bool is_signed) {
  const auto make = [](int decades) {
    DynamicLevels made{.count = 1};  // 0
    double decade = 1;
    for (int i = 1; i < decades; ++i) decade /= 10;
    for (int i = 0; i < decades; ++i, decade *= 10) {
      const int parts = 1 << i;
      for (int j = 1; j <= parts; ++j) {
        const bool last = i + 1 == decades && j == parts;
        made.level[made.count++] =
            last ? 1.0f : static_cast<float>(decade * (0.1 + 0.9 * j / parts));
      }
    }
    for (int i = 0; i + 1 < made.count; ++i) {
      made.border[i] = (made.level[i] + made.level[i + 1]) / 2;
    }
    made.border[made.count - 1] = 2;  // nothing is above the last level
    for (int32_t key = DynamicLevels::kFirst; key <= DynamicLevels::kLast; ++key) {
      const float least = std::bit_cast<float>(key << 17);
      made.start[key - DynamicLevels::kFirst] =
          static_cast<uint8_t>(nearest_level(made, static_cast<double>(least)));
    }
    return made;
  };
  static const DynamicLevels with_sign = make(7), without = make(8);
  return is_signed ? with_sign : without;
}

Type block_codes_type(const Type& type, bool is_signed) {
  return with_dtype(type, is_signed ? Dtype::kI8 : Dtype::kU8);
}

Type block_scales_type(const Type& type) {
  Type scales = with_dtype(type, type.dtype == Dtype::kF64 ? Dtype::kF64 : Dtype::kF32);
  scales.axes.back() = {"blocks", CodeBlocks(type).per_row};
  return scales;
}

namespace {

void check_dense(const OpCall& call, const Type& type) {
  if (type.rank() < 1 || type.num_elements() != type.num_physical()) {
    fail(call.op, ": wants an object with an axis and without padding, found ", to_string(type));
  }
}

bool says_signed(const OpCall& call) {
  const std::string format = call.text("format");
  if (format != "dyn8" && format != "dyn8u") {
    fail(call.op, ": the format must be dyn8 or dyn8u, found '", format, "'");
  }
  return format == "dyn8";
}

std::vector<Type> infer_codes(const OpCall& call) {
  if (call.inputs.size() != 1 || !is_float(call.inputs[0].dtype)) {
    fail("block_encode: wants one floating object");
  }
  const Type& x = call.inputs[0];
  check_dense(call, x);
  return {block_codes_type(x, says_signed(call)), block_scales_type(x)};
}

std::vector<Type> infer_numbers(const OpCall& call) {
  if (call.inputs.size() != 2) fail("block_decode: wants codes and scales");
  const Type &codes = call.inputs[0], &scales = call.inputs[1];
  check_dense(call, codes);
  check_dense(call, scales);
  const Dtype wanted = says_signed(call) ? Dtype::kI8 : Dtype::kU8;
  if (codes.dtype != wanted || !is_float(scales.dtype) || scales.rank() != codes.rank() ||
      !same_shape(scales, block_scales_type(codes))) {
    fail("block_decode: wants codes of ", name(wanted), " and a scale for each ", kCodeBlock,
         " of a row, found ", to_string(codes), " and ", to_string(scales));
  }
  return {with_dtype(codes, scales.dtype)};
}

int64_t flops_of_codes(const OpCall& call) { return call.inputs[0].num_elements(); }

// What shares a scale stays together.
std::string letters_of_rows(const Type& type) {
  return std::string("abcdefgh").substr(0, type.rank() - 1) + ".";
}

Attrs format_attr(const char* format) { return {{"format", std::string(format)}}; }

}  // namespace

extern const OpDef op_block_encode = {
    .name = "block_encode",
    .summary = "8-bit codes with a scale for each 256 numbers of a row",
    .infer = infer_codes,
    .index_map =
        [](const OpCall& call) {
          const std::string axes = letters_of_rows(call.inputs[0]);
          return IndexMap{{axes}, {axes, axes}};
        },
    .flops = flops_of_codes,
    .differentiable = false,
    .output_names = {"scales"},
    .wants_dense = true,
    .samples =
        [] {
          const auto at = [](std::vector<int64_t> sizes, const char* format, Sample::Fill fill) {
            return Sample{
                .inputs = {of(std::move(sizes))}, .attrs = format_attr(format), .fills = {fill}};
          };
          return std::vector<Sample>{at({7}, "dyn8", Sample::Fill::kNormal),
                                     at({3, 300}, "dyn8", Sample::Fill::kNormal),
                                     at({2, 4, 128}, "dyn8", Sample::Fill::kLarge),
                                     at({5, 200}, "dyn8u", Sample::Fill::kPositive),
                                     at({512}, "dyn8u", Sample::Fill::kPositive)};
        },
    .refused =
        [] {
          return std::vector<Sample>{
              {.inputs = {}, .attrs = format_attr("dyn8")},
              {.inputs = {of({})}, .attrs = format_attr("dyn8")},
              {.inputs = {of({4})}, .attrs = format_attr("int8")},
              {.inputs = {of({4}, Dtype::kI32)}, .attrs = format_attr("dyn8")}};
        },
};

extern const OpDef op_block_decode = {
    .name = "block_decode",
    .summary = "the numbers that 8-bit codes with a scale for each 256 of them stand for",
    .infer = infer_numbers,
    .index_map =
        [](const OpCall& call) {
          const std::string axes = letters_of_rows(call.inputs[0]);
          return IndexMap{{axes, axes}, {axes}};
        },
    .flops = flops_of_codes,
    .differentiable = false,
    .wants_dense = true,
    .samples =
        [] {
          const auto at = [](std::vector<int64_t> sizes, const char* format) {
            const bool sign = std::string_view(format) == "dyn8";
            const Type codes = of(std::move(sizes), sign ? Dtype::kI8 : Dtype::kU8);
            return Sample{.inputs = {codes, block_scales_type(codes)},
                          .attrs = format_attr(format),
                          .fills = {Sample::Fill::kIds, Sample::Fill::kPositive},
                          .ids_below = sign ? 128 : 256};
          };
          return std::vector<Sample>{at({7}, "dyn8"), at({3, 300}, "dyn8"), at({5, 200}, "dyn8u"),
                                     at({2, 2, 128}, "dyn8u")};
        },
    .refused =
        [] {
          return std::vector<Sample>{
              {.inputs = {of({300}, Dtype::kI8), of({1})}, .attrs = format_attr("dyn8")},
              {.inputs = {of({300}, Dtype::kI8), of({2})}, .attrs = format_attr("dyn8u")},
              {.inputs = {of({300}, Dtype::kI8)}, .attrs = format_attr("dyn8")},
              {.inputs = {of({300}, Dtype::kI8), of({2})}, .attrs = format_attr("dyn4")}};
        },
};

}  // namespace adjoint
