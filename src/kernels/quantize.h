// A matrix turned into codes and scales (ops/quantize.h has the formats).
#pragma once
#include "ops/quantize.h"

namespace adjoint {

// Turns `matrix`, which is dense, into codes and scales.
void quantize(const float* matrix, const Type& type, const CodeFormat& format, void* codes,
              float* scales);

// The code of the level nearest to x; of whole numbers the even one at ties. Where two codes share
// a byte they are 0..15, else -127..127.
int code_of(float x, float scale, CodeFormat::Kind kind);
float level_of(int code, CodeFormat::Kind kind);  // what the code stands for, before the scale
// The code of element `at`. Of two in a byte the even one must be stored first.
void store_code(void* codes, int64_t at, int code, CodeFormat::Kind kind);
int load_code(const void* codes, int64_t at, CodeFormat::Kind kind);

// k numbers in rising order, and for each of n numbers which of them is nearest to it, such that
// each is the mean of those it is nearest to. Begins at quantiles, so it depends on nothing else.
void find_centres(const float* numbers, int64_t n, int64_t k, uint8_t* indices, float* centres);

}  // namespace adjoint
