// Seconds of one call on a described device: the larger of its operations over the device's rate
// and its bytes over the bandwidth. Where the same call was measured, that is what it takes.
#pragma once
#include <map>
#include <optional>
#include <string>

#include "cost/sheet.h"
#include "kernels/cuda/cublaslt/tuned_products.h"
#include "ops/op_def.h"

namespace adjoint {

// What decides how long a call takes: op, constants, types. Not where it stands, nor its source.
std::string call_key(const Scheme& scheme, const Morphism& morphism);

// Measured seconds of single calls, by key.
using Timings = std::map<std::string, double>;

struct Costs {
  DeviceSheet sheet;
  int threads = 1;             // of a device whose rates are one core's
  bool deterministic = false;  // the step's kernels, of which some are others then
  // A profile of the same model: its calls take what they took, and others of the same op as much
  // more or less than the sheet says as those did.
  Timings measured = {};
  // Seconds of single products in the contests of this device, see ops/tuned_products.h.
  std::map<std::string, double> tuned = {};
  std::map<std::string, double> ratio = {};  // per op, measured / sheet

  double seconds(const Scheme& scheme, const Morphism& morphism) const;
  double by_sheet(const Scheme& scheme, const Morphism& morphism) const;
  std::optional<double> by_contest(const Scheme& scheme, const Morphism& morphism) const;
  // Takes a device's contests from a table; what they say comes before the sheet's rates.
  void learn(const TunedProducts& table, const std::string& machine);
  // Takes measurements of the calls of `scheme`, a step of the same model on the same machine.
  void learn(const Scheme& scheme, const Timings& timings);
};

bool is_product(std::string_view op);  // a matrix product, with whatever else it does
double bytes_moved(const Scheme& scheme, const Morphism& morphism);

}  // namespace adjoint
