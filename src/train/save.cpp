#include "train/save.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "base/error.h"
#include "base/file.h"
#include "data/safetensors.h"

namespace adjoint {

namespace fs = std::filesystem;

namespace {

std::string format_name(Dtype dtype) {
  constexpr const char* names[] = {"F64", "F32", "BF16", "F16", "I64", "I32"};
  return names[static_cast<size_t>(dtype)];
}

std::vector<SafetensorView> views(const Run& run, Role role) {
  std::vector<SafetensorView> tensors;
  for (const Value v : run.scheme().inputs) {
    const Object& object = run.scheme()[v];
    if (object.role != role) continue;
    CHECK(object.type.num_elements() == object.type.num_physical(), "state on a CPU is not padded");
    SafetensorView view{.name = to_string(object.source),
                        .dtype = format_name(object.type.dtype),
                        .shape = {},
                        .data = run.data(v),
                        .size = object.type.bytes()};
    for (const Axis& axis : object.type.axes) view.shape.push_back(axis.size);
    tensors.push_back(std::move(view));
  }
  return tensors;
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

// The tensors of the file fit the run's one to one.
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

void copy_in(const SafetensorsFile& file, const std::vector<SafetensorView>& into) {
  for (const SafetensorView& view : into) {
    std::memcpy(const_cast<void*>(view.data), file.find(view.name)->data, view.size.count);
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
  if (!fs::exists(paths.model())) return std::nullopt;
  return step_of(SafetensorsFile(paths.model()), paths.model());
}

void save_state(const SavePaths& paths, const Run& run, int64_t step) {
  const std::map<std::string, std::string> metadata = {{"format", "adjoint"},
                                                       {"step", std::to_string(step)}};
  AtomicFile model(paths.model()), optimizer(paths.optimizer());
  write_safetensors(model, views(run, Role::kParameter), metadata);
  write_safetensors(optimizer, views(run, Role::kState), metadata);
  model.finish();
  optimizer.commit();
  model.commit();
}

int64_t load_state(const SavePaths& paths, Run& run, bool with_optimizer) {
  if (!fs::exists(paths.model()) && !fs::exists(AtomicFile::new_name(paths.model()))) {
    fail(paths.folder.string(), ": there is no save here (no model.safetensors)");
  }
  finish_interrupted_save(paths);
  const SafetensorsFile model(paths.model());
  const int64_t step = step_of(model, paths.model());
  const auto parameters = views(run, Role::kParameter), states = views(run, Role::kState);
  check_fits(model, paths.model(), parameters);
  if (with_optimizer) {
    const SafetensorsFile optimizer(paths.optimizer());
    check_fits(optimizer, paths.optimizer(), states);
    const int64_t other = step_of(optimizer, paths.optimizer());
    if (other != step) {
      fail(paths.optimizer().string(), ": this is the state of step ", other,
           ", but the parameters are of step ", step);
    }
    copy_in(optimizer, states);
  }
  copy_in(model, parameters);
  return step;
}

nlohmann::json read_json(const fs::path& file) {
  const std::string text = read_file(file);
  nlohmann::json json = nlohmann::json::parse(text, nullptr, false);
  if (json.is_discarded() || !json.is_object()) fail(file.string(), ": this is not a JSON object");
  return json;
}

}  // namespace adjoint
