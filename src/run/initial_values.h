// The initial values of a parameter: a pure function of its init and of the random stream of its
// source. Normal numbers are slow to draw, so a caller that starts many runs can cache them.
#pragma once
#include <map>
#include <utility>
#include <vector>

#include "base/philox.h"
#include "scheme/scheme.h"

namespace adjoint {

class DrawnNumbers {
 public:
  // The first `count` normal numbers of a stream.
  const std::vector<double>& normals(const RandomStream& stream, int64_t count);

 private:
  std::map<std::pair<uint64_t, uint64_t>, std::vector<double>> kept_;  // by key and step
};

class InitialValues {
 public:
  InitialValues(const Init& init, const RandomStream& stream, int64_t count, DrawnNumbers* drawn)
      : init_(init), stream_(stream) {
    if (drawn && init.kind == Init::Kind::kNormal) drawn_ = &drawn->normals(stream, count);
  }

  // Calls take(i, value) for the elements [begin, end).
  template <class Take>
  void give(int64_t begin, int64_t end, const Take& take) const {
    if (drawn_) {
      for (int64_t i = begin; i < end; ++i) take(i, init_.scale * (*drawn_)[i]);
      return;
    }
    if (init_.kind == Init::Kind::kNormal) {  // they come in pairs
      for (int64_t i = begin; i < end;) {
        const std::array<double, 2> pair = stream_.normals(i / 2);
        do take(i, init_.scale * pair[i % 2]);
        while (++i % 2 && i < end);
      }
      return;
    }
    for (int64_t i = begin; i < end; ++i) {
      const bool uniform = init_.kind == Init::Kind::kUniform;
      take(i, uniform                            ? init_.scale * (2 * stream_.uniform(i) - 1)
              : init_.kind == Init::Kind::kZeros ? 0
              : init_.kind == Init::Kind::kOnes  ? 1
                                                 : init_.scale);
    }
  }

 private:
  const Init& init_;
  RandomStream stream_;
  const std::vector<double>* drawn_ = nullptr;
};

}  // namespace adjoint
