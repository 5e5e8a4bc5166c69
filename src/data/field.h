// One entry per token of the data: a number, or a row of numbers. A field stays where it lies (a
// vector, a mapped file), and is converted while a crop of it is copied: a large one is never in
// memory twice.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace adjoint {

// What a number of a field is where it lies.
enum class Element : uint8_t { kI8, kU8, kI16, kU16, kI32, kU32, kI64, kBF16, kF16, kF32, kF64 };
std::optional<Element> element_named(std::string_view dtype);  // by safetensors' names
bool is_floating(Element element);
int64_t bytes_of(Element element);

struct Field {
  std::string name;
  const std::byte* data = nullptr;  // of the first token; may be unaligned
  Element element = Element::kI32;
  int64_t width = 1;  // numbers per token
  int64_t ahead = 0;  // entry i of a crop is that of token i + ahead

  // Crops are float32 of floating fields and int32 of others, 4 bytes either way.
  int64_t bytes_per_token() const { return 4 * width; }
};

// The entries of `count` tokens from `start` on.
void copy_crop(const Field& field, int64_t start, int64_t count, void* to) noexcept;

// Refuses, in the name of the file, a whole number outside [least, below) among the entries of
// `count` tokens; one that is `also` is right all the same. `why` ends the sentence.
void check_whole_numbers(const std::string& file, const Field& field, int64_t count, int64_t least,
                         int64_t below, std::optional<int64_t> also, std::string_view why = "");

// Refuses, in the name of the file, what is no finite number of float32 among the entries of
// `count` tokens; -inf is right where it masks.
void check_floating_numbers(const std::string& file, const Field& field, int64_t count, bool masks);

}  // namespace adjoint
