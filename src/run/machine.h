// What this machine really gives: the best rate of a large product, by the kernels that a step
// uses, and the rate at which memory is read and written. Utilization is a share of these, and a
// device sheet made of them predicts steps here. Takes about a second.
#pragma once
#include "cost/sheet.h"

namespace adjoint {

struct MachinePeak {
  double flops = 0;             // float32, per second
  double bytes_per_second = 0;  // read and written together
  int threads = 1;              // that both were measured with
};

MachinePeak measure_machine();
// FLOPs per second of a large product of this dtype; one that the machine does not multiply is
// widened, as in a step.
double product_rate(Dtype dtype);

// The sheet of a CPU with this one's rates.
DeviceSheet measured_sheet(const MachinePeak& peak);

}  // namespace adjoint
