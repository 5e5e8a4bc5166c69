// A device whose time is proportional to FLOPs, 1e9 per second, so that the fastest step recomputes
// least.
#pragma once
#include "cost/sheet.h"

namespace adjoint {

constexpr double kFlopsPerSecond = 1e9;

inline DeviceSheet flops_sheet() {
  return {.name = "flops",
          .summary = "seconds are FLOPs",
          .products = {{"f32", kFlopsPerSecond}},
          .attention = 1,
          .attention_backward = 1,
          .arithmetic = kFlopsPerSecond,
          .bandwidth = 1e18,
          .most_bandwidth = 1e18,
          .launch = 1e-15,
          .workspace = {1 << 20}};
}

}  // namespace adjoint
