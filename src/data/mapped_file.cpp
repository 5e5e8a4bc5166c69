#include "data/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "base/file_view.h"
#include "base/near_path.h"

namespace adjoint {

MappedFile::MappedFile(const std::filesystem::path& path) {
  const int file = ::open(checked_path(path).c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0 && errno == ENOENT) fail_no_file(path);
  if (file < 0) fail(path.string(), ": cannot be read: ", std::strerror(errno));
  struct stat info = {};
  const bool plain = ::fstat(file, &info) == 0 && S_ISREG(info.st_mode);
  void* bytes = nullptr;
  // Nothing cannot be mapped.
  if (plain && info.st_size > 0) {
    bytes = ::mmap(nullptr, info.st_size, PROT_READ, MAP_PRIVATE, file, 0);
  }
  const int error = errno;
  ::close(file);
  if (!plain) fail(path.string(), ": this is not a plain file");
  if (bytes == MAP_FAILED) fail(path.string(), ": cannot be read: ", std::strerror(error));
  size_ = {info.st_size};
  bytes_ = {static_cast<const std::byte*>(bytes), [length = info.st_size](const std::byte* mapped) {
              if (mapped) ::munmap(const_cast<std::byte*>(mapped), length);
            }};
  refuse_pointer(path, {static_cast<const char*>(bytes), static_cast<size_t>(size_.count)});
}

}  // namespace adjoint
