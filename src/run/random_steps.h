// Steps of training on random tokens, drawn as often as a text's are, from the same beginning as
// often as one likes: what profiles and benchmarks run. A step's data are a function of the seed
// and the step's number.
#pragma once
#include <vector>

#include "run/run.h"

namespace adjoint {

class RandomSteps {
 public:
  RandomSteps(Run& run, uint64_t seed);

  // Everything that a run holds from step to step, in an arena that may hold anything.
  void begin();
  // The next step's data, rate and random counter.
  void feed();
  double step();                                         // its seconds; after feed()
  double timed_step(std::vector<double>& call_seconds);  // and those of its calls
  double loss() const;

  // Of everything that leaves a step, by object.
  std::vector<uint64_t> hashes() const;
  const Object& object_left(size_t i) const { return scheme()[left()[i]]; }

 private:
  const Scheme& scheme() const { return run_.scheme(); }
  std::vector<Value> left() const;
  void feed_data(Value in);
  double id_like_text(double uniform) const;

  Run& run_;
  uint64_t seed_;
  uint32_t ids_below_;
  int64_t number_ = 0;
};

// Ids below this are in every row of logits. Kernels clamp what is outside a table.
uint32_t ids_below(const Scheme& scheme);

}  // namespace adjoint
