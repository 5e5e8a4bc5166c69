// codes, scales -> the matrix that they stand for, in the dtype that its readers want (quantize.h
// has the formats). How many neighbours share a scale is what the shapes say: none for one scale in
// all, one axis less for one a row, else one per group of a row.
#include "base/error.h"
#include "device/parallel.h"
#include "ops/builder.h"
#include "ops/cuda_kernels.h"
#include "ops/elements.h"
#include "ops/quantize.h"
#include "ops/samples.h"

namespace adjoint {

namespace {

struct Shape {
  bool packed = false;
  int64_t rows = 1, row = 1, groups = 1;  // of elements; groups of a row
  bool one_scale = false;

  int64_t scale_at(int64_t r, int64_t group) const { return one_scale ? 0 : r * groups + group; }
};

Shape shape_of(const OpCall& call) {
  if (call.inputs.size() != 2) fail("dequantize: wants codes and scales");
  const Type &codes = call.inputs[0], &scales = call.inputs[1];
  const std::string format = call.text("format");
  if (format != "int8" && format != "nf4") {
    fail("dequantize: the format must be int8 or nf4, found '", format, "'");
  }
  Shape s{.packed = format == "nf4"};
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

std::vector<Type> infer(const OpCall& call) {
  const Shape s = shape_of(call);
  const auto dtype = dtype_named(call.text("dtype", name(call.inputs[1].dtype)));
  if (!dtype || !is_float(*dtype)) {
    fail("dequantize: '", call.text("dtype"), "' is no floating dtype");
  }
  Type out{*dtype, call.inputs[0].axes};
  out.axes.back().size = s.row;
  return {out};
}

IndexMap index_map(const OpCall& call) {
  const Shape s = shape_of(call);
  const std::string rows = std::string("abcdefgh").substr(0, call.inputs[0].rank() - 1);
  // Columns that share a byte or a group's scale stay together.
  const std::string column = s.packed || call.inputs[1].rank() == call.inputs[0].rank() ? "." : "i";
  std::string scales = s.one_scale ? "" : rows;
  if (call.inputs[1].rank() == call.inputs[0].rank()) scales += ".";
  return {{rows + column, scales}, {rows + column}};
}

template <class T>
void expand(const Shape& s, const void* codes, const void* scales, Dtype scale_dtype, void* out,
            int64_t begin, int64_t end) {
  using W = typename Wide<T>::type;
  const int64_t group = s.row / s.groups;
  for (int64_t r = begin; r < end; ++r) {
    for (int64_t g = 0; g < s.groups; ++g) {
      const auto scale = static_cast<W>(load_element(scales, scale_dtype, s.scale_at(r, g)));
      const int64_t first = r * s.row + g * group;
      T* y = static_cast<T*>(out) + first;
      if (s.packed) {
        W levels[16];
        for (int i = 0; i < 16; ++i) levels[i] = scale * static_cast<W>(kNormalLevels[i]);
        const auto* x = static_cast<const uint8_t*>(codes) + first / 2;
        for (int64_t k = 0; k < group / 2; ++k) {
          y[2 * k] = static_cast<T>(levels[x[k] & 15]);
          y[2 * k + 1] = static_cast<T>(levels[x[k] >> 4]);
        }
      } else {
        const auto* x = static_cast<const int8_t*>(codes) + first;
        for (int64_t k = 0; k < group; ++k) y[k] = static_cast<T>(scale * static_cast<W>(x[k]));
      }
    }
  }
}

Launch cpu(const KernelCall& k, const Pointers& at) {
  const Shape s = shape_of(k.call);
  const Dtype scale_dtype = k.call.inputs[1].dtype;
  return with_float_type(k.outputs[0].dtype, [&]<class T>() -> Launch {
    return [=] {
      parallel_for(s.rows, 16, [&](int64_t begin, int64_t end, int) {
        expand<T>(s, at.in[0], at.in[1], scale_dtype, at.out[0], begin, end);
      });
    };
  });
}

// One element at a time.
Launch reference(const KernelCall& k, const Pointers& at) {
  const Shape s = shape_of(k.call);
  const Dtype codes = k.call.inputs[0].dtype, scales = k.call.inputs[1].dtype;
  const Dtype out = k.outputs[0].dtype;
  return [=] {
    for (int64_t i = 0; i < s.rows * s.row; ++i) {
      const auto byte = static_cast<int64_t>(load_element(at.in[0], codes, s.packed ? i / 2 : i));
      const double level = s.packed ? kNormalLevels[i % 2 ? byte / 16 : byte % 16] : byte;
      const int64_t group = i % s.row / (s.row / s.groups);
      const double scale = load_element(at.in[1], scales, s.scale_at(i / s.row, group));
      store_element(at.out[0], out, i, level * scale);
    }
  };
}

Sample sample(const char* format, std::vector<int64_t> codes, std::vector<int64_t> scales) {
  const bool packed = std::string_view(format) == "nf4";
  return {.inputs = {of(std::move(codes), packed ? Dtype::kU8 : Dtype::kI8), of(std::move(scales))},
          .attrs = {{"format", std::string(format)}},
          .fills = {Sample::Fill::kIds, Sample::Fill::kPositive},
          .ids_below = packed ? 256 : 128};
}

}  // namespace

extern const OpDef op_dequantize = {
    .name = "dequantize",
    .summary = "the matrix that int8 or nf4 codes and their scales stand for",
    .infer = infer,
    .index_map = index_map,
    .flops =
        [](const OpCall& call) {
          const Shape s = shape_of(call);
          return s.rows * s.row;
        },
    .differentiable = false,
    .says_dtype = true,
    .wants_dense = true,
    .reference = reference,
    .cpu = cpu,
    .cuda = dequantize_cuda,
    .samples =
        [] {
          return std::vector<Sample>{
              sample("int8", {6, 8}, {}),     sample("int8", {6, 8}, {6}),
              sample("int8", {6, 8}, {6, 2}), sample("int8", {3, 2, 5}, {3, 2}),
              sample("nf4", {6, 8}, {}),      sample("nf4", {6, 8}, {6}),
              sample("nf4", {40, 8}, {40, 4})};
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
