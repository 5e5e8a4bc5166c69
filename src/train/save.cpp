#include "train/save.h"

#include <fmt/format.h>

#include <atomic>
#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <numeric>
#include <set>

#include "base/error.h"
#include "base/file.h"
#include "base/philox.h"
#include "base/text.h"
#include "data/safetensors.h"
#include "device/parallel.h"
#include "kernels/cuda/cublaslt/product_table.h"
#include "scheme/elements.h"
#include "train/checksum.h"
#include "train/saved_tensors.h"
#include "train/state_copy.h"

namespace adjoint {

namespace fs = std::filesystem;

namespace {

// Nothing if the format's dtype is not a float that a parameter can have.
std::optional<Dtype> float_named(const std::string& name) {
  for (const Dtype dtype : {Dtype::kF32, Dtype::kBF16, Dtype::kF16}) {
    if (format_name(dtype) == name) return dtype;
  }
  return std::nullopt;
}

// Calls use(first, numbers) for consecutive pieces of a tensor of floats, on all threads. Pieces
// are copied, because a file's bytes may be unaligned.
template <class Use>
void for_floats(const SafetensorView& view, const Use& use) {
  constexpr int64_t piece = 1024;
  const Dtype dtype = *float_named(view.dtype);
  const int64_t size = size_of(dtype).count;
  const auto* bytes = static_cast<const std::byte*>(view.data);
  parallel_for(view.size.count / size, 1 << 16, [&](int64_t begin, int64_t end, int) {
    alignas(8) std::byte copy[piece * 4];
    float numbers[piece];
    for (int64_t first = begin; first < end; first += piece) {
      const int64_t n = std::min(piece, end - first);
      std::memcpy(copy, bytes + first * size, n * size);
      for (int64_t i = 0; i < n; ++i) {
        numbers[i] = static_cast<float>(load_element(copy, dtype, i));
      }
      use(first, std::span<const float>(numbers, n));
    }
  });
}

// A stack that holds a parameter in 16 bits allows rounding, but not overflow to infinity.
void check_narrows(const SafetensorView& have, Dtype to, const fs::path& path) {
  std::atomic<bool> fits = true;
  for_floats(have, [&](int64_t, std::span<const float> numbers) {
    for (const float n : numbers) {
      if (!std::isfinite(round_element(n, to))) fits = false;
    }
  });
  if (!fits) {
    fail(path.string(), ": '", have.name, "' has values that are too large for ", name(to),
         ", in which the stack holds it");
  }
}

std::string shape_text(const std::vector<int64_t>& shape) {
  std::string out = "[";
  for (size_t i = 0; i < shape.size(); ++i) out += (i ? ", " : "") + std::to_string(shape[i]);
  return out + "]";
}

// Checks that the file has exactly the wanted tensors. With `other_widths`, floats may have another
// width.
void check_fits(const SafetensorsFile& file, const fs::path& path,
                const std::vector<SafetensorView>& wanted, bool other_widths) {
  const auto other_model = [&](const std::string& difference) {
    fail(path.string(), ": this is a save of another model: ", difference);
  };
  for (const SafetensorView& want : wanted) {
    const SafetensorView* have = file.find(want.name);
    if (!have) other_model("it has no '" + want.name + "'");
    const bool widths = other_widths && float_named(have->dtype) && float_named(want.dtype);
    if (have->shape != want.shape || (have->dtype != want.dtype && !widths)) {
      other_model("its '" + want.name + "' is " + have->dtype + shape_text(have->shape) +
                  ", this model's is " + want.dtype + shape_text(want.shape));
    }
  }
  if (file.tensors().size() == wanted.size()) return;
  for (const SafetensorView& have : file.tensors()) {
    const auto same = [&](const SafetensorView& want) { return want.name == have.name; };
    if (std::none_of(wanted.begin(), wanted.end(), same)) {
      other_model("it has '" + have.name + "', which this model lacks");
    }
  }
}

// Ranks that read a save together sum a share of its words each.
bool is_checksum_of(const std::string& checksum, const SafetensorsFile& file, const Seat* seat) {
  if (!seat || !is_sum_of_words(checksum)) return is_checksum_of(checksum, file.tensors());
  const Communicator& world = seat->world();
  const uint64_t mine = sum_of_share(file.tensors(), world.rank(), world.size());
  std::vector<uint64_t> all(world.size());
  world.all_gather(std::as_bytes(std::span(&mine, 1)), bytes_of(all)).wait();
  return checksum == checksum_text(std::accumulate(all.begin(), all.end(), uint64_t{0}));
}

void check_whole(const SafetensorsFile& file, const fs::path& path, const Seat* seat = nullptr) {
  const auto found = file.metadata().find("checksum");
  if (found == file.metadata().end() || !is_checksum_of(found->second, file, seat)) {
    fail(path.string(), ": this save is damaged: its checksum does not fit its numbers");
  }
}

void check_model(const SafetensorsFile& file, const fs::path& path, const std::string& model) {
  const auto found = file.metadata().find("model");
  if (found == file.metadata().end() || found->second != model) {
    fail(path.string(), ": this is a save of another model: the same shapes, computed otherwise");
  }
}

// The tensors of a file, or those in `instead`, by the same names.
void copy_in(const SafetensorsFile& file, Run& run, Role role,
             const std::map<std::string, const SafetensorView*>& instead = {}) {
  for (const Value v : inputs_of(run.scheme(), role)) {
    const Object& object = run.scheme()[v];
    const auto other = instead.find(to_string(object.source));
    const SafetensorView& have =
        other != instead.end() ? *other->second : *file.find(to_string(object.source));
    const Dtype dtype = object.type.dtype;
    const auto write = [&](const void* whole) {
      is_sharded(object) ? run.write_piece(v, whole) : run.write(v, whole);
    };
    if (have.dtype == format_name(dtype)) {
      write(have.data);
      continue;
    }
    std::vector<std::byte> data(whole_type(object).bytes().count);
    for_floats(have, [&](int64_t first, std::span<const float> numbers) {
      for (size_t i = 0; i < numbers.size(); ++i) {
        store_element(data.data(), dtype, first + static_cast<int64_t>(i), numbers[i]);
      }
    });
    write(data.data());
  }
}

}  // namespace

// Not by xxHash, because fingerprints in existing saves and profiles are stable_hash's.
std::string fingerprint(const Scheme& scheme) {
  Scheme nameless = scheme;
  nameless.name.clear();
  return fmt::format("{:016x}", stable_hash(print(nameless)));
}

namespace {
std::map<std::string, std::string> metadata_of(std::span<const SafetensorView> tensors,
                                               int64_t step, const std::string& model) {
  return save_metadata(step, model, checksum_of(tensors));
}
}  // namespace

void write_state(const SavePaths& paths, std::span<const SafetensorView> parameters,
                 std::span<const SafetensorView> states, int64_t step, const std::string& model) {
  AtomicFile new_model(paths.model()), new_optimizer(paths.optimizer());
  const auto about_model = metadata_of(parameters, step, model),
             about_optimizer = metadata_of(states, step, model);
  write_safetensors(new_model, parameters, about_model);
  write_safetensors(new_optimizer, states, about_optimizer);
  commit_save(paths, {&new_model, &new_optimizer}, step,
              {about_model.at("checksum"), about_optimizer.at("checksum")});
}

void save_state(const SavePaths& paths, const Run& run, int64_t step, const std::string& model) {
  if (needs_copy(run)) {
    StateCopy copy(run);
    copy.take();
    return copy.save(paths, step, model);
  }
  const auto parameters = views_of(run.scheme(), Role::kParameter, &run),
             states = views_of(run.scheme(), Role::kState, &run);
  check_finite(parameters);
  check_finite(states);
  write_state(paths, parameters, states, step, model);
}

void save_model(const SavePaths& paths, std::span<const SafetensorView> parameters, int64_t step,
                const std::string& model) {
  check_finite(parameters);
  AtomicFile file(paths.model());
  const auto about = metadata_of(parameters, step, model);
  write_safetensors(file, parameters, about);
  commit_save(paths, {&file}, step, {about.at("checksum")});
}

void save_parameters(const SavePaths& paths, const Run& run, int64_t step,
                     const std::string& model) {
  std::vector<SafetensorView> parameters = views_of(run.scheme(), Role::kParameter, nullptr);
  const std::vector<Value> from = inputs_of(run.scheme(), Role::kParameter);
  std::vector<std::vector<std::byte>> copies;
  for (size_t i = 0; i < from.size(); ++i) {
    copies.emplace_back(parameters[i].size.count);
    run.read(from[i], copies.back().data());
    parameters[i].data = copies.back().data();
  }
  save_model(paths, parameters, step, model);
}

SavedModel::SavedModel(const SavePaths& paths)
    : paths_(paths), save_(open_save(paths, /*with_optimizer=*/false)) {}

SavedModel::~SavedModel() = default;

namespace {
// Names and shapes are checked first, because their messages are clearer than a wrong checksum.
void check_parameters(const SafetensorsFile& file, const fs::path& path, const Scheme& scheme,
                      const Seat* seat = nullptr) {
  check_fits(file, path, views_of(scheme, Role::kParameter, nullptr), /*other_widths=*/true);
  check_whole(file, path, seat);
}
}  // namespace

void SavedModel::check_fits(const Scheme& scheme) const {
  check_parameters(*save_.model, paths_.model(), scheme);
}

void SavedModel::check_model(const std::string& model) const {
  adjoint::check_model(*save_.model, paths_.model(), model);
}

std::vector<float> SavedModel::floats(const std::string& name) const {
  const auto other = instead_.find(name);
  const SafetensorView* view = other != instead_.end() ? other->second : save_.model->find(name);
  CHECK(view && float_named(view->dtype), "asked for after check_fits: " + name);
  std::vector<float> numbers(view->size.count / size_of(*float_named(view->dtype)).count);
  for_floats(*view, [&](int64_t first, std::span<const float> piece) {
    std::copy(piece.begin(), piece.end(), numbers.begin() + first);
  });
  return numbers;
}

namespace {
void check_same_step(const OpenSave& save, const SavePaths& paths) {
  const int64_t other = step_of(*save.optimizer, paths.optimizer());
  if (other == save.step) return;
  fail(paths.optimizer().string(), ": this is the state of step ", other,
       ", but the parameters are of step ", save.step);
}

// By the name of each parameter: the state that follows it under this name.
std::map<std::string, const SafetensorView*> following(const OpenSave& save, const SavePaths& paths,
                                                       const Scheme& scheme,
                                                       const std::string& state) {
  std::map<std::string, const SafetensorView*> found;
  if (state.empty()) return found;
  std::set<std::string> known;
  const std::string path = save.optimizer ? paths.optimizer().string() : paths.folder.string();
  for (const SafetensorView& want : views_of(scheme, Role::kParameter, nullptr)) {
    if (!save.optimizer || !float_named(want.dtype)) continue;
    for (const SafetensorView& have : save.optimizer->tensors()) {
      if (!have.name.starts_with(want.name + ":") || have.shape != want.shape) continue;
      const std::string facet = have.name.substr(want.name.size() + 1);
      known.insert(facet);
      if (facet == state) found[want.name] = &have;
    }
  }
  if (found.empty()) {
    const std::vector<std::string> names(known.begin(), known.end());
    fail(path, ": no parameter has a state '", state, "'",
         names.empty() ? "" : " (there are " + join(names, ", ") + ")", did_you_mean(state, names));
  }
  check_whole(*save.optimizer, paths.optimizer());
  check_same_step(save, paths);
  return found;
}
}  // namespace

void SavedModel::take_weights(const Scheme& scheme, const std::string& state) {
  followed_ = open_save(paths_, /*with_optimizer=*/true);
  followed_.step = save_.step;  // a run may have saved again meanwhile
  instead_ = following(followed_, paths_, scheme, state);
}

namespace {
void check_to_resume(const OpenSave& save, const SavePaths& paths, const Seat* seat = nullptr) {
  if (!save.optimizer) {
    fail(paths.folder.string(),
         ": this folder holds a model without an optimizer's state, so there is no run to go on "
         "with; begin one from it with --init ",
         paths.folder.string());
  }
  check_whole(*save.optimizer, paths.optimizer(), seat);
  check_same_step(save, paths);
}
}  // namespace

OpenSave open_to_resume(const SavePaths& paths) {
  OpenSave save = open_save(paths, /*with_optimizer=*/true);
  check_to_resume(save, paths);
  return save;
}

int64_t load_state(const SavePaths& paths, Run& run, bool with_optimizer,
                   const std::string& model_print, const std::string& weights) {
  const OpenSave save = open_save(paths, with_optimizer || !weights.empty());
  check_parameters(*save.model, paths.model(), run.scheme(), run.seat());
  check_model(*save.model, paths.model(), model_print);
  for (const SafetensorView& want : views_of(run.scheme(), Role::kParameter, nullptr)) {
    const auto to = float_named(want.dtype);
    const SafetensorView& have = *save.model->find(want.name);
    if (to && want.dtype != have.dtype) check_narrows(have, *to, paths.model());
  }
  const auto instead = following(save, paths, run.scheme(), weights);
  if (with_optimizer) {
    // Names and shapes first, because their messages are clearer than a wrong checksum.
    if (save.optimizer) {
      check_fits(*save.optimizer, paths.optimizer(), views_of(run.scheme(), Role::kState, nullptr),
                 /*other_widths=*/false);
    }
    check_to_resume(save, paths, run.seat());
    copy_in(*save.optimizer, run, Role::kState);
  }
  copy_in(*save.model, run, Role::kParameter, instead);
  return save.step;
}

void save_products(const SavePaths& paths) {
  const auto alone = lock_products();
  product_table().write(paths.products());
}

void load_products(const SavePaths& paths) {
  std::error_code ignored;
  if (!fs::exists(paths.products(), ignored)) return;
  const auto alone = lock_products();
  try {
    borrow_products(TunedProducts::read(paths.products()));
  } catch (const Error& e) {
    fail(e.what(), "; without this file the run goes on with products tuned anew, and other bits");
  }
}

}  // namespace adjoint
