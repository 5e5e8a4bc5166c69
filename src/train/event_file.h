// Numbers for TensorBoard: a file of records, each a length, a checksum of it, an Event of the
// protocol that TensorBoard reads, and a checksum of that. Written by hand: an Event is a few
// numbers and names, and the library that writes it is as large as this project.
#pragma once
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace adjoint {

// CRC-32C (Castagnoli), as records have it before it is masked.
uint32_t crc32c(std::string_view bytes);

class EventFile {
 public:
  // A new file in the folder; `first_step` is part of its name, so that what a resumed run writes
  // comes behind what was written before. TensorBoard reads all of them, and takes the later one
  // where two tell of the same step.
  EventFile(const std::filesystem::path& folder, int64_t first_step);

  // Adds numbers by name, and flushes. Throws a MachineError where the disk is full.
  void add(int64_t step, std::span<const std::pair<std::string, double>> numbers);

  const std::filesystem::path& path() const { return path_; }

 private:
  void write(std::string_view event);

  std::filesystem::path path_;
  std::ofstream out_;
};

}  // namespace adjoint
