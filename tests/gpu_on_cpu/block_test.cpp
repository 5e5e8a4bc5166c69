// The machine that runs kernels here tells what a GPU would not forgive, or forgive once in a
// while.
#include "gpu_on_cpu/block.h"

#include <set>
#include <vector>

#include "base/error.h"
#include "gpu_on_cpu/compiler.h"
#include "kernels/backend.h"
#include "kernels/cuda/codegen/body_prelude.h"
#include "kernels/cuda/codegen/kernel_cache.h"
#include "ops/op_def.h"

namespace adjoint {
namespace {

class BlockOnCpu : public KernelsOnCpu {
 protected:
  // A kernel of 64 threads, each with a number `y` to leave.
  static LaunchedKernel kernel(const std::string& body) {
    const std::string text = "typedef float real;\n" + std::string(cuda_instructions()) +
                             std::string(cuda_prelude()) +
                             "struct Args { int* out; };\n"
                             "extern \"C\" __global__ void __launch_bounds__(64) test(const "
                             "__grid_constant__ Args a) {\n"
                             "const int t = threadIdx.x;\nint y = 0;\n" +
                             body + "\na.out[t] = y;\n}\n";
    return {compile_kernels(text), "test", {.threads = 64}};
  }
  static std::vector<int> results(const LaunchedKernel& kernel, ThreadOrder order) {
    std::vector<int> out(64, -1);
    int* at = out.data();
    set_thread_order(order);
    kernel(&at, nullptr);
    return out;
  }
};

std::string complaint(const auto& f) {
  try {
    f();
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

TEST_F(BlockOnCpu, TellsWhatIsWrong) {
  const std::vector<std::pair<LaunchedKernel, std::string>> wrong = {
      {kernel("if (t % 32 >= 8) return; __syncwarp(0xffffffffu);"), "never come"},
      {kernel("if (t % 2) __syncthreads(); else __syncwarp(0xffffffffu);"), "never come"},
      {kernel("__syncwarp(t % 32 < 8 ? 0xff00u : 0xffu);"), "of which it is none"},
      {kernel("__shfl_xor_sync(0xffffffffu, 1.0f, t % 2 ? 2 : 4);"), "different things"},
      {kernel("__shfl_xor_sync(t % 32 < 8 ? 0xffu : ~0xffu, 1.0f, 8);"), "gives none"}};
  const LaunchedKernel good = kernel("__syncthreads(); y = t;");
  finish_kernels();
  for (const auto& [kernel, want] : wrong) {
    const std::string said = complaint([&] { results(kernel, ThreadOrder::kFirstToLast); });
    EXPECT_NE(said.find(want), std::string::npos) << want << ": " << said;
    EXPECT_EQ(results(good, ThreadOrder::kFirstToLast)[63], 63) << "the next one starts afresh";
  }
}

TEST_F(BlockOnCpu, ThreadsThatDoNotWaitAreSeen) {
  // What is read was written by another warp, by another lane, or is written anew too early.
  const std::string write = "__shared__ int x[64]; x[t] = t + 1;", read = " y = x[63 - t];";
  const std::vector<std::pair<std::string, std::string>> pairs = {
      {write + read, write + " __syncthreads();" + read},
      {write + " y = x[t ^ 1];", write + " __syncwarp(0xffffffffu); y = x[t ^ 1];"},
      {write + " __syncthreads();" + read + " x[t] = 0;",
       write + " __syncthreads();" + read + " __syncthreads(); x[t] = 0;"}};
  std::vector<std::pair<LaunchedKernel, LaunchedKernel>> kernels;
  for (const auto& [wrong, right] : pairs) kernels.emplace_back(kernel(wrong), kernel(right));
  finish_kernels();
  for (size_t i = 0; i < pairs.size(); ++i) {
    std::set<std::vector<int>> wrong, right;
    for (const auto order : {ThreadOrder::kFirstToLast, ThreadOrder::kLastToFirst}) {
      wrong.insert(results(kernels[i].first, order));
      right.insert(results(kernels[i].second, order));
    }
    EXPECT_EQ(wrong.size(), 2u) << pairs[i].first;
    EXPECT_EQ(right.size(), 1u) << pairs[i].second;
  }
}

TEST_F(BlockOnCpu, ThreadsOfAWarpExchangeNumbers) {
  const LaunchedKernel sum = kernel(
      "float s = t; for (int m = 16; m > 0; m /= 2) s += __shfl_xor_sync(0xffffffffu, s, m);"
      "y = (int)s;");
  finish_kernels();
  for (const auto order : {ThreadOrder::kFirstToLast, ThreadOrder::kLastToFirst}) {
    const std::vector<int> sums = results(sum, order);
    EXPECT_EQ(sums[5], 31 * 16);
    EXPECT_EQ(sums[40], 31 * 16 + 32 * 32);
  }
}

}  // namespace
}  // namespace adjoint
