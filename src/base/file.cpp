#include "base/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <random>

#include "base/error.h"
#include "base/file_view.h"
#include "base/near_path.h"

namespace adjoint {

namespace fs = std::filesystem;

std::string read_file(const fs::path& path) {
  if (const std::string* draft = draft_of(checked_path(path))) return *draft;
  std::error_code ignored;
  if (!fs::exists(path, ignored)) fail_no_file(path);
  if (!fs::is_regular_file(path, ignored)) fail(path.string(), ": this is not a plain file");
  std::ifstream in(path, std::ios::binary);
  if (!in) fail(path.string(), ": cannot be read: ", std::strerror(errno));
  // Of what was opened: by now there may be another file of this name.
  in.seekg(0, std::ios::end);
  std::string text(static_cast<size_t>(std::max<std::streamoff>(in.tellg(), 0)), '\0');
  in.seekg(0);
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (in.gcount() != static_cast<std::streamsize>(text.size())) {
    fail(path.string(), ": ended after ", in.gcount(), " of ", text.size(), " bytes");
  }
  refuse_pointer(path, text);
  return text;
}

void fail_to_write(const fs::path& path, int error) {
  const std::string why = path.string() + ": cannot be written: " + std::strerror(error);
  const bool machine = error == ENOSPC || error == EDQUOT || error == EFBIG || error == EIO ||
                       error == EMFILE || error == ENFILE || error == ENOMEM;
  if (machine) throw MachineError(why);
  throw Error(why);
}

void sync_folder(const fs::path& folder) {
  const fs::path here = folder.empty() ? fs::path(".") : folder;
  const int file = ::open(here.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (file < 0) {
    if (errno == EACCES) return;  // a folder that may be written and not read cannot be synced
    fail_to_write(here, errno);
  }
  const int error = ::fsync(file) == 0 ? 0 : errno;
  ::close(file);
  // Some file systems have nothing to sync in a folder.
  if (error != 0 && error != EINVAL && error != ENOTSUP) fail_to_write(here, error);
}

namespace {

constexpr std::string_view kEnding = ".new";

// Process ids repeat, on another machine or after a restart; 64 random bits do not.
std::string unique_part() {
  std::random_device random;
  const uint64_t bits = uint64_t{random()} << 32 | random();
  char text[64];
  std::snprintf(text, sizeof text, ".%d-%016llx", static_cast<int>(::getpid()),
                static_cast<unsigned long long>(bits));
  return text;
}

}  // namespace

bool AtomicFile::is_temporary_of(const fs::path& path, const fs::path& file) {
  const std::string whole = path.filename().string(), name = file.filename().string();
  if (!name.starts_with(whole) || !name.ends_with(kEnding)) return false;
  std::string_view middle(name);
  middle.remove_prefix(whole.size());
  if (middle.size() < kEnding.size()) return false;
  middle.remove_suffix(kEnding.size());
  if (middle.empty()) return true;  // as they were called before they were unique
  const size_t dash = middle.find('-');
  return middle[0] == '.' && dash != std::string_view::npos && dash > 1 &&
         middle.size() == dash + 17 &&
         middle.substr(1, dash - 1).find_first_not_of("0123456789") == std::string_view::npos &&
         middle.substr(dash + 1).find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

AtomicFile::AtomicFile(fs::path path)
    : path_(std::move(path)), temporary_(path_.string() + unique_part() + std::string(kEnding)) {
  checked_output(path_);
  // Whoever could not read the old file cannot read the new one.
  struct stat old = {};
  const bool replaces = ::stat(path_.c_str(), &old) == 0 && S_ISREG(old.st_mode);
  const int file = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC,
                          replaces ? S_IRUSR | S_IWUSR : 0666);
  if (file < 0) fail_writing();
  // Some file systems have no permissions to set.
  if (replaces) static_cast<void>(!::fchmod(file, old.st_mode & 0777));
  file_ = ::fdopen(file, "wb");
  if (file_) return;
  const int error = errno;
  ::close(file);
  ::unlink(temporary_.c_str());
  fail_to_write(path_, error);
}

AtomicFile::~AtomicFile() {
  if (file_) std::fclose(file_);
  if (!kept_) ::unlink(temporary_.c_str());
}

void AtomicFile::fail_writing() { fail_to_write(path_, errno); }

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

void AtomicFile::replace() {
  finish();
  if (std::rename(temporary_.c_str(), path_.c_str()) != 0) fail_writing();
  kept_ = true;
}

void AtomicFile::commit() {
  replace();
  sync_folder(path_.parent_path());
}

void write_file_atomically(const fs::path& path, std::string_view text) {
  AtomicFile file(path);
  file.write(text);
  file.commit();
}

}  // namespace adjoint
