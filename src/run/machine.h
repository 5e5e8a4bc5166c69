// Measures this machine's peak: the rate of a large product, with the kernels that a step uses, and
// the memory bandwidth. Utilization is a share of these, and a device sheet made from them predicts
// steps on this machine. Takes about a second.
#pragma once
#include <string>
#include <string_view>
#include <vector>

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
// FLOP/s of a large product in this dtype; a dtype that the machine cannot multiply is widened, as
// in a step.
double product_rate(Dtype dtype, Target target = Target::kCpu);

// "cpu" or "cuda"; throws an Error for another name, or if this machine has no such device.
Target target_named(std::string_view name);
std::vector<std::string> known_targets();
// The target that other programs call otherwise: of "gpu" cuda; "": none.
std::string_view meant_target(std::string_view word);

// The name of the built-in sheet for a GPU of this name and memory: of the sheets with the GPU's
// name (a suffix after a dash is the memory) the one whose memory is nearest. A GPU without a sheet
// gets the H200's, whose kernels are the same.
std::string sheet_for_gpu(std::string_view gpu, Bytes memory);
// The sheet of this machine's CPU or GPU.
DeviceSheet sheet_here(Target target);
// The same with these rates.
DeviceSheet measured_sheet(const MachinePeak& peak);

// Costs by a sheet, and by the product times that a table holds for such a GPU.
Costs costs_on(const DeviceSheet& sheet, int threads, const TunedProducts& table);

}  // namespace adjoint
