// Weights in Hugging Face's safetensors format:
//   8 bytes   length of the header, little-endian
//   header    JSON: name -> dtype, shape, [begin, end) in the data; "__metadata__" -> strings
//   data      the tensors, row-major, one after another, without gaps
// Everything in a file is checked, because files come from strangers. Written by hand: the format's
// own library is in Rust, and the header is JSON.
#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/bytes.h"
#include "base/file.h"
#include "data/mapped_file.h"

namespace adjoint {

struct SafetensorView {
  std::string name;
  std::string dtype;  // "F32", "BF16", "F16", "F64", "I64", "I32", ...
  std::vector<int64_t> shape;
  // In a file that was read this may be unaligned, if its writer did not pad the header: copy, do
  // not cast.
  const void* data = nullptr;
  Bytes size;
};

// How a file of these tensors is laid out. Wider dtypes come first, so that all are aligned; the
// order is otherwise kept.
struct SafetensorsLayout {
  std::string head;              // what comes before the data
  std::vector<int64_t> offsets;  // by tensor: where its bytes begin in the file
  std::vector<size_t> order;     // of the tensors in the file
};
SafetensorsLayout safetensors_layout(std::span<const SafetensorView> tensors,
                                     const std::map<std::string, std::string>& metadata);

// Writes the tensors without copying them. The caller commits the file.
void write_safetensors(AtomicFile& file, std::span<const SafetensorView> tensors,
                       const std::map<std::string, std::string>& metadata);
// The same of tensors whose bytes are made when it is their turn: `put` writes all of a tensor's.
void write_safetensors(AtomicFile& file, std::span<const SafetensorView> tensors,
                       const std::map<std::string, std::string>& metadata,
                       const std::function<void(const SafetensorView&)>& put);

// A file mapped into memory, read-only. The views live as long as this does.
class SafetensorsFile {
 public:
  // An Error of one sentence names the file, what was wanted and what was found.
  explicit SafetensorsFile(const std::filesystem::path& path);
  SafetensorsFile(const SafetensorsFile&) = delete;
  SafetensorsFile& operator=(const SafetensorsFile&) = delete;

  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  // In the order of their data.
  const std::vector<SafetensorView>& tensors() const { return tensors_; }
  // nullptr when there is none.
  const SafetensorView* find(std::string_view name) const;

 private:
  MappedFile mapped_;
  std::map<std::string, std::string> metadata_;
  std::vector<SafetensorView> tensors_;
  std::unordered_map<std::string_view, size_t> index_of_;  // views of the names in tensors_
};

}  // namespace adjoint
