// Ranks and GPUs: sums there are the host's, several ranks share one GPU, and NCCL's calls work,
// with the one rank that one GPU allows. Skipped where there is no GPU.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "comm/gpu_group.h"
#include "comm/gpu_reduction.h"
#include "comm/seat.h"
#include "comm/terms.h"
#include "device/buffer.h"
#include "device/gpu.h"

namespace adjoint {
namespace {

Buffer on_gpu(const std::vector<std::byte>& data, GpuStream& stream) {
  Buffer buffer({static_cast<int64_t>(std::max<size_t>(data.size(), 1))}, Memory::kGpu);
  if (!data.empty()) stream.copy(buffer.data(), data.data(), {static_cast<int64_t>(data.size())});
  stream.synchronize();
  return buffer;
}

std::vector<std::byte> on_host(const std::byte* data, size_t size, GpuStream& stream) {
  std::vector<std::byte> host(size);
  if (size > 0) stream.copy(host.data(), data, {static_cast<int64_t>(size)});
  stream.synchronize();
  return host;
}

// Numbers at the edges of a dtype too: overflow, subnormals, zeros of both signs.
std::vector<std::byte> edges_of(int rank, Dtype dtype, int64_t count) {
  auto data = numbers_of(rank, dtype, count);
  if (!is_float(dtype)) return data;
  const double odd[] = {65504, -65504, 3e38, 1e-7, -6e-8, 0.0, -0.0, 1e-40, 1, INFINITY};
  for (int64_t i = 0; i < count; i += 3) {
    store_element(data.data(), dtype, i, odd[(i / 3 + rank) % std::size(odd)]);
  }
  return data;
}

TEST(GpuComm, SumsHaveTheBitsOfTheHosts) {
  if (!has_gpu()) GTEST_SKIP() << "no GPU that this binary can use";
  GpuStream stream;
  for (const Dtype dtype : all_dtypes()) {
    for (const Reduction reduction : {Reduction::kSum, Reduction::kMax}) {
      for (const int64_t count : {0, 1, 7, 1000, 100003}) {
        for (const int ranks : {1, 2, 5}) {
          // The second time nothing is aligned.
          for (const int64_t skip : {0, 1}) {
            if (skip > count) continue;
            std::vector<std::vector<std::byte>> terms;
            std::vector<Buffer> buffers;
            std::vector<const std::byte*> host, device;
            const int64_t offset = skip * size_of(dtype).count;
            for (int rank = 0; rank < ranks; ++rank) {
              terms.push_back(edges_of(rank, dtype, count));
              buffers.push_back(on_gpu(terms.back(), stream));
              device.push_back(buffers.back().data() + offset);
            }
            for (const auto& term : terms) host.push_back(term.data() + offset);
            std::vector<std::byte> wanted(terms[0].size() - offset);
            reduce_in_order(reduction, dtype, host, count - skip, wanted.data());
            reduce_on_gpu(reduction, dtype, device, count - skip, buffers[0].data() + offset,
                          stream.handle());
            const auto found = on_host(buffers[0].data() + offset, wanted.size(), stream);
            int64_t wrong = 0;
            for (int64_t i = 0; i < count - skip; ++i) {
              const int64_t size = size_of(dtype).count;
              const bool same = std::equal(found.begin() + i * size, found.begin() + (i + 1) * size,
                                           wanted.begin() + i * size);
              const bool both_nan = is_float(dtype) &&
                                    std::isnan(load_element(found.data(), dtype, i)) &&
                                    std::isnan(load_element(wanted.data(), dtype, i));
              wrong += !same && !both_nan;
            }
            EXPECT_EQ(wrong, 0) << name(reduction) << " of " << count << " " << name(dtype)
                                << " on " << ranks << " ranks, skipping " << skip;
          }
        }
      }
    }
  }
}

TEST(GpuComm, RanksShareAGpuWithTheBitsOfTheHost) {
  if (!has_gpu()) GTEST_SKIP() << "no GPU that this binary can use";
  const DeviceMemory memory = gpu_memory();
  for (const Dtype dtype : {Dtype::kF32, Dtype::kBF16}) {
    for (const int ranks : {2, 4}) {
      const int64_t count = 100003;
      const auto wanted = sum_of_ranks(ranks, dtype, count);
      run_ranks(ranks,
                [&](Communicator world) {
                  GpuStream stream;
                  for (const Algorithm algorithm : algorithms_of(Collective::kAllReduce)) {
                    world.use(algorithm);
                    Buffer data = on_gpu(numbers_of(world.rank(), dtype, count), stream);
                    const int64_t size = static_cast<int64_t>(wanted.size());
                    const WriteBytes span(data.data(), size);
                    const Bytes wants = world.scratch(Collective::kAllReduce, dtype, size);
                    Buffer scratch(wants, Memory::kGpu);
                    world
                        .all_reduce(dtype, span, span, Reduction::kSum,
                                    {scratch.data(), static_cast<size_t>(wants.count)})
                        .wait();
                    EXPECT_TRUE(on_host(data.data(), wanted.size(), stream) == wanted)
                        << name(algorithm) << " on " << ranks << " ranks";
                  }
                },
                {.memory = memory});
    }
  }
}

// Numbers of the host travel between ranks that share a GPU, too: what is saved, and what ranks
// agree on.
TEST(GpuComm, RanksOfAGpuAlsoSendWhatTheHostHas) {
  if (!has_gpu()) GTEST_SKIP() << "no GPU that this binary can use";
  run_ranks(3,
            [&](const Communicator& world) {
              GpuStream stream;
              const auto mine = numbers_of(world.rank(), Dtype::kF32, 1001);
              std::vector<std::byte> sum(mine.size()), all(mine.size() * 3), back(all.size());
              world.all_reduce(Dtype::kF32, mine, sum).wait();
              EXPECT_TRUE(sum == sum_of_ranks(3, Dtype::kF32, 1001));
              // From the host to the GPU and back.
              Buffer there({static_cast<int64_t>(all.size())}, Memory::kGpu);
              world.all_gather(mine, {there.data(), all.size()}).wait();
              world.all_gather(mine, all).wait();
              EXPECT_TRUE(on_host(there.data(), all.size(), stream) == all);
            },
            {.memory = gpu_memory()});
}

// A seat of one rank: what the trainer of a process with a GPU of its own opens. Its calls are work
// of a stream, so a step with them can be recorded.
TEST(GpuComm, NcclsCallsOfASeatAreRecorded) {
  if (!has_gpu()) GTEST_SKIP() << "no GPU that this binary can use";
  for (const bool deterministic : {false, true}) {
    run_ranks(1, [&](const Communicator& world) {
      Seat seat(world, {{.name = "data", .size = 1}});
      EXPECT_FALSE(seat.gpus_are_open());
      EXPECT_EQ(seat.along("data").gpus(), nullptr);
      seat.open_gpus(deterministic);
      ASSERT_TRUE(seat.gpus_are_open());
      GpuGroup& group = *seat.along("data").gpus();
      GpuStream stream;
      const auto numbers = numbers_of(5, Dtype::kF32, 1000);
      const auto size = static_cast<int64_t>(numbers.size());
      Buffer in = on_gpu(numbers, stream), out({size}, Memory::kGpu);
      const auto enqueue = [&] {
        group.all_reduce(Dtype::kF32, {in.data(), numbers.size()}, {out.data(), numbers.size()},
                         Reduction::kSum, {}, stream.handle());
      };
      enqueue();  // what is set up at the first call cannot be recorded
      stream.synchronize();
      const auto recording = recorded(stream, enqueue);
      for (int step = 0; step < 3; ++step) {
        stream.fill(out.data(), std::byte{0}, {size});
        stream.launch(*recording);
        EXPECT_EQ(on_host(out.data(), numbers.size(), stream), numbers);
      }
      group.check();
    });
  }
}

TEST(GpuComm, NcclsCallsWorkWithOneRank) {
  if (!has_gpu()) GTEST_SKIP() << "no GPU that this binary can use";
  for (const bool deterministic : {false, true}) {
    run_ranks(1, [&](Communicator world) {
      GpuGroup group(world, deterministic);
      GpuStream stream;
      for (const Dtype dtype : all_dtypes()) {
        const auto numbers = numbers_of(3, dtype, 1003);
        const size_t size = numbers.size();
        Buffer in = on_gpu(numbers, stream);
        const auto check = [&](const char* what, const auto& call) {
          Buffer out({static_cast<int64_t>(size)}, Memory::kGpu);
          stream.fill(out.data(), std::byte{0}, {static_cast<int64_t>(size)});
          call(ReadBytes(in.data(), size), WriteBytes(out.data(), size));
          EXPECT_EQ(on_host(out.data(), size, stream), numbers) << what << " of " << name(dtype);
        };
        void* const on = stream.handle();
        check("all_reduce", [&](ReadBytes from, WriteBytes to) {
          group.all_reduce(dtype, from, to, Reduction::kSum, {}, on);
        });
        check("reduce_scatter", [&](ReadBytes from, WriteBytes to) {
          group.reduce_scatter(dtype, from, to, Reduction::kMax, {}, on);
        });
        check("all_gather", [&](ReadBytes from, WriteBytes to) { group.all_gather(from, to, on); });
        check("all_to_all", [&](ReadBytes from, WriteBytes to) { group.all_to_all(from, to, on); });
        group.broadcast(0, {in.data(), size}, on);
        EXPECT_EQ(on_host(in.data(), size, stream), numbers) << "broadcast";
        EXPECT_EQ(group.scratch(Collective::kAllReduce, dtype, static_cast<int64_t>(size)).count,
                  0);
      }
      group.check();
    });
  }
}

}  // namespace
}  // namespace adjoint
