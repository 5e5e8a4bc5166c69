// A run's folder as a small store with one writer and any number of readers.
//   model.safetensors      parameters by source path; metadata: step
//   optimizer.safetensors  the optimizer's state; metadata: step
//   save.json              the manifest: which two files are one save
//   run.json               the settings;  model.scheme  the model's text;  tokenizer.json
//   metrics.jsonl          one line per logged step
//   spikes.jsonl           one line per step that went wrong (train/spikes.h)
//   position.json          batches that are left out, and where batches changed their size
//   functors/*.functor, schedules/*.schedule     what the stack took from files
//   products.json          on a GPU: the algorithms that its matrix products were given
//   .lock                  held by the one run that writes here
// A save is written under temporary names. It becomes the folder's save at the moment when the
// manifest that names its files is replaced; only then are the files renamed. So at every moment
// the manifest refers to a complete save, under either name. Readers change nothing in the folder;
// leftovers of a dead writer are removed by the next writer, which holds the lock. Written by hand
// and not a database, because other tools read these files.
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
  std::filesystem::path spikes() const { return folder / "spikes.jsonl"; }
  std::filesystem::path spike() const { return folder / "spike.json"; }
  std::filesystem::path position() const { return folder / "position.json"; }
  std::filesystem::path rule() const { return folder / "run.optimizer"; }
  // Of what the stack took from files.
  std::filesystem::path functors() const { return folder / "functors"; }
  std::filesystem::path schedules() const { return folder / "schedules"; }
  std::filesystem::path products() const { return folder / "products.json"; }
  std::filesystem::path lock() const { return folder / ".lock"; }
};

// Makes the folder and tries to write in it; throws an Error.
void check_writable(const SavePaths& paths);

// While it exists, no other run writes to the folder; throws an Error if one already does. It also
// repairs what a dead writer left: an interrupted save is finished, and temporary files are
// removed. That reads the manifest, so it is skipped if the run is about to be removed: a damaged
// manifest must not prevent that.
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

// What a new run in this folder would overwrite: the save "at step 7", or a file's name; empty if
// nothing. Leftovers of a run that died before its first save do not count.
std::string holds_run(const SavePaths& paths);
// Removes every file of a run, and leftovers of a dead writer. Throws an Error if it cannot.
void remove_run(const SavePaths& paths);

// The step of the save in the folder, or nothing when there is none. A damaged one is an Error.
std::optional<int64_t> saved_step(const SavePaths& paths);
// The step of the save that a run could resume from, by the files' metadata; their numbers are not
// read. Nothing if there is none, or it cannot be opened.
std::optional<int64_t> step_to_resume(const SavePaths& paths);

// The step in a file's metadata; throws an Error that names `path` if there is none.
int64_t step_of(const SafetensorsFile& file, const std::filesystem::path& path);

// Makes these files, which are complete, the folder's save: all of them or none. Their metadata
// holds step and checksum; `checksums` repeats the latter, in the same order. If an Error occurs
// after they have become the folder's save, it says so.
void commit_save(const SavePaths& paths, const std::vector<AtomicFile*>& files, int64_t step,
                 const std::vector<std::string>& checksums);

// The files of the folder's save, mapped into memory: later saves do not touch them.
struct OpenSave {
  std::unique_ptr<SafetensorsFile> model;      // never null; if there is none, an Error was thrown
  std::unique_ptr<SafetensorsFile> optimizer;  // null if the save has none, or it was not wanted
  int64_t step = 0;
};
OpenSave open_save(const SavePaths& paths, bool with_optimizer);

}  // namespace adjoint
