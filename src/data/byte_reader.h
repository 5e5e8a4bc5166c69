// The bytes of a file, from its beginning to its end, whether it is plain, gzip (.gz) or zstd
// (.zst). A file that is larger than memory is no problem: nothing is kept.
#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>

namespace adjoint {

class ByteReader {
 public:
  ByteReader() = default;
  virtual ~ByteReader() = default;
  ByteReader(const ByteReader&) = delete;
  ByteReader& operator=(const ByteReader&) = delete;

  // Fills `to` as far as the file goes: less than `size` is the end. Compressed bytes that are
  // broken or cut off are an Error that names the file.
  virtual size_t read(char* to, size_t size) = 0;
};

std::unique_ptr<ByteReader> open_bytes(const std::filesystem::path& path);

// book.txt.gz -> book.txt: what the bytes of a file are, as its name tells.
std::filesystem::path without_compression(const std::filesystem::path& path);

}  // namespace adjoint
