// Files read whole and written atomically, so that readers need no lock and a crash harms nothing.
#pragma once
#include <cstdio>
#include <filesystem>
#include <string>
#include <string_view>

#include "base/bytes.h"

namespace adjoint {

// The whole file; throws an Error that names it if it is missing or not a plain file.
std::string read_file(const std::filesystem::path& path);

// Writes to a temporary file with a unique name in the same folder, and renames it to `path` at
// `commit`. So a crash, a full disk or a second writer never leaves a partial file. A file that was
// neither committed nor kept is removed. What the user can fix (no such folder, no permission) is
// an Error; a full or failing disk is a MachineError.
class AtomicFile {
 public:
  explicit AtomicFile(std::filesystem::path path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(const void* data, Bytes size);
  void write(std::string_view text) { write(text.data(), {static_cast<int64_t>(text.size())}); }
  void finish();   // all bytes are on disk, under the temporary name; `path` has the old content
  void replace();  // finishes, and moves the result to `path`
  void commit();   // replaces, and makes sure that a power cut does not undo the move
  // From now on the file is kept under its temporary name unless it is renamed, because a manifest
  // refers to it (train/store.h).
  void keep() { kept_ = true; }
  const std::filesystem::path& path() const { return path_; }
  const std::filesystem::path& temporary() const { return temporary_; }
  // Whether `file` is a temporary file of `path`, of any process, running or dead.
  static bool is_temporary_of(const std::filesystem::path& path, const std::filesystem::path& file);

 private:
  [[noreturn]] void fail_writing();
  std::filesystem::path path_, temporary_;
  std::FILE* file_ = nullptr;
  bool finished_ = false, kept_ = false;
};

// Returns when the folder's entries (what was made, moved and removed in it) are on disk.
void sync_folder(const std::filesystem::path& folder);

// Throws what AtomicFile throws, for a failed system call on `path`.
[[noreturn]] void fail_to_write(const std::filesystem::path& path, int error);

void write_file_atomically(const std::filesystem::path& path, std::string_view text);

}  // namespace adjoint
