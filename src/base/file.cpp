#include "base/file.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>

#include "base/error.h"

namespace adjoint {

namespace fs = std::filesystem;

std::string read_file(const fs::path& path) {
  std::error_code ignored;
  if (!fs::exists(path, ignored)) fail(path.string(), ": there is no such file");
  if (!fs::is_regular_file(path, ignored)) fail(path.string(), ": this is not a plain file");
  std::ifstream in(path, std::ios::binary);
  if (!in) fail(path.string(), ": cannot be read: ", std::strerror(errno));
  std::string text(fs::file_size(path), '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (in.gcount() != static_cast<std::streamsize>(text.size())) {
    fail(path.string(), ": ended after ", in.gcount(), " of ", text.size(), " bytes");
  }
  return text;
}

fs::path AtomicFile::new_name(const fs::path& path) { return path.string() + ".new"; }

AtomicFile::AtomicFile(fs::path path) : path_(std::move(path)) {
  file_ = std::fopen(new_name(path_).c_str(), "wb");
  if (!file_) fail_writing();
}

AtomicFile::~AtomicFile() {
  if (file_) std::fclose(file_);
  if (!finished_) ::unlink(new_name(path_).c_str());
}

void AtomicFile::fail_writing() {
  fail(path_.string(), ": cannot be written: ", std::strerror(errno));
}

void AtomicFile::write(const void* data, Bytes size) {
  if (std::fwrite(data, 1, size.count, file_) != static_cast<size_t>(size.count)) fail_writing();
}

void AtomicFile::finish() {
  if (finished_) return;
  if (std::fflush(file_) != 0 || ::fsync(::fileno(file_)) != 0) fail_writing();
  std::FILE* file = file_;
  file_ = nullptr;
  if (std::fclose(file) != 0) fail_writing();
  finished_ = true;
}

void AtomicFile::commit() {
  finish();
  if (std::rename(new_name(path_).c_str(), path_.c_str()) != 0) fail_writing();
}

void write_file_atomically(const fs::path& path, std::string_view text) {
  AtomicFile file(path);
  file.write(text);
  file.commit();
}

}  // namespace adjoint
