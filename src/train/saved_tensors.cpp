#include "train/saved_tensors.h"

#include <atomic>

#include "base/error.h"
#include "device/parallel.h"

namespace adjoint {

std::string format_name(Dtype dtype) {
  constexpr const char* names[] = {"F64", "F32", "BF16", "F16", "I64", "I32", "I8", "U8"};
  return names[static_cast<size_t>(dtype)];
}

std::vector<Value> inputs_of(const Scheme& scheme, Role role) {
  std::vector<Value> all;
  for (const Value v : scheme.inputs) {
    if (scheme[v].role == role) all.push_back(v);
  }
  return all;
}

// Views of a scheme's inputs with this role; `run`, if not null, holds their data. Of a stage's
// step: those of all stages.
std::vector<SafetensorView> views_of(const Scheme& scheme, Role role, const Run* run) {
  std::vector<SafetensorView> tensors;
  const auto add = [&](const Object& object, const void* data) {
    CHECK(object.type.num_elements() == object.type.num_physical(), "state is not padded");
    // A save knows nothing of meshes: it holds whole objects.
    const Type whole = whole_type(object);
    CHECK(!run || whole == object.type, "a rank's piece is no tensor of a save");
    SafetensorView view{.name = to_string(object.source),
                        .dtype = format_name(whole.dtype),
                        .shape = {},
                        .data = data,
                        .size = whole.bytes()};
    for (const Axis& axis : whole.axes) view.shape.push_back(axis.size);
    tensors.push_back(std::move(view));
  };
  for (const Object& object : scheme.of_all_stages) {
    CHECK(!run, "a stage holds some of all tensors");
    if (object.role == role) add(object, nullptr);
  }
  if (!scheme.of_all_stages.empty()) return tensors;
  for (const Value v : inputs_of(scheme, role)) add(scheme[v], run ? run->data(v) : nullptr);
  return tensors;
}

void check_finite(std::span<const SafetensorView> tensors) {
  for (const SafetensorView& t : tensors) {
    if (t.dtype == "I8" || t.dtype == "U8") continue;  // codes of a quantized matrix
    std::atomic<bool> finite = true;
    if (t.dtype == "F32") {
      const auto* numbers = static_cast<const float*>(t.data);
      parallel_for(t.size.count / 4, 1 << 16, [&](int64_t begin, int64_t end, int) {
        float zero = 0;  // 0 * x is 0 unless x is infinite or not a number
        for (int64_t i = begin; i < end; ++i) zero += 0.0f * numbers[i];
        if (zero != 0.0f) finite = false;
      });
    } else {
      CHECK(t.dtype == "BF16" || t.dtype == "F16", "state is float32, 16-bit floats or codes");
      const uint16_t exponent = t.dtype == "BF16" ? 0x7F80 : 0x7C00;  // all ones: infinite or NaN
      const auto* numbers = static_cast<const uint16_t*>(t.data);
      parallel_for(t.size.count / 2, 1 << 16, [&](int64_t begin, int64_t end, int) {
        bool bad = false;
        for (int64_t i = begin; i < end; ++i) bad |= (numbers[i] & exponent) == exponent;
        if (bad) finite = false;
      });
    }
    if (!finite) fail("'", t.name, "' holds values that are no longer numbers");
  }
}

std::map<std::string, std::string> save_metadata(int64_t step, const std::string& model,
                                                 const std::string& checksum) {
  return {{"format", "adjoint"},
          {"step", std::to_string(step)},
          {"model", model},
          {"checksum", checksum}};
}

}  // namespace adjoint
