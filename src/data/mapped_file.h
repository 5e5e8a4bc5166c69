// A file mapped into memory, read-only: pages come when they are read and go when memory is short.
#pragma once
#include <cstddef>
#include <filesystem>
#include <memory>
#include <string_view>

#include "base/bytes.h"

namespace adjoint {

class MappedFile {
 public:
  explicit MappedFile(const std::filesystem::path& path);

  const std::byte* data() const { return bytes_.get(); }
  Bytes size() const { return size_; }
  std::string_view text() const {
    return {reinterpret_cast<const char*>(data()), static_cast<size_t>(size_.count)};
  }

 private:
  Bytes size_;
  std::shared_ptr<const std::byte> bytes_;  // its deleter unmaps the file
};

}  // namespace adjoint
