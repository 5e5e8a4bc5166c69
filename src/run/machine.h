// What this machine really gives: the best rate of a large product, by the kernels that a step
// uses, and the rate at which memory is read and written. Utilization is a share of these, and a
// device sheet made of them predicts steps here. Takes about a second.
#pragma once
#include "cost/cost.h"
#include "device/target.h"

namespace adjoint {

struct MachinePeak {
  double flops = 0;             // float32, on a GPU bf16, per second
  double bytes_per_second = 0;  // read and written together
  int threads = 1;              // that both were measured with
  Target target = Target::kCpu;
};

MachinePeak measure_machine(Target target = Target::kCpu);
// FLOPs per second of a large product of this dtype; one that the machine does not multiply is
// widened, as in a step.
double product_rate(Dtype dtype, Target target = Target::kCpu);

// "cpu" or "cuda"; an Error for another name, and where there is no such device here.
Target target_named(std::string_view name);

// The name of the sheet that comes with Adjoint for a GPU of this name and memory: of those that
// are called like it (what follows a dash is its memory) the one whose memory is nearest. Of a GPU
// that has none, the H200's, whose kernels are the same.
std::string sheet_for_gpu(std::string_view gpu, Bytes memory);
// That of this machine's CPU or GPU.
DeviceSheet sheet_here(Target target);
// The same with these rates.
DeviceSheet measured_sheet(const MachinePeak& peak);

// Costs by a sheet, and by the contests of products that a table has of such a GPU.
Costs costs_on(const DeviceSheet& sheet, int threads, const TunedProducts& table);

}  // namespace adjoint
