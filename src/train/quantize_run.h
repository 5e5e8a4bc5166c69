// A trained run  ->  the same model with the linear maps of its chain as codes.
#pragma once
#include <filesystem>
#include <string>

#include "ops/quantize.h"
#include "plan/plan.h"

namespace adjoint {

struct QuantizeOptions {
  CodeFormat format = {};
  bool calibrated = true;           // by data (gptq.h); else every number to its nearest code
  int64_t batches = 16;             // of data, for the calibration
  std::filesystem::path data = {};  // empty: the run's own
  // States of the chain of blocks are carried from block to block, for all batches at once, so that
  // the calibration is linear in depth. Where that takes more than this, every map's inputs are
  // computed from the tokens again.
  Bytes most_carried = {int64_t{4} << 30};
};

struct QuantizeResult {
  int64_t step = 0;  // of the run
  std::string stack;
  int64_t matrices = 0, calibrated = 0;  // that became codes, and those by data
  int64_t calls = 0;                     // of ops, for one batch of the calibration
  // On the whole validation part: of the run with its own stack, and of what was made of it.
  double loss_before = 0, loss_after = 0;
  Bytes before = {0}, after = {0};  // of these matrices
};

// Writes a run folder whose stack freezes and quantizes these maps, without optimizer state. Linear
// maps are calibrated from the first to the last, each with the inputs that it has once those
// before it are codes. Refuses a run with parameters beside the plain model's, and a folder that
// holds a run; nothing is written then.
QuantizeResult quantize_run(const std::filesystem::path& run, const std::filesystem::path& out,
                            const QuantizeOptions& options, const PlanOptions& plan);

}  // namespace adjoint
