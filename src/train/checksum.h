// The checksum of the tensors in a save: a sum over their words, each weighted by its place in its
// tensor and by the tensor's name. So it does not depend on the order of the tensors, nor on who
// sums: ranks that hold pieces of a tensor add up what each has.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "data/safetensors.h"

namespace adjoint {

// What `size` bytes from byte `begin` of a tensor on add to the sum.
uint64_t sum_of_words(std::string_view name, int64_t begin, const void* data, Bytes size);
// A sum as files hold it, "words:0123456789abcdef": the name tells it from other kinds.
std::string checksum_text(uint64_t sum);

std::string checksum_of(std::span<const SafetensorView> tensors);

// Whether `checksum` is that of these tensors; older saves hold checksums of other kinds.
bool is_checksum_of(std::string_view checksum, std::span<const SafetensorView> tensors);

// Whether it is a sum of words, which several can find together: the sum of what each of `parts`
// finds in its share of the bytes.
bool is_sum_of_words(std::string_view checksum);
uint64_t sum_of_share(std::span<const SafetensorView> tensors, int part, int parts);

}  // namespace adjoint
