// Training steps on random tokens with the frequencies of text, for profiles and benchmarks. They
// can be repeated from the same initial state any number of times. A step's data are a function of
// the seed and the step's number.
#pragma once
#include <set>
#include <vector>

#include "run/run.h"

namespace adjoint {

class RandomSteps {
 public:
  RandomSteps(Run& run, uint64_t seed);

  // Initializes everything that is carried from step to step; the arena may hold anything before.
  void begin();
  // Writes the next step's data, rate and random counter.
  void feed();
  double step();                                         // its seconds; after feed()
  double timed_step(std::vector<double>& call_seconds);  // and those of its calls
  double loss() const;

  // Hashes of the step's outputs and carried state, per object.
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
  std::vector<std::set<int64_t>> ignored_;  // targets that losses ignore, per object
  int64_t number_ = 0;
};

// Ids below this are in every row of logits. Kernels clamp what is outside a table.
uint32_t ids_below(const Scheme& scheme);

}  // namespace adjoint
