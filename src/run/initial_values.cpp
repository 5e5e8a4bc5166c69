#include "run/initial_values.h"

#include "device/parallel.h"

namespace adjoint {

const std::vector<double>& DrawnNumbers::normals(const RandomStream& stream, int64_t count) {
  std::vector<double>& kept = kept_[{stream.key, stream.step}];
  const auto before = static_cast<int64_t>(kept.size());
  if (before >= count) return kept;
  kept.resize(count);
  parallel_for(count / 2 + count % 2, 2048, [&](int64_t begin, int64_t end, int) {
    for (int64_t pair = begin; pair < end; ++pair) {
      const std::array<double, 2> two = stream.normals(pair);
      kept[2 * pair] = two[0];
      if (2 * pair + 1 < count) kept[2 * pair + 1] = two[1];
    }
  });
  return kept;
}

}  // namespace adjoint
