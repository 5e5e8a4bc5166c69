#include "train/save.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <memory>

#include "base/error.h"
#include "base/file.h"
#include "base/philox.h"
#include "data/safetensors.h"
#include "device/parallel.h"
#include "ops/product_table.h"

namespace adjoint {

namespace fs = std::filesystem;

namespace {

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

// Of what a scheme takes in this role; the run, if there is one, holds the data.
std::vector<SafetensorView> views(const Scheme& scheme, Role role, const Run* run) {
  std::vector<SafetensorView> tensors;
  for (const Value v : inputs_of(scheme, role)) {
    const Object& object = scheme[v];
    CHECK(object.type.num_elements() == object.type.num_physical(), "state is not padded");
    SafetensorView view{.name = to_string(object.source),
                        .dtype = format_name(object.type.dtype),
                        .shape = {},
                        .data = run ? run->data(v) : nullptr,
                        .size = object.type.bytes()};
    for (const Axis& axis : object.type.axes) view.shape.push_back(axis.size);
    tensors.push_back(std::move(view));
  }
  return tensors;
}
std::vector<SafetensorView> views(const Run& run, Role role) {
  return views(run.scheme(), role, &run);
}

int64_t step_of(const SafetensorsFile& file, const fs::path& path) {
  const auto found = file.metadata().find("step");
  if (found == file.metadata().end() || found->second.empty() ||
      found->second.find_first_not_of("0123456789") != std::string::npos ||
      found->second.size() > 15) {
    fail(path.string(), ": this is no save of Adjoint's: its metadata has no step");
  }
  return std::stoll(found->second);
}

std::string shape_text(const std::vector<int64_t>& shape) {
  std::string out = "[";
  for (size_t i = 0; i < shape.size(); ++i) out += (i ? ", " : "") + std::to_string(shape[i]);
  return out + "]";
}

// The tensors of the file fit what is wanted one to one.
void check_fits(const SafetensorsFile& file, const fs::path& path,
                const std::vector<SafetensorView>& wanted) {
  const auto other_model = [&](const std::string& difference) {
    fail(path.string(), ": this is a save of another model: ", difference);
  };
  for (const SafetensorView& want : wanted) {
    const SafetensorView* have = file.find(want.name);
    if (!have) other_model("it has no '" + want.name + "'");
    if (have->shape != want.shape || have->dtype != want.dtype) {
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

// Eight bytes at a time, in four lanes: a save of gigabytes is read anyway, and this keeps pace.
uint64_t checksum(const void* data, Bytes size, uint64_t seed) {
  uint64_t lanes[4] = {seed, seed + 1, seed + 2, seed + 3};
  const auto* bytes = static_cast<const unsigned char*>(data);
  const auto mix = [](uint64_t h, uint64_t word) {
    h = (h ^ word) * 0x9E3779B97F4A7C15;
    return h ^ (h >> 29);
  };
  int64_t i = 0;
  for (; i + 32 <= size.count; i += 32) {
    uint64_t words[4];
    std::memcpy(words, bytes + i, 32);
    for (int k = 0; k < 4; ++k) lanes[k] = mix(lanes[k], words[k]);
  }
  for (; i < size.count; ++i) lanes[i % 4] = mix(lanes[i % 4], bytes[i]);
  return mix(mix(mix(lanes[0], lanes[1]), lanes[2]), lanes[3]);
}

// Of all tensors, whatever their order.
std::string checksum_of(std::span<const SafetensorView> tensors) {
  uint64_t sum = 0;
  for (const SafetensorView& t : tensors) sum += checksum(t.data, t.size, stable_hash(t.name));
  return fmt::format("{:016x}", sum);
}

void check_whole(const SafetensorsFile& file, const fs::path& path) {
  const auto found = file.metadata().find("checksum");
  if (found == file.metadata().end() || found->second != checksum_of(file.tensors())) {
    fail(path.string(), ": this save is damaged: its checksum does not fit its numbers");
  }
}

void check_model(const SafetensorsFile& file, const fs::path& path, const std::string& model) {
  const auto found = file.metadata().find("model");
  if (found == file.metadata().end() || found->second != model) {
    fail(path.string(), ": this is a save of another model: the same shapes, computed otherwise");
  }
}

void check_finite(std::span<const SafetensorView> tensors) {
  for (const SafetensorView& t : tensors) {
    if (t.dtype == "I8" || t.dtype == "U8") continue;  // codes of a quantized matrix
    CHECK(t.dtype == "F32", "state is float32");
    const auto* numbers = static_cast<const float*>(t.data);
    std::atomic<bool> finite = true;
    parallel_for(t.size.count / 4, 1 << 16, [&](int64_t begin, int64_t end, int) {
      float zero = 0;  // 0 * x is 0 unless x is infinite or not a number
      for (int64_t i = begin; i < end; ++i) zero += 0.0f * numbers[i];
      if (zero != 0.0f) finite = false;
    });
    if (!finite) fail("'", t.name, "' holds values that are no longer numbers");
  }
}

void copy_in(const SafetensorsFile& file, Run& run, Role role) {
  for (const Value v : inputs_of(run.scheme(), role)) {
    run.write(v, file.find(to_string(run.scheme()[v].source))->data);
  }
}

// A crash between the two moves of a save left one new file in its place and one beside it.
void finish_interrupted_save(const SavePaths& paths) {
  const fs::path fresh = AtomicFile::new_name(paths.model());
  if (!fs::exists(fresh) || !fs::exists(paths.optimizer())) return;
  try {
    const int64_t step = step_of(SafetensorsFile(fresh), fresh);
    if (step != step_of(SafetensorsFile(paths.optimizer()), paths.optimizer())) return;
    if (fs::exists(paths.model()) &&
        step == step_of(SafetensorsFile(paths.model()), paths.model())) {
      return;
    }
  } catch (const Error&) {
    return;  // what was left beside is not whole; the save in place stands
  }
  fs::rename(fresh, paths.model());
}

}  // namespace

void check_writable(const SavePaths& paths) {
  std::error_code error;
  fs::create_directories(paths.folder, error);
  if (error || !fs::is_directory(paths.folder)) {
    fail(paths.folder.string(),
         ": this folder cannot be made: ", error ? error.message() : "something else is there");
  }
  const fs::path probe = paths.folder / ".probe";
  write_file_atomically(probe, "can this be written?");
  fs::remove(probe, error);
}

std::optional<int64_t> saved_step(const SavePaths& paths) {
  std::error_code ignored;
  if (!fs::exists(paths.model(), ignored)) return std::nullopt;
  return step_of(SafetensorsFile(paths.model()), paths.model());
}

FolderLock::FolderLock(const SavePaths& paths) {
  const fs::path lock = paths.folder / ".lock";
  file_ = ::open(lock.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0644);
  if (file_ < 0) fail(lock.string(), ": cannot be written: ", std::strerror(errno));
  if (::flock(file_, LOCK_EX | LOCK_NB) != 0) {
    ::close(file_);
    fail(paths.folder.string(), ": another run is writing to this folder");
  }
}

FolderLock::~FolderLock() { ::close(file_); }

namespace {
std::vector<fs::path> files_of(const SavePaths& paths) {
  return {paths.model(),
          paths.optimizer(),
          AtomicFile::new_name(paths.model()),
          AtomicFile::new_name(paths.optimizer()),
          paths.run(),
          paths.text(),
          paths.tokenizer(),
          paths.metrics(),
          paths.products()};
}
}  // namespace

std::string holds_run(const SavePaths& paths) {
  std::error_code ignored;
  try {
    if (const auto step = saved_step(paths)) return "at step " + std::to_string(*step);
  } catch (const Error&) {
    // Damaged, and still not ours to overwrite unasked.
  }
  for (const fs::path& file : files_of(paths)) {
    if (fs::exists(file, ignored)) return file.filename().string();
  }
  return "";
}

void remove_run(const SavePaths& paths) {
  std::error_code ignored;
  for (const fs::path& file : files_of(paths)) fs::remove(file, ignored);
  std::vector<fs::path> functors;
  for (const auto& entry : fs::directory_iterator(paths.functors(), ignored)) {
    if (entry.path().extension() == ".functor") functors.push_back(entry.path());
  }
  for (const fs::path& file : functors) fs::remove(file, ignored);
  if (fs::is_empty(paths.functors(), ignored)) fs::remove(paths.functors(), ignored);
}

std::string fingerprint(const Scheme& scheme) {
  Scheme nameless = scheme;
  nameless.name.clear();
  return fmt::format("{:016x}", stable_hash(print(nameless)));
}

namespace {
std::map<std::string, std::string> metadata_of(std::span<const SafetensorView> tensors,
                                               int64_t step, const std::string& model) {
  return {{"format", "adjoint"},
          {"step", std::to_string(step)},
          {"model", model},
          {"checksum", checksum_of(tensors)}};
}
}  // namespace

namespace {
// Both files are complete on disk before either takes its place.
void write_state(const SavePaths& paths, std::span<const SafetensorView> parameters,
                 std::span<const SafetensorView> states, int64_t step, const std::string& model) {
  AtomicFile new_model(paths.model()), new_optimizer(paths.optimizer());
  write_safetensors(new_model, parameters, metadata_of(parameters, step, model));
  write_safetensors(new_optimizer, states, metadata_of(states, step, model));
  new_model.finish();
  new_optimizer.commit();
  new_model.commit();
}
}  // namespace

void save_state(const SavePaths& paths, const Run& run, int64_t step, const std::string& model) {
  if (run.on_gpu()) {  // a file is written from the host's memory
    StateCopy copy(run);
    copy.take();
    return copy.save(paths, step, model);
  }
  const auto parameters = views(run, Role::kParameter), states = views(run, Role::kState);
  check_finite(parameters);
  check_finite(states);
  write_state(paths, parameters, states, step, model);
}

StateCopy::StateCopy(const Run& run) : run_(run) {
  for (const Role role : {Role::kParameter, Role::kState}) {
    for (const Value v : inputs_of(run.scheme(), role)) size_ += run.scheme()[v].type.bytes();
  }
}

void StateCopy::take() {
  if (!bytes_) bytes_ = std::make_unique_for_overwrite<std::byte[]>(size_.count);
  std::byte* next = bytes_.get();
  const auto copied = [&](Role role) {
    std::vector<SafetensorView> to = views(run_.scheme(), role, nullptr);
    const std::vector<Value> from = inputs_of(run_.scheme(), role);
    for (size_t i = 0; i < to.size(); ++i) {
      run_.read(from[i], next);
      to[i].data = next;
      next += to[i].size.count;
    }
    check_finite(to);
    return to;
  };
  parameters_ = copied(Role::kParameter);
  states_ = copied(Role::kState);
}

void StateCopy::save(const SavePaths& paths, int64_t step, const std::string& model) const {
  write_state(paths, parameters_, states_, step, model);
}

void save_model(const SavePaths& paths, std::span<const SafetensorView> parameters, int64_t step,
                const std::string& model) {
  check_finite(parameters);
  AtomicFile file(paths.model());
  write_safetensors(file, parameters, metadata_of(parameters, step, model));
  file.finish();
  file.commit();
}

SavedModel::SavedModel(const SavePaths& paths) : path_(paths.model()) {
  std::error_code ignored;
  if (!fs::exists(path_, ignored) && !fs::exists(AtomicFile::new_name(path_), ignored)) {
    fail(paths.folder.string(), ": there is no save here (no model.safetensors)");
  }
  finish_interrupted_save(paths);
  file_ = std::make_unique<SafetensorsFile>(path_);
  step_ = step_of(*file_, path_);
}

SavedModel::~SavedModel() = default;

// Names and shapes first: what they say is clearer than a checksum.
void SavedModel::check_fits(const Scheme& scheme) const {
  adjoint::check_fits(*file_, path_, views(scheme, Role::kParameter, nullptr));
  check_whole(*file_, path_);
}

void SavedModel::check_model(const std::string& model) const {
  adjoint::check_model(*file_, path_, model);
}

std::vector<float> SavedModel::floats(const std::string& name) const {
  const SafetensorView* view = file_->find(name);
  CHECK(view && view->dtype == "F32", "asked for after check_fits: " + name);
  std::vector<float> numbers(view->size.count / 4);
  std::memcpy(numbers.data(), view->data, view->size.count);
  return numbers;
}

int64_t load_state(const SavePaths& paths, Run& run, bool with_optimizer,
                   const std::string& model_print) {
  const SavedModel saved(paths);
  const SafetensorsFile& model = saved.file();
  const int64_t step = saved.step();
  saved.check_fits(run.scheme());
  saved.check_model(model_print);
  std::error_code ignored;
  if (with_optimizer) {
    if (!fs::exists(paths.optimizer(), ignored)) {
      fail(paths.folder.string(),
           ": this folder holds a model without an optimizer's state, so there is no run to go on "
           "with; begin one from it with --init ",
           paths.folder.string());
    }
    const SafetensorsFile optimizer(paths.optimizer());
    check_fits(optimizer, paths.optimizer(), views(run.scheme(), Role::kState, nullptr));
    check_whole(optimizer, paths.optimizer());
    const int64_t other = step_of(optimizer, paths.optimizer());
    if (other != step) {
      fail(paths.optimizer().string(), ": this is the state of step ", other,
           ", but the parameters are of step ", step);
    }
    copy_in(optimizer, run, Role::kState);
  }
  copy_in(model, run, Role::kParameter);
  return step;
}

void save_products(const SavePaths& paths) { product_table().write(paths.products()); }

void load_products(const SavePaths& paths) {
  std::error_code ignored;
  if (!fs::exists(paths.products(), ignored)) return;
  try {
    borrow_products(TunedProducts::read(paths.products()));
  } catch (const Error& e) {
    fail(e.what(), "; without this file the run goes on with products tuned anew, and other bits");
  }
}

nlohmann::json read_json(const fs::path& file) {
  const std::string text = read_file(file);
  nlohmann::json json = nlohmann::json::parse(text, nullptr, false);
  if (json.is_discarded() || !json.is_object()) fail(file.string(), ": this is not a JSON object");
  return json;
}

}  // namespace adjoint
