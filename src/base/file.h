// Files read whole and written atomically.
#pragma once
#include <cstdio>
#include <filesystem>
#include <string>
#include <string_view>

#include "base/bytes.h"

namespace adjoint {

// The whole file; an Error that names it when it is missing or not a plain file.
std::string read_file(const std::filesystem::path& path);

// Writes beside `path` and puts the result there in one move at `commit`: a crash or a full disk
// leaves what was there before. Without a commit the new file is removed.
class AtomicFile {
 public:
  explicit AtomicFile(std::filesystem::path path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(const void* data, Bytes size);
  void write(std::string_view text) { write(text.data(), {static_cast<int64_t>(text.size())}); }
  // All bytes are on disk, under the new name; `path` still has the old content. After this a
  // crash keeps the new file, so that several files can be finished together (see train/save.h).
  void finish();
  void commit();
  static std::filesystem::path new_name(const std::filesystem::path& path);

 private:
  [[noreturn]] void fail_writing();
  std::filesystem::path path_;
  std::FILE* file_ = nullptr;
  bool finished_ = false;
};

void write_file_atomically(const std::filesystem::path& path, std::string_view text);

}  // namespace adjoint
