// A run's folder as a small store with one writer and any number of readers.
//   model.safetensors      parameters by source path; metadata: step
//   optimizer.safetensors  the optimizer's state; metadata: step
//   save.json              the manifest: which two files are one save
//   run.json               the settings;  model.scheme  the model's text;  tokenizer.json
//   metrics.jsonl          one line per logged step
//   functors/*.functor     the stack's own functors that came from files
//   products.json          on a GPU: the algorithms that its matrix products were given
//   .lock                  held by the one run that writes here
// A save is written under temporary names, and it counts from the moment when the manifest that
// names them takes its place; only then do the files move to their own names. So at every moment
// the manifest leads to a complete save, under either name. Readers change nothing in the folder;
// what a dead writer left behind is cleared away by the next writer, under its lock. Written by
// hand and not a database, because other tools read these files.
#pragma once
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/file.h"
#include "data/safetensors.h"

namespace adjoint {

struct SavePaths {
  explicit SavePaths(std::filesystem::path folder) : folder(std::move(folder)) {}
  std::filesystem::path folder;
  std::filesystem::path model() const { return folder / "model.safetensors"; }
  std::filesystem::path optimizer() const { return folder / "optimizer.safetensors"; }
  std::filesystem::path manifest() const { return folder / "save.json"; }
  std::filesystem::path run() const { return folder / "run.json"; }
  std::filesystem::path text() const { return folder / "model.scheme"; }
  std::filesystem::path tokenizer() const { return folder / "tokenizer.json"; }
  std::filesystem::path metrics() const { return folder / "metrics.jsonl"; }
  std::filesystem::path functors() const { return folder / "functors"; }
  std::filesystem::path products() const { return folder / "products.json"; }
  std::filesystem::path lock() const { return folder / ".lock"; }
};

// Makes the folder and tries to write in it; Error.
void check_writable(const SavePaths& paths);

// While it lives, no other run writes to the folder; an Error when one does already. What a writer
// that died has left is put in order: an interrupted save is finished, temporary files go. That
// reads the manifest; who is going to remove the run leaves it all as it is, so that a damaged
// manifest does not keep the run from being removed.
class FolderLock {
 public:
  enum class Left : uint8_t { kSettled, kAsItIs };
  explicit FolderLock(const SavePaths& paths, Left left = Left::kSettled);
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

 private:
  int file_ = -1;
};

// What would be lost if a run began in this folder: the save "at step 7", or a file's name; empty
// when nothing. What a run left that died before its first save is nothing.
std::string holds_run(const SavePaths& paths);
// Removes every file of a run, and what a writer that died has left. What cannot be removed is an
// Error.
void remove_run(const SavePaths& paths);

// The step of the save in the folder, or nothing when there is none. A damaged one is an Error.
std::optional<int64_t> saved_step(const SavePaths& paths);
// The step of the save that a run could go on from, by what the files say of themselves: their
// numbers are not read. Nothing when there is none, or when it cannot be opened.
std::optional<int64_t> step_to_resume(const SavePaths& paths);

// The step that a file of a save says it is of; an Error that names `path` when it says none.
int64_t step_of(const SafetensorsFile& file, const std::filesystem::path& path);

// Makes these files, which are written, the folder's save, all of them or none. They say step and
// checksum in their metadata; `checksums` repeats them, in the same order. An Error that comes when
// they already are the folder's save says so.
void commit_save(const SavePaths& paths, const std::vector<AtomicFile*>& files, int64_t step,
                 const std::vector<std::string>& checksums);

// The files of the folder's save, mapped into memory: later saves do not touch them.
struct OpenSave {
  std::unique_ptr<SafetensorsFile> model;      // never null: an Error says that there is none
  std::unique_ptr<SafetensorsFile> optimizer;  // null when the save has none or nobody asked
  int64_t step = 0;
};
OpenSave open_save(const SavePaths& paths, bool with_optimizer);

}  // namespace adjoint
