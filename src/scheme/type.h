// The type of an object: a dtype and named axes.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"

namespace adjoint {

enum class Dtype : uint8_t { kF64, kF32, kBF16, kF16, kI64, kI32, kI8, kU8 };
constexpr int kNumDtypes = 8;

std::string_view name(Dtype dtype);  // "f32"
std::optional<Dtype> dtype_named(std::string_view name);
Bytes size_of(Dtype dtype);
bool is_float(Dtype dtype);

// An axis is a label and a size. Labels are for people and may repeat (`w[hidden, hidden]`): ops
// bind axes by position. `padded` is the physical size where it exceeds the logical one; the
// padding is absent from counts, saves and random indices.
struct Axis {
  std::string name;
  int64_t size = 1;
  int64_t padded = 0;  // 0: as large as `size`

  int64_t physical() const { return padded ? padded : size; }
  bool operator==(const Axis&) const = default;
};

struct Type {
  Dtype dtype = Dtype::kF32;
  std::vector<Axis> axes = {};

  int rank() const { return static_cast<int>(axes.size()); }
  int64_t dim(int i) const { return axes[i < 0 ? i + rank() : i].size; }
  int64_t num_elements() const;  // logical
  int64_t num_physical() const;
  Bytes bytes() const { return num_physical() * size_of(dtype); }
  bool operator==(const Type&) const = default;
};

// Whether its bytes, in any dtype, can be counted in an int64.
bool is_countable(const Type& type);

// Same sizes, whatever the labels.
bool same_shape(const Type& a, const Type& b);
Type with_dtype(Type type, Dtype dtype);

// Distance in elements between neighbours along each axis.
using Strides = std::vector<int64_t>;
Strides dense_strides(const Type& type);

std::string to_string(const Type& type);     // f32[batch=4, seq=64]
std::string shape_string(const Type& type);  // [batch=4, seq=64]

}  // namespace adjoint
