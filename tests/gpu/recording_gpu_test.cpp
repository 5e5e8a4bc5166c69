// A recording that is torn by an exception, and what the streams do afterwards. Skipped where there
// is no GPU.
#include <gtest/gtest.h>

#include <stdexcept>
#include <vector>

#include "device/buffer.h"
#include "device/gpu.h"

namespace adjoint {
namespace {

TEST(GpuRecording, ACallThatThrowsLeavesNoneOpen) {
  if (!has_gpu()) GTEST_SKIP() << "no GPU that this binary can use";
  constexpr Bytes kSize{4096};
  const Buffer memory(kSize, Memory::kGpu);
  const auto read = [&](GpuStream& stream) {
    std::vector<std::byte> bytes(kSize.count);
    stream.copy(bytes.data(), memory.data(), kSize);
    stream.synchronize();
    return bytes;
  };
  const auto all = [&](int byte) {
    return std::vector<std::byte>(kSize.count, static_cast<std::byte>(byte));
  };
  for (const bool two_streams : {false, true}) {
    GpuStream work, beside;
    GpuClock clock(2);
    work.fill(memory.data(), std::byte{1}, kSize);
    work.synchronize();
    EXPECT_THROW(recorded(work,
                          [&] {
                            work.fill(memory.data(), std::byte{2}, kSize);
                            if (two_streams) {  // and the second never comes back to the first
                              clock.mark(0, work);
                              beside.wait_for(clock, 0);
                              beside.fill(memory.data(), std::byte{3}, kSize);
                            }
                            throw std::runtime_error("a call that fails");
                          }),
                 std::runtime_error);
    EXPECT_EQ(read(work), all(1)) << "what was recorded did not run";
    // Both run what they are given now.
    work.fill(memory.data(), std::byte{4}, kSize);
    EXPECT_EQ(read(work), all(4));
    beside.fill(memory.data(), std::byte{5}, kSize);
    EXPECT_EQ(read(beside), all(5));
    // And the next recording is a whole one.
    const auto recording = recorded(work, [&] {
      clock.mark(0, work);
      beside.wait_for(clock, 0);
      beside.fill(memory.data(), std::byte{6}, kSize);
      clock.mark(1, beside);
      work.wait_for(clock, 1);
    });
    EXPECT_EQ(read(work), all(5));
    work.launch(*recording);
    EXPECT_EQ(read(work), all(6));
  }
}

}  // namespace
}  // namespace adjoint
