// A device on which seconds are FLOPs, 1e9 of them in each: what is fastest recomputes least.
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
