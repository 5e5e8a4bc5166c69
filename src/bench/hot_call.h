// Times one call of a step alone, run repeatedly on buffers of its own, which have the layout of
// the step's plan.
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
  // `stream` is the GPU's, or nullptr on a CPU.
  HotCall(const Scheme& scheme, const Plan& plan, const Morphism& m, GpuStream* stream);
  HotCall(const HotCall&) = delete;
  HotCall& operator=(const HotCall&) = delete;

  double seconds(const std::string& name) const;  // the median; on a GPU by the GPU's clock
  // If the call is a product: the faster of the two bare layouts. Nothing on a GPU.
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
