// Copies between any two layouts of the same elements: axes that both layouts step through evenly
// are merged, then elements are moved in the widest units that fit, each thread finding its own
// places. What is one stretch of bytes on both sides goes through the copy engine, whichever side
// of the bus it is on.
#include <algorithm>
#include <numeric>
#include <vector>

#include "kernels/cuda/elements.cuh"
#include "kernels/cuda/kernels.h"

namespace adjoint {

namespace {

constexpr int kMostAxes = 8;

struct Step {
  int64_t size, from, to;  // strides in units
};
struct Walk {
  int64_t count = 1;
  int rank = 0;
  Step axes[kMostAxes] = {};
};

// Index is unsigned: 32 bits of it divide several times faster than 64.
template <class Index, bool kClear, class U>
__global__ void move_units(const __grid_constant__ Walk walk, const U* __restrict__ from,
                           U* __restrict__ to) {
  const Index count = static_cast<Index>(walk.count), step = gridDim.x * Index{blockDim.x};
#pragma unroll 4
  for (Index i = blockIdx.x * Index{blockDim.x} + threadIdx.x; i < count; i += step) {
    Index rest = i;
    int64_t a = 0, b = 0;
    for (int k = walk.rank - 1; k > 0; --k) {
      const auto size = static_cast<Index>(walk.axes[k].size);
      const Index outer = rest / size;
      const auto x = static_cast<int64_t>(rest - outer * size);
      a += x * walk.axes[k].from, b += x * walk.axes[k].to;
      rest = outer;
    }
    a += static_cast<int64_t>(rest) * walk.axes[0].from;
    b += static_cast<int64_t>(rest) * walk.axes[0].to;
    if constexpr (kClear) {
      to[b] = U{};
    } else {
      to[b] = from[a];
    }
  }
}

// The axes of both layouts, each cut where the other is cut; outermost first.
std::vector<Step> common_axes(const Type& from_type, const Strides& from_strides,
                              const Type& to_type, const Strides& to_strides) {
  std::vector<Step> axes;
  int i = from_type.rank(), j = to_type.rank();
  int64_t a = 1, b = 1, from = 0, to = 0;  // what is left of an axis of either, and its stride
  while (true) {
    while (a == 1 && i > 0) a = from_type.dim(--i), from = from_strides[i];
    while (b == 1 && j > 0) b = to_type.dim(--j), to = to_strides[j];
    if (a == 1 && b == 1) break;
    const int64_t both = std::gcd(a, b);
    if (both == 1) {
      throw MachineError("a copy from " + shape_string(from_type) + " to " + shape_string(to_type) +
                         ": CUDA cuts no axis across another's elements");
    }
    axes.push_back({both, from, to});
    a /= both, b /= both, from *= both, to *= both;
  }
  std::reverse(axes.begin(), axes.end());
  return axes;
}

// Threads that are neighbours write neighbours: the axis of the shortest step comes last.
Walk merged(std::vector<Step> axes) {
  std::stable_sort(axes.begin(), axes.end(),
                   [](const Step& a, const Step& b) { return a.to > b.to; });
  std::vector<Step> merged;
  for (const Step& axis : axes) {
    if (!merged.empty()) {
      Step& last = merged.back();
      if (last.from == axis.from * axis.size && last.to == axis.to * axis.size) {
        last = {last.size * axis.size, axis.from, axis.to};
        continue;
      }
    }
    merged.push_back(axis);
  }
  if (merged.size() > kMostAxes) {
    throw MachineError("a copy of " + std::to_string(merged.size()) +
                       " axes that do not merge: CUDA takes " + std::to_string(kMostAxes));
  }
  Walk walk{.rank = static_cast<int>(merged.size())};
  for (int i = 0; i < walk.rank; ++i) {
    walk.axes[i] = merged[i];
    walk.count *= merged[i].size;
  }
  return walk;
}

bool is_one_stretch(const Walk& walk) {
  return walk.rank == 0 || (walk.rank == 1 && walk.axes[0].from == 1 && walk.axes[0].to == 1);
}

// Twice as wide units, until 16 bytes or until something does not divide. Returns their bytes.
int64_t widen_units(Walk& walk, int64_t unit, const void* from, const void* to) {
  const auto can = [&] {
    if (walk.rank == 0 || unit == 16) return false;
    const Step& last = walk.axes[walk.rank - 1];
    bool even = last.from == 1 && last.to == 1 && last.size % 2 == 0 &&
                is_aligned(from, 2 * unit) && is_aligned(to, 2 * unit);
    for (int k = 0; k + 1 < walk.rank; ++k) {
      even = even && walk.axes[k].from % 2 == 0 && walk.axes[k].to % 2 == 0;
    }
    return even;
  };
  while (can()) {
    for (int k = 0; k + 1 < walk.rank; ++k) walk.axes[k].from /= 2, walk.axes[k].to /= 2;
    walk.axes[walk.rank - 1].size /= 2;
    walk.count /= 2;
    unit *= 2;
  }
  return unit;
}

template <bool kClear>
Launch prepare_walk(const Walk& walk, int64_t unit, const void* from, void* to,
                    cudaStream_t stream) {
  constexpr int64_t kThreads = 256, kUnitsEach = 4;
  const int64_t wanted = ceil_div(walk.count, kThreads * kUnitsEach);
  const auto blocks = static_cast<unsigned>(std::min<int64_t>(wanted, 1 << 20));
  return with_unit(unit, [&]<class U>() -> Launch {
    const auto* source = static_cast<const U*>(from);
    auto* target = static_cast<U*>(to);
    if (walk.count < int64_t{1} << 31) {  // and a step past the end is still a number
      return [=] {
        move_units<uint32_t, kClear><<<blocks, kThreads, 0, stream>>>(walk, source, target);
        check_launch("a copy");
      };
    }
    return [=] {
      move_units<uint64_t, kClear><<<blocks, kThreads, 0, stream>>>(walk, source, target);
      check_launch("a copy");
    };
  });
}

}  // namespace

Launch copy_cuda(const Type& from_type, const Strides& from_strides, const void* from,
                 const Type& to_type, const Strides& to_strides, void* to, void* stream) {
  if (from_type.num_elements() == 0) return [] {};
  Walk walk = merged(common_axes(from_type, from_strides, to_type, to_strides));
  const int64_t element = size_of(from_type.dtype).count;
  if (is_one_stretch(walk)) {
    return [=, bytes = walk.count * element] {
      check_cuda(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, as_stream(stream)), "a copy");
    };
  }
  const int64_t unit = widen_units(walk, element, from, to);
  return prepare_walk<false>(walk, unit, from, to, as_stream(stream));
}

Launch clear_cuda(const Type& type, const Strides& strides, void* to, void* stream) {
  if (type.num_elements() == 0) return [] {};
  Walk walk = merged(common_axes(type, strides, type, strides));
  const int64_t element = size_of(type.dtype).count;
  if (is_one_stretch(walk)) {
    return [=, bytes = walk.count * element] {
      check_cuda(cudaMemsetAsync(to, 0, bytes, as_stream(stream)), "a clearing");
    };
  }
  const int64_t unit = widen_units(walk, element, to, to);
  return prepare_walk<true>(walk, unit, nullptr, to, as_stream(stream));
}

Launch reshape_cuda(const KernelCall& call, const Pointers& at) {
  return copy_cuda(call.call.inputs[0], call.in_strides[0], at.in[0], call.outputs[0],
                   call.out_strides[0], at.out[0], at.stream);
}

}  // namespace adjoint
