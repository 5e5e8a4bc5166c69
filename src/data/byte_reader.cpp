#include "data/byte_reader.h"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <vector>

#include "base/error.h"
#include "base/file_view.h"
#include "base/near_path.h"
#include "device/library.h"

// zstd's streaming interface, which has been stable since 1.0. Declared here and not included, so
// that a build needs no header of a library that few runs open.
extern "C" {
struct ZSTD_DCtx_s;
struct ZstdInput {
  const void* src;
  size_t size, pos;
};
struct ZstdOutput {
  void* dst;
  size_t size, pos;
};
// NOLINTBEGIN(readability-identifier-naming): the library's names.
ZSTD_DCtx_s* ZSTD_createDStream();
size_t ZSTD_freeDStream(ZSTD_DCtx_s* stream);
size_t ZSTD_decompressStream(ZSTD_DCtx_s* stream, ZstdOutput* output, ZstdInput* input);
unsigned ZSTD_isError(size_t code);
const char* ZSTD_getErrorName(size_t code);
// NOLINTEND(readability-identifier-naming)
}

namespace adjoint {

namespace fs = std::filesystem;

namespace {

constinit Library zstd_library("libzstd.so.1", "libzstd1");
LIBRARY_FUNCTION(zstd_library, ZSTD_createDStream);
LIBRARY_FUNCTION(zstd_library, ZSTD_freeDStream);
LIBRARY_FUNCTION(zstd_library, ZSTD_decompressStream);
LIBRARY_FUNCTION(zstd_library, ZSTD_isError);
LIBRARY_FUNCTION(zstd_library, ZSTD_getErrorName);

class PlainReader : public ByteReader {
 public:
  explicit PlainReader(const fs::path& path)
      : path_(path.string()), file_(std::fopen(path.c_str(), "rb")) {
    if (!file_) fail(path_, ": cannot be read: ", std::strerror(errno));
  }
  ~PlainReader() override { std::fclose(file_); }

  size_t read(char* to, size_t size) override {
    const size_t got = std::fread(to, 1, size, file_);
    if (got < size && std::ferror(file_)) {
      fail(path_, ": cannot be read: ", std::strerror(errno));
    }
    return got;
  }

 private:
  std::string path_;
  std::FILE* file_;
};

class GzipReader : public ByteReader {
 public:
  explicit GzipReader(const fs::path& path)
      : path_(path.string()), file_(gzopen(path.c_str(), "rb")) {
    if (!file_) fail(path_, ": cannot be read: ", std::strerror(errno));
    gzbuffer(file_, 1 << 17);
  }
  ~GzipReader() override { gzclose_r(file_); }

  size_t read(char* to, size_t size) override {
    size_t got = 0;
    while (got < size) {
      const auto piece = static_cast<unsigned>(std::min<size_t>(size - got, 1u << 30));
      const int count = gzread(file_, to + got, piece);
      if (count < 0) refuse();
      if (count == 0) break;
      got += static_cast<size_t>(count);
    }
    if (got == size) return got;
    // zlib reads files that are no gzip as they are, and tells a cut one only when asked.
    int error = Z_OK;
    gzerror(file_, &error);
    if (error != Z_OK) refuse();
    if (gzdirect(file_)) fail(path_, ": its name ends in .gz, but it is not a gzip file");
    return got;
  }

 private:
  [[noreturn]] void refuse() {
    int error = Z_OK;
    const char* why = gzerror(file_, &error);
    fail(path_,
         ": this gzip file is broken: ", error == Z_BUF_ERROR ? "it ends in the middle" : why);
  }

  std::string path_;
  gzFile file_;
};

class ZstdReader : public ByteReader {
 public:
  explicit ZstdReader(const fs::path& path)
      : path_(path.string()), file_(path), stream_(ZSTD_createDStream()), compressed_(1 << 17) {
    if (!stream_) throw MachineError(path_ + ": zstd has no memory to read it");
  }
  ~ZstdReader() override { ZSTD_freeDStream(stream_); }

  size_t read(char* to, size_t size) override {
    ZstdOutput output{to, size, 0};
    while (output.pos < size) {
      if (input_.pos == input_.size) {
        input_ = {compressed_.data(), file_.read(compressed_.data(), compressed_.size()), 0};
        if (input_.size == 0) {
          if (left_ != 0) fail(path_, ": this zstd file is broken: it ends in the middle");
          break;
        }
      }
      left_ = ZSTD_decompressStream(stream_, &output, &input_);
      if (ZSTD_isError(left_)) {
        fail(path_, ": this zstd file is broken: ", ZSTD_getErrorName(left_));
      }
    }
    return output.pos;
  }

 private:
  std::string path_;
  PlainReader file_;
  ZSTD_DCtx_s* stream_;
  std::vector<char> compressed_;
  ZstdInput input_ = {nullptr, 0, 0};
  size_t left_ = 0;  // 0: a frame is complete
};

}  // namespace

std::unique_ptr<ByteReader> open_bytes(const fs::path& path) {
  std::error_code ignored;
  if (!fs::exists(checked_path(path), ignored)) fail_no_file(path);
  if (!fs::is_regular_file(path, ignored)) fail(path.string(), ": this is not a plain file");
  std::array<char, 64> begin = {};
  const size_t got = PlainReader(path).read(begin.data(), begin.size());
  refuse_pointer(path, {begin.data(), got});
  const std::string ending = path.extension().string();
  if (ending == ".gz") return std::make_unique<GzipReader>(path);
  if (ending == ".zst") return std::make_unique<ZstdReader>(path);
  return std::make_unique<PlainReader>(path);
}

fs::path without_compression(const fs::path& path) {
  const std::string ending = path.extension().string();
  return ending == ".gz" || ending == ".zst" ? path.parent_path() / path.stem() : path;
}

}  // namespace adjoint
