// The numbers below n in another order, which is computed and not stored: number i comes from i and
// a key alone, so shuffling takes no memory and no pass, and goes on anywhere. A Feistel network
// permutes the numbers of an even number of bits; who lands at n or above walks on until it is
// below, after less than four steps on average unless n is below 64.
#pragma once
#include <algorithm>
#include <bit>
#include <cstdint>

namespace adjoint {

class Permutation {
 public:
  Permutation(uint64_t n, uint64_t key) : n_(n), key_(key) {  // n > 0
    // Of fewer bits a network makes some orders more often than others.
    constexpr int kLeastBits = 8;
    half_ =
        static_cast<uint64_t>(std::max(static_cast<int>(std::bit_width(n - 1)), kLeastBits) + 1) /
        2;
    mask_ = (uint64_t{1} << half_) - 1;
  }

  uint64_t operator()(uint64_t i) const {  // i < n
    do {
      i = round_trip(i);
    } while (i >= n_);
    return i;
  }

 private:
  uint64_t round_trip(uint64_t i) const {
    uint64_t left = i >> half_, right = i & mask_;
    for (uint64_t round = 0; round < 6; ++round) {
      // MurmurHash3's finalizer.
      uint64_t mixed = right ^ (key_ + round * 0x9E3779B97F4A7C15);
      mixed = (mixed ^ (mixed >> 33)) * 0xff51afd7ed558ccd;
      mixed = (mixed ^ (mixed >> 33)) * 0xc4ceb9fe1a85ec53;
      mixed ^= mixed >> 33;
      const uint64_t next = left ^ (mixed & mask_);
      left = right;
      right = next;
    }
    return left << half_ | right;
  }

  uint64_t n_, key_, half_, mask_;
};

}  // namespace adjoint
