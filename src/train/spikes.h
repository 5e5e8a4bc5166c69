// Steps that went wrong: a loss or a gradient that is no number, or a loss far above those before.
// What is done about one is --on-spike's; here is what a step's numbers say, and what is told of
// it.
//   OUT/spikes.jsonl   a line for each: when, why, and what was done
//   OUT/spike.json     the samples of the last one, with their documents
#pragma once
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "data/token_stream.h"
#include "train/store.h"

namespace adjoint {

// What a step returns (functors/phases.h), in the order of its outputs.
struct StepNumbers {
  StepNumbers(const std::vector<double>& outputs, bool guarded);
  double loss, count, norm;
  bool taken;           // something was updated
  double usual = 0;     // of a guarded step: the mean of the losses before
  size_t num_read = 3;  // what follows are norms by role
};

enum class Wrong : uint8_t { kLoss, kGradient, kSpike };
std::string_view name(Wrong what);

// Nothing where all is well. A gradient that is no number is usual where the loss is scaled: the
// scale is halved then. A step without targets updates nothing, and is well.
std::optional<Wrong> wrong_with(const StepNumbers& step, bool scales_loss);

struct Spike {
  int64_t step = 0;   // counted from 1
  int64_t batch = 0;  // of the data
  Wrong what = Wrong::kLoss;
  double loss = 0, norm = 0, usual = 0;

  // "at step 11 the loss is 9.2, and the mean of the steps before is 2.1"
  std::string sentence() const;
};

// Adds a line to spikes.jsonl. `done` is "skipped", "stopped" or "went back to step N".
void note_spike(const SavePaths& paths, const Spike& spike, const std::string& done);
// Removes the lines of steps after `step` that were skipped: a resumed run comes to them again.
void cut_spikes(const SavePaths& paths, int64_t step);

// "a.jsonl line 3, b.txt, and 4 more", of documents without those that nobody looked for.
std::string words_for(const std::vector<DocumentPlace>& documents);

}  // namespace adjoint
