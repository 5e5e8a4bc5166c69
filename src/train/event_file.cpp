#include "train/event_file.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cstring>

#include "base/clock.h"
#include "base/error.h"
#include "base/file_view.h"

namespace adjoint {

namespace {

template <class T>
std::string raw(T number) {
  std::string bytes(sizeof number, '\0');
  std::memcpy(bytes.data(), &number, sizeof number);
  return bytes;
}

// The three kinds of fields that an Event has. A key is the field's number and how it is written.
std::string varint(uint64_t number) {
  std::string bytes;
  for (; number >= 0x80; number >>= 7) bytes += static_cast<char>(number | 0x80);
  return bytes + static_cast<char>(number);
}
std::string number_field(int field, uint64_t number) { return varint(field << 3) + varint(number); }
std::string double_field(int field, double number) { return varint(field << 3 | 1) + raw(number); }
std::string float_field(int field, float number) { return varint(field << 3 | 5) + raw(number); }
std::string bytes_field(int field, std::string_view bytes) {
  return varint(field << 3 | 2) + varint(bytes.size()) + std::string(bytes);
}

// So that a checksum of bytes that hold checksums is no special number.
uint32_t masked(uint32_t crc) { return (crc >> 15 | crc << 17) + 0xa282ead8; }

}  // namespace

uint32_t crc32c(std::string_view bytes) {
  static const auto table = [] {
    std::array<uint32_t, 256> made{};
    for (uint32_t i = 0; i < 256; ++i) {
      uint32_t crc = i;
      for (int bit = 0; bit < 8; ++bit) crc = crc & 1 ? crc >> 1 ^ 0x82f63b78 : crc >> 1;
      made[i] = crc;
    }
    return made;
  }();
  uint32_t crc = ~0u;
  for (const char c : bytes) crc = crc >> 8 ^ table[(crc ^ static_cast<unsigned char>(c)) & 0xff];
  return ~crc;
}

EventFile::EventFile(const std::filesystem::path& folder, int64_t first_step)
    : path_(folder / fmt::format("events.out.tfevents.{:010d}.adjoint.{}.{}",
                                 static_cast<int64_t>(seconds_since_1970()), first_step,
                                 ::getpid())),
      out_(checked_output(path_), std::ios::binary) {
  write(double_field(1, seconds_since_1970()) + bytes_field(3, "brain.Event:2"));
}

void EventFile::add(int64_t step, std::span<const std::pair<std::string, double>> numbers) {
  std::string summary;
  for (const auto& [name, number] : numbers) {
    summary += bytes_field(1, bytes_field(1, name) + float_field(2, static_cast<float>(number)));
  }
  write(double_field(1, seconds_since_1970()) + number_field(2, static_cast<uint64_t>(step)) +
        bytes_field(5, summary));
}

void EventFile::write(std::string_view event) {
  const std::string length = raw(static_cast<uint64_t>(event.size()));
  out_ << length << raw(masked(crc32c(length))) << event << raw(masked(crc32c(event)))
       << std::flush;
  if (!out_) throw MachineError(path_.string() + ": cannot be written");
}

}  // namespace adjoint
