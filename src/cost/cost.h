// Seconds of one call on a described device: the larger of its operations over the device's rate
// and its bytes over the bandwidth. If the same call was measured, the measured time is used.
#pragma once
#include <map>
#include <optional>
#include <string>

#include "cost/sheet.h"
#include "kernels/cuda/cublaslt/tuned_products.h"
#include "ops/op_def.h"

namespace adjoint {

// What a call's time depends on: op, constants and types; neither its position in the scheme nor
// its source.
std::string call_key(const Scheme& scheme, const Morphism& morphism);

// Measured seconds of single calls, by key.
using Timings = std::map<std::string, double>;

struct Costs {
  DeviceSheet sheet;
  int threads = 1;             // for a device whose rates are one core's
  bool deterministic = false;  // the step uses deterministic kernels, which may be slower
  // A profile of the same model: calls that it measured take the measured time; other calls of the
  // same op take the sheet's time, scaled by the op's ratio of measured time to the sheet's.
  Timings measured = {};
  // Seconds of single products that were timed on this device to choose their algorithm
  // (ops/tuned_products.h).
  std::map<std::string, double> tuned = {};
  std::map<std::string, double> ratio = {};  // per op, measured / sheet

  double seconds(const Scheme& scheme, const Morphism& morphism) const;
  double by_sheet(const Scheme& scheme, const Morphism& morphism) const;
  std::optional<double> by_contest(const Scheme& scheme, const Morphism& morphism) const;
  // Takes a device's product times from a table; they are used before the sheet's rates.
  void learn(const TunedProducts& table, const std::string& machine);
  // Takes measurements of the calls of `scheme`, a step of the same model on the same machine.
  void learn(const Scheme& scheme, const Timings& timings);
};

bool is_product(std::string_view op);  // a matrix product, with or without an epilogue
double bytes_moved(const Scheme& scheme, const Morphism& morphism);

}  // namespace adjoint
