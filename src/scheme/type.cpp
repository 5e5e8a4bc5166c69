#include "scheme/type.h"

#include <array>

namespace adjoint {

namespace {
struct DtypeFacts {
  Dtype dtype;
  std::string_view name;
  int64_t bytes;
  bool floating;
};
constexpr std::array<DtypeFacts, kNumDtypes> kDtypes = {{
    {Dtype::kF64, "f64", 8, true},
    {Dtype::kF32, "f32", 4, true},
    {Dtype::kBF16, "bf16", 2, true},
    {Dtype::kF16, "f16", 2, true},
    {Dtype::kI64, "i64", 8, false},
    {Dtype::kI32, "i32", 4, false},
    {Dtype::kI8, "i8", 1, false},
    {Dtype::kU8, "u8", 1, false},
}};
const DtypeFacts& facts(Dtype dtype) { return kDtypes[static_cast<size_t>(dtype)]; }
}  // namespace

std::string_view name(Dtype dtype) { return facts(dtype).name; }
Bytes size_of(Dtype dtype) { return {facts(dtype).bytes}; }
bool is_float(Dtype dtype) { return facts(dtype).floating; }

std::optional<Dtype> dtype_named(std::string_view name) {
  for (const DtypeFacts& f : kDtypes) {
    if (f.name == name) return f.dtype;
  }
  return std::nullopt;
}

int64_t Type::num_elements() const {
  int64_t n = 1;
  for (const Axis& axis : axes) n *= axis.size;
  return n;
}

int64_t Type::num_physical() const {
  int64_t n = 1;
  for (const Axis& axis : axes) n *= axis.physical();
  return n;
}

bool is_countable(const Type& type) {
  int64_t bytes = 8;
  for (const Axis& axis : type.axes) {
    if (__builtin_mul_overflow(bytes, axis.physical(), &bytes)) return false;
  }
  return true;
}

bool same_shape(const Type& a, const Type& b) {
  if (a.rank() != b.rank()) return false;
  for (int i = 0; i < a.rank(); ++i) {
    if (a.axes[i].size != b.axes[i].size) return false;
  }
  return true;
}

Type with_dtype(Type type, Dtype dtype) {
  type.dtype = dtype;
  return type;
}

Strides dense_strides(const Type& type) {
  Strides strides(type.rank());
  int64_t next = 1;
  for (int i = type.rank() - 1; i >= 0; --i) {
    strides[i] = next;
    next *= type.axes[i].physical();
  }
  return strides;
}

std::string shape_string(const Type& type) {
  std::string out = "[";
  for (int i = 0; i < type.rank(); ++i) {
    const Axis& axis = type.axes[i];
    if (i) out += ", ";
    out += axis.name + "=" + std::to_string(axis.size);
    if (axis.padded) out += "~" + std::to_string(axis.padded);
  }
  return out + "]";
}

std::string to_string(const Type& type) {
  return std::string(name(type.dtype)) + shape_string(type);
}

}  // namespace adjoint
