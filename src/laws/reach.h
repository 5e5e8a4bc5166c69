// From where on a step does something else: a window of attention, rows before the first position,
// a condition on a position, on a sample, on a count of steps or on a token's id. A copy of a model
// that ends before such a place shows nothing of what is behind it, so whoever makes one asks for
// all of them, in the model and in the copy.
#pragma once
#include <string>
#include <vector>

#include "scheme/scheme.h"

namespace adjoint {

struct Reach {
  enum class Of : uint8_t {
    kPositions,  // of a sample
    kSamples,    // of the batch
    kIds,        // of an input of whole numbers
    kSteps,      // that were taken
    kOther,      // an axis of another kind
  };
  std::string key;  // the same in a model and in a copy with other sizes
  Of of = Of::kOther;
  std::string along;  // the axis, the input or the count
  int64_t at = 0;     // the first index or value that is treated otherwise than those before it
  std::string source, op;  // where, for people
  bool operator==(const Reach&) const = default;
};

// Of a scheme before anything is realized (said_step, or a forward scheme). Conditions on what
// depends on positions, counts and ids alone are evaluated, so it does not matter how a text writes
// them; what also depends on numbers that are learned or fed has no such place. `ids_below` is how
// many values an input of whole numbers may have, by path.
std::vector<Reach> reaches_of(const Scheme& scheme,
                              const std::map<std::string, int64_t>& ids_below = {});

// States that count the steps that were taken, each a single number that begins at 0.
std::vector<Value> step_counters(const Scheme& step);

// What one scheme has and the others lack, by key; of several with one key the furthest.
std::vector<Reach> beyond(const std::vector<Reach>& model, const std::vector<Reach>& seen);

// "less at block[0].up.where#1: from 4096 of positions on"
std::string in_words(const Reach& reach);

}  // namespace adjoint
