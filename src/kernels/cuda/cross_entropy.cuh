// What the CUDA kernels of the cross entropy and its gradient share: rows of logits, and the
// threads that they are given to.
#pragma once
#include "kernels/cuda/elements.cuh"
#include "kernels/kernel.h"
#include "kernels/row_numbers.h"
#include "ops/cross_entropy.h"

namespace adjoint {

struct LogitRows {
  // `gradient`: the result that is the logits' gradient; -1: none.
  explicit LogitRows(const KernelCall& k, int gradient = -1)
      : count(k.call.inputs[1].num_elements()),
        classes(k.call.inputs[0].dim(-1)),
        step(k.call.inputs[0].axes.back().physical()),
        ignore(k.call.integer("ignore", -1)) {
    CHECK(k.in_strides[0] == dense_strides(k.call.inputs[0]), "logits are dense");
    if (gradient >= 0) {
      const Type& type = k.outputs[gradient];
      CHECK(k.out_strides[gradient] == dense_strides(type), "the gradient of logits is dense");
      to_step = type.axes.back().physical();
    }
    if (count > INT32_MAX || classes > INT32_MAX) {
      throw MachineError("cross_entropy: CUDA takes no more than 2^31 rows or classes");
    }
  }
  int64_t count, classes, step, ignore;
  int64_t to_step = 0;  // of the gradient, whose padding may be another
};

// __expf without its care for results below 2^-126: a probability, and no sum of a row, that small
// is 0 to everybody.
__device__ inline float exp_of(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x * 1.44269504f));
  return y;
}
__device__ inline double exp_of(double x) { return ::exp(x); }

// Rounded by itself, whatever is done with it: aligned rows and others must round alike, and one
// kernel as another.
__device__ inline float product(float a, float b) { return __fmul_rn(a, b); }
__device__ inline double product(double a, double b) { return __dmul_rn(a, b); }

// A loss's options, in a kernel's numbers. Kernels without options are compiled by themselves and
// read none of this.
template <class W>
struct RowOptions {
  explicit RowOptions(const KernelCall& k) {
    const CrossEntropyOptions o = cross_entropy_options(k.call);
    smoothing = static_cast<W>(o.smoothing);
    share = static_cast<W>(o.smoothing / static_cast<double>(k.call.inputs[0].dim(-1)));
    z = static_cast<W>(o.z);
    cap = static_cast<W>(o.cap);
    per_cap = o.cap > 0 ? static_cast<W>(1 / o.cap) : W{0};
    any = o.any();
  }
  W smoothing, share, z, cap, per_cap;  // share: of the smoothing, each class's
  bool any;

  __device__ W capped(W logit) const {
    return cap > 0 ? product(cap, ::tanh(product(logit, per_cap))) : logit;
  }
};

inline constexpr int kPacksAtOnce = 4;  // loads of a thread that are under way together
// Two long rows share a multiprocessor, 512 threads each; a very long one, of which two would leave
// more to the second-level cache than it holds, has it alone, with 1024.
inline constexpr int kMostRowThreads = 1024;
inline constexpr int kRowsInFlight = 2;
inline constexpr int64_t kVeryLongRow = 2048;  // times kPacksAtOnce packs: 128 KiB

// The packs of a row that its block keeps in shared memory for the second pass. Each thread reads
// those that it has put there itself.
struct KeptPacks {
  uint4* at = nullptr;
  int count = 0;
};

// A warp for a short row, up to a block for a long one; short rows share a block.
inline Tiles row_blocks(const LogitRows& rows, int64_t pack) {
  const int64_t wanted = rows.classes / (pack * kPacksAtOnce);
  const unsigned most = wanted > kVeryLongRow ? kMostRowThreads : kMostRowThreads / kRowsInFlight;
  unsigned threads = 32;
  while (threads < most && threads < wanted) threads *= 2;
  const unsigned together = threads == 32 ? 4 : 1;
  return {.grid = dim3(static_cast<unsigned>(ceil_div(rows.count, together))),
          .block = dim3(threads, together)};
}

}  // namespace adjoint
