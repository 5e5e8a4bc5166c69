#include "train/model_folder.h"

#include <algorithm>
#include <cstring>
#include <set>

#include "base/error.h"
#include "base/text.h"
#include "functors/evaluation.h"
#include "models/format_names.h"
#include "run/parameters.h"
#include "scheme/elements.h"

namespace adjoint {

namespace {

std::string shape_words(const std::vector<int64_t>& shape) {
  std::vector<std::string> sizes;
  for (const int64_t size : shape) sizes.push_back(std::to_string(size));
  return "[" + join(sizes, ", ") + "]";
}

template <class T>
void widen(const std::byte* from, std::span<float> to) {
  for (size_t i = 0; i < to.size(); ++i) {
    T element;
    std::memcpy(&element, from + i * sizeof(T), sizeof(T));  // files need not be aligned
    to[i] = static_cast<float>(element);
  }
}

int64_t product_of(const std::vector<int64_t>& shape) {
  int64_t product = 1;
  for (const int64_t size : shape) product *= size;
  return product;
}

// Tensors one after another.
GiveValues plain_values(std::vector<const SafetensorView*> parts,
                        const std::vector<int64_t>& shape) {
  return
      [parts = std::move(parts), each = product_of(shape)](int64_t begin, std::span<float> piece) {
        while (!piece.empty()) {
          const int64_t within = begin % each;
          const size_t n = std::min<size_t>(piece.size(), each - within);
          read_floats(*parts[begin / each], within, piece.subspan(0, n));
          piece = piece.subspan(n);
          begin += static_cast<int64_t>(n);
        }
      };
}

// Matrices [in, out], each as [out, in].
GiveValues turned_values(std::vector<const SafetensorView*> parts,
                         const std::vector<int64_t>& shape) {
  return [parts = std::move(parts), in = shape[0], out = shape[1]](int64_t begin,
                                                                   std::span<float> piece) {
    for (size_t i = 0; i < piece.size(); ++i) {
      const int64_t at = begin + static_cast<int64_t>(i), within = at % (in * out);
      read_floats(*parts[at / (in * out)], within % in * out + within / in, piece.subspan(i, 1));
    }
  };
}

}  // namespace

std::optional<Dtype> float_dtype(const SafetensorView& view) {
  if (view.dtype == "F32") return Dtype::kF32;
  if (view.dtype == "F16") return Dtype::kF16;
  if (view.dtype == "BF16") return Dtype::kBF16;
  return std::nullopt;
}

void read_floats(const SafetensorView& view, int64_t first, std::span<float> piece) {
  const Dtype dtype = *float_dtype(view);
  const auto* from = static_cast<const std::byte*>(view.data) + first * size_of(dtype).count;
  if (dtype == Dtype::kF32) return widen<float>(from, piece);
  if (dtype == Dtype::kF16) return widen<Float16>(from, piece);
  widen<BFloat16>(from, piece);
}

std::vector<std::string> ModelFolder::names() const {
  std::vector<std::string> all;
  for (const SafetensorView* view : files_.tensors()) all.push_back(view->name);
  return all;
}

std::vector<StoredTensors> stored_tensors(const BoundModel& model) {
  const Format& format = model.format();
  const Scheme scheme = without_randomness(model.forward(1, model.context()));
  std::vector<StoredTensors> all;
  for (const Value v : scheme.inputs) {
    const Object& object = scheme[v];
    if (object.role != Role::kParameter) continue;
    const Type& type = object.type;
    const auto stored = stored_parameter(format, object.source.path, type.rank() ? type.dim(0) : 1);
    if (!stored) {
      fail(model.text().file, ": its format ", format.kind, " names no module that has '",
           to_string(object.source), "'");
    }
    StoredTensors tensors{.source = object.source,
                          .type = type,
                          .names = stored->names,
                          .short_names = stored->short_names};
    for (int a = stored->stacked ? 1 : 0; a < type.rank(); ++a)
      tensors.shape.push_back(type.dim(a));
    tensors.transposed = stored->transposed && tensors.shape.size() == 2;
    if (tensors.transposed) std::swap(tensors.shape[0], tensors.shape[1]);
    all.push_back(std::move(tensors));
  }
  return all;
}

std::vector<ParameterValues> ModelFolder::parameters(const BoundModel& model) const {
  const std::string folder = path().string();
  std::vector<ParameterValues> all;
  std::set<std::string_view> used;
  for (StoredTensors& wanted : stored_tensors(model)) {
    std::vector<const SafetensorView*> parts;
    for (size_t e = 0; e < wanted.names.size(); ++e) {
      const SafetensorView* view = find(wanted.names[e]);
      if (!view) view = find(wanted.short_names[e]);
      if (!view) {
        fail(folder, ": there is no tensor '", wanted.names[e], "', which is '",
             to_string(wanted.source), "' of ", model.text().file);
      }
      if (!float_dtype(*view)) {
        fail(folder, ": tensor '", view->name, "' is ", view->dtype, ", wanted F32, F16 or BF16");
      }
      if (view->shape != wanted.shape) {
        fail(folder, ": tensor '", view->name, "' is ", shape_words(view->shape), ", wanted ",
             shape_words(wanted.shape), " by config.json");
      }
      used.insert(view->name);
      parts.push_back(view);
    }
    const Dtype dtype = *float_dtype(*parts[0]);
    GiveValues give =
        wanted.transposed ? turned_values(parts, wanted.shape) : plain_values(parts, wanted.shape);
    all.push_back({std::move(wanted), dtype, std::move(give)});
  }
  for (const SafetensorView* view : files_.tensors()) {
    const std::string& name = view->name;
    if (used.count(name)) continue;
    if (is_ignored_tensor(model.format(), name, model.text().file, model.settings())) continue;
    fail(folder, ": tensor '", name, "' is no parameter of ", model.text().file,
         " with this config.json");
  }
  return all;
}

void ModelFolder::load(const BoundModel& model, Run& run) const {
  for (const ParameterValues& p : parameters(model)) {
    write_parameter(run, p.stored.source, p.stored.type.num_elements(), p.give);
  }
}

}  // namespace adjoint
