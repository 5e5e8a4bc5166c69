#include "device/gpu_refusals.h"

#include <algorithm>

#include "base/error.h"

namespace adjoint {

namespace {
constexpr int kLeastMajor = 8;          // kernels of this binary, and bf16
constexpr Bytes kLibraries{512 << 20};  // that CUDA's libraries may still take beside an arena
constexpr int64_t kMiB = 1 << 20;
}  // namespace

std::string cuda_version(int number) { return join_parts(number / 1000, ".", number % 1000 / 10); }

std::string why_no_gpu(const GpuFound& found) {
  if (found.driver == 0) return "there is no NVIDIA driver on this machine: say --device cpu";
  if (found.driver / 1000 < found.runtime / 1000) {
    return join_parts("the NVIDIA driver is too old: it speaks CUDA ", cuda_version(found.driver),
                      ", this adjoint was built for ", cuda_version(found.runtime),
                      "; update the driver, or say --device cpu");
  }
  if (found.count == 0) {
    return join_parts("no GPU can be used on this machine (",
                      found.trouble.empty() ? "there is none" : found.trouble,
                      "): say --device cpu");
  }
  if (found.major < kLeastMajor) {
    return join_parts(found.name, " has compute capability ", found.major, ".", found.minor,
                      "; Adjoint's kernels and bf16 want ", kLeastMajor,
                      ".0 or newer: say --device cpu");
  }
  return "";
}

std::string too_little_gpu_memory(Bytes wanted, Bytes free) {
  const int64_t fits = std::max(free.count - kLibraries.count, free.count / 2) / kMiB;
  return join_parts("this wants ", human(wanted), " (", wanted.count,
                    " bytes) of GPU memory, where ", human(free), " (", free.count,
                    " bytes) are free: take a smaller --batch, or let train or profile choose a "
                    "stack that fits with --fit ",
                    std::max<int64_t>(1, fits), "MiB");
}

}  // namespace adjoint
