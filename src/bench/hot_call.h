// One call of a step with buffers of its own, laid out as the plan lays out the step's: what it
// takes alone, on the same buffers again and again.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "bench/bare_product.h"
#include "device/buffer.h"
#include "device/gpu.h"
#include "plan/plan.h"

namespace adjoint {

class HotCall {
 public:
  // On a GPU in this stream, on a CPU without one.
  HotCall(const Scheme& scheme, const Plan& plan, const Morphism& m, GpuStream* stream);
  HotCall(const HotCall&) = delete;
  HotCall& operator=(const HotCall&) = delete;

  double seconds(const std::string& name) const;  // the median; on a GPU by its own clock
  // The faster of the two layouts of the product that it is; nothing on a GPU.
  std::optional<double> bare_seconds(const std::string& name) const;

 private:
  const Buffer& make(const Plan& plan, Value v, const Type& type);
  const std::byte* fill(const Buffer& buffer, const Type& type, uint32_t below);

  OpCall call_;
  KernelCall kernel_;
  GpuStream* stream_;
  std::vector<Buffer> buffers_;
  Pointers at_;
};

}  // namespace adjoint
