#include "train/store.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <map>

#include "base/error.h"
#include "base/file_view.h"
#include "base/json.h"

namespace adjoint {

namespace fs = std::filesystem;
using nlohmann::json;

int64_t step_of(const SafetensorsFile& file, const fs::path& path) {
  const auto found = file.metadata().find("step");
  if (found == file.metadata().end() || found->second.empty() ||
      found->second.find_first_not_of("0123456789") != std::string::npos ||
      found->second.size() > 15) {
    fail(path.string(), ": this is no save of Adjoint's: its metadata has no step");
  }
  return std::stoll(found->second);
}

namespace {

constexpr const char* kFormat = "adjoint save 1";
constexpr std::string_view kLockedBy = "adjoint ";  // then the writer's process

bool is_there(const fs::path& path) { return is_visible(path); }

struct Manifest {
  struct File {
    std::string temporary;  // its name until it is moved to its own
    std::string checksum;
  };
  int64_t step = 0;
  std::map<std::string, File> files = {};  // by the name that they move to
};

std::string text_of(const Manifest& manifest) {
  json files = json::object();
  for (const auto& [name, file] : manifest.files) {
    files[name] = {{"temporary", file.temporary}, {"checksum", file.checksum}};
  }
  return json{{"format", kFormat}, {"step", manifest.step}, {"files", files}}.dump(2) + "\n";
}

// Files come from strangers, so no name may lead out of the folder.
Manifest parse_manifest(const std::string& text, const SavePaths& paths) {
  const json all = parse_json(text, paths.manifest().string());
  const auto no_manifest = [&] {
    fail(paths.manifest().string(), ": this is no manifest of a save ('", kFormat, "')");
  };
  const bool ours = all.is_object() && all.contains("format") && all["format"] == kFormat &&
                    all.contains("step") && all["step"].is_number_unsigned() &&
                    all.contains("files") && all["files"].is_object();
  if (!ours) no_manifest();
  Manifest manifest{.step = all["step"].get<int64_t>()};
  for (const auto& [name, entry] : all["files"].items()) {
    const fs::path own = paths.folder / name;
    const bool whole = (own == paths.model() || own == paths.optimizer()) && entry.is_object() &&
                       entry.contains("temporary") && entry["temporary"].is_string() &&
                       entry.contains("checksum") && entry["checksum"].is_string();
    if (!whole) no_manifest();
    const auto temporary = entry["temporary"].get<std::string>();
    if (temporary.find('/') != std::string::npos || !AtomicFile::is_temporary_of(own, temporary)) {
      no_manifest();
    }
    manifest.files[name] = {temporary, entry["checksum"].get<std::string>()};
  }
  return manifest;
}

// Nothing if there is no manifest: a folder of an earlier version, or one without a save.
std::optional<std::string> manifest_text(const SavePaths& paths) {
  if (!is_there(paths.manifest())) return std::nullopt;
  return read_file(paths.manifest());
}

struct NamedFile {
  fs::path path = {};
  std::unique_ptr<SafetensorsFile> file = nullptr;
};

// The file that the manifest refers to, under its temporary or final name; null if neither matches.
NamedFile open_file(const SavePaths& paths, const Manifest& manifest, const std::string& name) {
  const Manifest::File& wanted = manifest.files.at(name);
  for (const fs::path& path : {paths.folder / wanted.temporary, paths.folder / name}) {
    try {
      auto file = std::make_unique<SafetensorsFile>(path);
      const auto checksum = file->metadata().find("checksum");
      if (step_of(*file, path) == manifest.step && checksum != file->metadata().end() &&
          checksum->second == wanted.checksum) {
        return {path, std::move(file)};
      }
    } catch (const Error&) {  // it does not exist, or is incomplete
    }
  }
  return {};
}

// Nothing if the files are not those that the manifest refers to.
std::optional<OpenSave> open_by_manifest(const SavePaths& paths, const Manifest& manifest,
                                         bool with_optimizer) {
  OpenSave save{.model = nullptr, .optimizer = nullptr, .step = manifest.step};
  for (const auto& [name, wanted] : manifest.files) {
    if (!with_optimizer && paths.folder / name == paths.optimizer()) continue;
    auto file = open_file(paths, manifest, name).file;
    if (!file) return std::nullopt;
    (paths.folder / name == paths.model() ? save.model : save.optimizer) = std::move(file);
  }
  if (!save.model) return std::nullopt;
  return save;
}

// Before there were manifests, both files of a save were written as NAME.new; then the optimizer's
// was renamed, then the model's. A crash between the two left the model's file as NAME.new.
fs::path model_without_manifest(const SavePaths& paths) {
  const fs::path fresh = paths.model().string() + ".new";
  if (!is_there(fresh) || !is_there(paths.optimizer())) return paths.model();
  try {
    const int64_t step = step_of(SafetensorsFile(fresh), fresh);
    if (step != step_of(SafetensorsFile(paths.optimizer()), paths.optimizer())) {
      return paths.model();
    }
    if (is_there(paths.model()) && step == step_of(SafetensorsFile(paths.model()), paths.model())) {
      return paths.model();
    }
    return fresh;
  } catch (const Error&) {
    return paths.model();  // the leftover is incomplete, so the file in place is the save
  }
}

// A folder without a manifest: written by an earlier version, or filled by hand. Both files must be
// of one step.
OpenSave open_without_manifest(const SavePaths& paths, bool with_optimizer) {
  const fs::path path = model_without_manifest(paths);
  if (!is_there(path)) {
    fail(paths.folder.string(), ": there is no save here (no model.safetensors)");
  }
  OpenSave save{.model = std::make_unique<SafetensorsFile>(path), .optimizer = nullptr, .step = 0};
  save.step = step_of(*save.model, path);
  if (!with_optimizer || !is_there(paths.optimizer())) return save;
  save.optimizer = std::make_unique<SafetensorsFile>(paths.optimizer());
  return save;
}

std::vector<fs::path> files_of(const SavePaths& paths) {
  return {paths.model(), paths.optimizer(), paths.manifest(), paths.run(),
          paths.text(),  paths.tokenizer(), paths.metrics(),  paths.products(),
          paths.rule(),  paths.spikes(),    paths.spike(),    paths.position()};
}

std::vector<fs::path> files_in(const fs::path& folder) {
  std::vector<fs::path> files;
  std::error_code ignored;
  for (fs::directory_iterator entry(folder, ignored), end; entry != end; entry.increment(ignored)) {
    files.push_back(entry->path());
  }
  return files;
}

// Folders of what the stack took from files, and what files are called there.
std::array<std::pair<fs::path, std::string_view>, 2> own_files(const SavePaths& paths) {
  return {{{paths.functors(), ".functor"}, {paths.schedules(), ".schedule"}}};
}

void remove_temporaries(const SavePaths& paths) {
  std::error_code ignored;
  std::vector<fs::path> owners = files_of(paths);
  owners.push_back(paths.folder / ".probe");
  for (const fs::path& file : files_in(paths.folder)) {
    for (const fs::path& owner : owners) {
      if (AtomicFile::is_temporary_of(owner, file)) fs::remove(file, ignored);
    }
  }
  for (const auto& [folder, ending] : own_files(paths)) {
    for (const fs::path& file : files_in(folder)) {
      const std::string name = file.filename().string();
      const size_t end = name.rfind(ending);
      if (end == std::string::npos) continue;
      const std::string owner = name.substr(0, end + ending.size());
      if (AtomicFile::is_temporary_of(owner, name)) fs::remove(file, ignored);
    }
  }
}

// Moves the files of the current save to their own names, and removes what belongs to no save.
void settle(const SavePaths& paths) {
  bool moved = false;
  const auto move = [&](const fs::path& from, const fs::path& to) {
    if (from == to || !is_there(from)) return;
    if (std::rename(from.c_str(), to.c_str()) != 0) fail_to_write(to, errno);
    moved = true;
  };
  const auto text = manifest_text(paths);
  const Manifest manifest = text ? parse_manifest(*text, paths) : Manifest{};
  if (open_by_manifest(paths, manifest, /*with_optimizer=*/true)) {
    for (const auto& [name, file] : manifest.files) {
      move(open_file(paths, manifest, name).path, paths.folder / name);
    }
  } else {
    move(model_without_manifest(paths), paths.model());
  }
  if (moved) sync_folder(paths.folder);
  remove_temporaries(paths);
}

}  // namespace

void check_writable(const SavePaths& paths) {
  std::error_code error;
  fs::create_directories(checked_output(paths.folder), error);
  if (error || !fs::is_directory(paths.folder)) {
    fail(paths.folder.string(),
         ": this folder cannot be made: ", error ? error.message() : "something else is there");
  }
  AtomicFile probe(paths.folder / ".probe");  // removed on return
  probe.write("can this be written?");
  probe.finish();
}

FolderLock::FolderLock(const SavePaths& paths, Left left) {
  const fs::path lock = paths.lock();
  file_ = ::open(checked_output(lock).c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0644);
  if (file_ < 0) fail_to_write(lock, errno);
  if (::flock(file_, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) {
      const int error = errno;
      ::close(file_);
      fail(lock.string(), ": cannot be locked: ", std::strerror(error));
    }
    char said[64] = {};
    const ssize_t size = ::pread(file_, said, sizeof said - 1, 0);
    ::close(file_);
    const std::string by(said, size > 0 ? size : 0);
    const size_t digits = by.find_first_not_of("0123456789", kLockedBy.size());
    const bool named = by.starts_with(kLockedBy) && digits != std::string::npos;
    fail(paths.folder.string(), ": another run is writing to this folder",
         named ? " (process " + by.substr(kLockedBy.size(), digits - kLockedBy.size()) + ")" : "");
  }
  try {
    if (left == Left::kSettled) settle(paths);
  } catch (...) {
    ::close(file_);
    throw;
  }
  // The writer's process, for messages and for holds_run. Failing to write it does no harm.
  const std::string by = std::string(kLockedBy) + std::to_string(::getpid()) + "\n";
  if (::ftruncate(file_, 0) == 0) (void)!::pwrite(file_, by.data(), by.size(), 0);
}

FolderLock::~FolderLock() { ::close(file_); }

std::optional<int64_t> saved_step(const SavePaths& paths) {
  if (!is_there(paths.manifest()) && !is_there(model_without_manifest(paths))) return std::nullopt;
  return open_save(paths, /*with_optimizer=*/false).step;
}

std::optional<int64_t> step_to_resume(const SavePaths& paths) {
  try {
    const OpenSave save = open_save(paths, /*with_optimizer=*/true);
    if (save.optimizer && step_of(*save.optimizer, paths.optimizer()) == save.step) {
      return save.step;
    }
  } catch (const std::exception&) {  // there is no save, or it cannot be opened
  }
  return std::nullopt;
}

std::string holds_run(const SavePaths& paths) {
  try {
    if (const auto step = saved_step(paths)) return "at step " + std::to_string(*step);
  } catch (const Error&) {
    // A damaged run must not be overwritten without --overwrite either.
  }
  for (const fs::path& file : {paths.model(), paths.optimizer(), paths.manifest()}) {
    if (is_there(file)) return file.filename().string();
  }
  // Our lock without a save: a run that died before its first save. Without our lock, files of
  // these names are not ours.
  try {
    if (is_there(paths.lock()) && read_file(paths.lock()).starts_with(kLockedBy)) return "";
  } catch (const Error&) {
  }
  for (const fs::path& file : files_of(paths)) {
    if (is_there(file)) return file.filename().string();
  }
  return "";
}

void remove_run(const SavePaths& paths) {
  const auto remove = [](const fs::path& file) {
    std::error_code error;
    fs::remove(file, error);
    if (error) fail(file.string(), ": cannot be removed: ", error.message());
  };
  for (const fs::path& file : files_of(paths)) remove(file);
  for (const auto& [folder, ending] : own_files(paths)) {
    for (const fs::path& file : files_in(folder)) {
      if (file.extension() == ending) remove(file);
    }
  }
  remove_temporaries(paths);
  for (const auto& [folder, ending] : own_files(paths)) {
    std::error_code ignored;
    if (fs::is_empty(folder, ignored)) fs::remove(folder, ignored);
  }
}

void commit_save(const SavePaths& paths, const std::vector<AtomicFile*>& files, int64_t step,
                 const std::vector<std::string>& checksums) {
  Manifest manifest{.step = step};
  for (size_t i = 0; i < files.size(); ++i) {
    std::error_code ignored;
    if (fs::is_directory(files[i]->path(), ignored)) fail_to_write(files[i]->path(), EISDIR);
    files[i]->finish();
    manifest.files[files[i]->path().filename().string()] = {
        files[i]->temporary().filename().string(), checksums[i]};
  }
  AtomicFile file(paths.manifest());
  file.write(text_of(manifest));
  file.finish();
  sync_folder(paths.folder);  // the files must be durable before the manifest
  file.replace();             // from here on this is the save
  for (AtomicFile* part : files) part->keep();
  const auto told = [&](const std::exception& e) {
    return fmt::format(
        "{}; the save of step {} stands all the same, and whoever writes here next moves its files "
        "to their names",
        e.what(), step);
  };
  try {
    sync_folder(paths.folder);
    for (AtomicFile* part : files) part->replace();
    sync_folder(paths.folder);
  } catch (const Error& e) {
    throw Error(told(e));
  } catch (const MachineError& e) {
    throw MachineError(told(e));
  }
}

OpenSave open_save(const SavePaths& paths, bool with_optimizer) {
  std::optional<std::string> text = manifest_text(paths);
  while (text) {
    const Manifest manifest = parse_manifest(*text, paths);
    if (auto save = open_by_manifest(paths, manifest, with_optimizer)) return std::move(*save);
    // A writer may have replaced the files since the manifest was read; then it has written a new
    // manifest first.
    std::optional<std::string> now = manifest_text(paths);
    if (now == text) break;
    text = std::move(now);
  }
  return open_without_manifest(paths, with_optimizer);
}

}  // namespace adjoint
