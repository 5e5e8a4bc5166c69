// How collectives run on a GPU. Ranks with a GPU each speak through NCCL, whose calls are work of
// the stream. Ranks that share one speak through the communicator, which copies and adds on streams
// of its own: the host waits until the stream has made what is sent, and until the call is done. So
// such a step cannot be recorded (Run::launches_recordings).
#include "base/error.h"
#include "comm/gpu_group.h"
#include "device/cuda_check.h"
#include "kernels/cuda/collectives.h"
#include "kernels/cuda/kernels.h"

namespace adjoint {

namespace {

// The workspace of a call: its packed pieces, then its scratch.
struct Room {
  Room(const Pointers& at, Bytes packed_size, Bytes all)
      : packed(static_cast<std::byte*>(at.workspace)),
        scratch(written(packed + packed_size.count, (all - packed_size).count)) {}
  std::byte* packed;
  WriteBytes scratch;
};

bool is_alone(const KernelCall& k, const Pointers& at) {
  CHECK(at.peers || ranks_of(k.call) == 1, "a call of several ranks is run on a mesh");
  // Terms meet in one exchange, for which workspaces are planned.
  if (at.peers) at.peers->use(Algorithm::kExchange);
  return ranks_of(k.call) == 1;
}

enum class Way : uint8_t { kPack, kUnpack };

// Copies all pieces between the whole and their packed form, a rank's stretches at once.
void copy_pieces(const Pieces& pieces, Way way, void* to, const void* from, cudaStream_t stream) {
  pieces.for_each_rank([&](const Pieces::Stretches& s) {
    const bool packs = way == Way::kPack;
    const int64_t to_begin = packs ? s.in_packed : s.in_whole;
    const int64_t from_begin = packs ? s.in_whole : s.in_packed;
    const int64_t to_step = packs ? s.packed_step : s.whole_step;
    const int64_t from_step = packs ? s.whole_step : s.packed_step;
    auto* const first = static_cast<std::byte*>(to) + to_begin;
    const auto* const source = static_cast<const std::byte*>(from) + from_begin;
    // CUDA limits steps to 2 GiB, also of a copy that takes none.
    check_cuda(s.count == 1
                   ? cudaMemcpyAsync(first, source, s.size, cudaMemcpyDeviceToDevice, stream)
                   : cudaMemcpy2DAsync(first, to_step, source, from_step, s.size, s.count,
                                       cudaMemcpyDeviceToDevice, stream),
               "copying pieces of a collective");
  });
}

void wait_for(cudaStream_t stream) {
  check_cuda(cudaStreamSynchronize(stream), "making what other ranks get");
}

}  // namespace

extern const Kernel cuda_all_reduce, cuda_reduce_scatter;  // collectives.cpp, for their workspaces

namespace {

Launch all_reduce_of_one(const KernelCall& k, const Pointers& at) {
  if (is_alone(k, at)) return move_cuda(k, at);
  const Room room(at, {0}, cuda_all_reduce.workspace(k));
  const int64_t bytes = k.outputs[0].bytes().count;
  const ReadBytes in = read(at.in[0], bytes);
  const WriteBytes out = written(at.out[0], bytes);
  return [=, peers = at.peers, gpus = at.peers->gpus(), dtype = k.outputs[0].dtype,
          stream = cuda_stream(at.stream)] {
    if (gpus) return gpus->all_reduce(dtype, in, out, Reduction::kSum, room.scratch, stream);
    wait_for(stream);
    peers->all_reduce(dtype, in, out, Reduction::kSum, room.scratch).wait();
  };
}

Launch all_gather_of_one(const KernelCall& k, const Pointers& at) {
  if (is_alone(k, at)) return move_cuda(k, at);
  const Pieces pieces = gathered(k);
  const bool packs = packed_on_cuda(pieces) > Bytes{0};
  void* const whole = at.out[0];
  void* const packed = packs ? at.workspace : whole;
  const ReadBytes in = read(at.in[0], pieces.piece_bytes());
  const WriteBytes out = written(packed, pieces.packed_bytes());
  return [=, peers = at.peers, gpus = at.peers->gpus(), stream = cuda_stream(at.stream)] {
    if (gpus) {
      gpus->all_gather(in, out, stream);
    } else {
      wait_for(stream);
      peers->all_gather(in, out).wait();
    }
    if (packs) copy_pieces(pieces, Way::kUnpack, whole, packed, stream);
  };
}

Launch reduce_scatter_of_one(const KernelCall& k, const Pointers& at) {
  if (is_alone(k, at)) return move_cuda(k, at);
  const Pieces pieces = scattered(k);
  const bool packs = packed_on_cuda(pieces) > Bytes{0};
  const Room room(at, packed_on_cuda(pieces), cuda_reduce_scatter.workspace(k));
  const void* const whole = at.in[0];
  const ReadBytes in =
      read(packs ? static_cast<const void*>(room.packed) : whole, pieces.packed_bytes());
  const WriteBytes out = written(at.out[0], pieces.piece_bytes());
  return [=, peers = at.peers, gpus = at.peers->gpus(), dtype = k.outputs[0].dtype,
          stream = cuda_stream(at.stream)] {
    if (packs) {
      check_cuda(cudaMemsetAsync(room.packed, 0, pieces.packed_bytes(), stream),
                 "clearing what lies between pieces");
      copy_pieces(pieces, Way::kPack, room.packed, whole, stream);
    }
    if (gpus) return gpus->reduce_scatter(dtype, in, out, Reduction::kSum, room.scratch, stream);
    wait_for(stream);
    peers->reduce_scatter(dtype, in, out, Reduction::kSum, room.scratch).wait();
  };
}

// Operands that travel together (functors/bucket.cpp) travel one behind the other: each has the
// bits that it has alone, and messages between GPUs are cheap.
Launch each_alone(const KernelCall& k, const Pointers& at,
                  Launch (*prepare)(const KernelCall&, const Pointers&)) {
  std::vector<Launch> launches;
  for_each_operand(k, [&](size_t i, const KernelCall& one) {
    Pointers mine = at;
    mine.in = {at.in[i]};
    mine.out = {at.out[i]};
    launches.push_back(prepare(one, mine));
  });
  if (launches.size() == 1) return launches[0];
  return [launches = std::move(launches)] {
    for (const Launch& launch : launches) launch();
  };
}

}  // namespace

Launch all_reduce_cuda(const KernelCall& k, const Pointers& at) {
  return each_alone(k, at, all_reduce_of_one);
}
Launch all_gather_cuda(const KernelCall& k, const Pointers& at) {
  return each_alone(k, at, all_gather_of_one);
}
Launch reduce_scatter_cuda(const KernelCall& k, const Pointers& at) {
  return each_alone(k, at, reduce_scatter_of_one);
}

}  // namespace adjoint
