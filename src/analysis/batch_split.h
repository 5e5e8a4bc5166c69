// What of a step depends on which part of the batch, told from index maps alone.
#pragma once
#include <vector>

#include "scheme/scheme.h"

namespace adjoint {

// What an object is when the batch comes in parts.
enum class Batchwise : uint8_t {
  kInvariant,  // depends on no data: the same for all parts
  kSplit,      // has samples along one axis: a part has its own
  kPartial,    // a sum over samples: a part gives a part of it
  kTotal,      // needs such sums whole: exists once all parts are through
};

struct BatchSplit {
  std::vector<Batchwise> kinds = {};  // per object
  std::vector<int> axes = {};         // per object: that of the samples, where it is split
  std::vector<bool> summed = {};      // per object: partial, and somebody needs its sum
  // Per morphism: where it runs, and the letter of the samples in its index map, 0 for none.
  std::vector<Section> sections = {};
  std::vector<char> letters = {};
  // Per morphism: a count of targets that are made of the step's inputs alone. It is taken of the
  // whole batch before the first part, so that the parts may read it.
  std::vector<bool> ahead = {};
};

// Refuses, in the name of `who`, what cannot be split, naming object, op and axis. `padded` says
// that the last part has samples that nobody counts: then only a cross entropy, which can ignore
// them, may sum over samples on the way forward.
BatchSplit split_batch(const Scheme& scheme, std::string_view who, bool padded);

}  // namespace adjoint
