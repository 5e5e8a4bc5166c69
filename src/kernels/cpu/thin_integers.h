// int8 codes by rows of whole numbers of 16 bits, with the processor's products of bytes: a third
// of the instructions that widening codes to float32 takes. What rows of 16-bit floats lose by
// becoming whole numbers is less than what they have lost by their rounding already, save numbers
// that are small beside the largest of their row.
#pragma once
#include <cstdint>

namespace adjoint {

// Whether this processor has such products (AVX-512 VNNI).
bool has_byte_products();

// Row i of x is x_scales[i] * (256 * high + low - 32768). Groups of a row begin at multiples of 64
// bytes of x and directly behind each other in the codes.
struct IntegerRows {
  const uint8_t *high, *low;
  int64_t x_step;
  const float* x_scales;
  int64_t groups, group, padded_group;
  int64_t b_step;
  const float* scales;
  int64_t scales_step;
};

// Writes rows [0, m) of x as such. `high` and `low` have room for m * x_step bytes each.
void lay_out_integers(const float* row, const IntegerRows& rows, int64_t i, uint8_t* high,
                      uint8_t* low, float* x_scales);

// Rows [begin, end) of the codes by m rows of x, m of 1, 2, 3, 4 or 8: to[(row - begin) * m + i].
void multiply_integers(const IntegerRows& rows, int64_t m, const int8_t* codes, int64_t begin,
                       int64_t end, float* to);

}  // namespace adjoint
