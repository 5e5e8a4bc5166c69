// How messages between two ranks run on a GPU. A call has two halves, as on a CPU: the first begins
// the message, the second waits for it on the host, where the plan says that it must be done
// (done_before in plan/lanes.h). So a step with messages is run call by call, never recorded
// (Run::launches_recordings).
//
// Ranks that share a GPU speak through the communicator, whose thread copies from the sender's
// bytes to the receiver's on a stream of its own. It knows nothing of the streams of the two, so
// the first half waits until the stream has made what is sent, or has done with the bytes that are
// written. Ranks with a GPU each speak through NCCL, whose lanes wait for the stream themselves
// (comm/gpu_messages.h).
//
// Nobody waits forever, because waits are those of ranks on CPUs:
//   No work of a stream waits for a host or for another rank, where ranks share a GPU; so a first
//   half, which waits for streams alone, ends whatever other ranks do.
//   Second halves stand at the same places on every target, and the schedule was walked with them
//   (schedules/walk.h).
//   A collective waits in its launch, for ranks that have the same list of calls. Suppose that
//   ranks wait forever. Of those with one list, the rank that is least far waits for no collective:
//   all others have come there. So it waits for the other end of a message, at which a rank has
//   not yet come; then the least far of that rank's list has not come there either. These ranks,
//   one per list, would wait for each other without any collective, and that the walk has ruled
//   out.
// Messages of one direction between two ranks meet in the order in which they were begun. Those of
// the other direction are apart, so a rank may send forward while it is sent something back.
#include "base/error.h"
#include "comm/communicator.h"
#include "comm/gpu_group.h"
#include "comm/gpu_messages.h"
#include "device/cuda_check.h"
#include "kernels/cuda/messages.h"
#include "kernels/halves.h"
#include "ops/message.h"

namespace adjoint {

namespace {

bool is_alone(const KernelCall& k, const Pointers& at) {
  const bool alone = k.call.integer("ranks") == 1;
  CHECK(at.peers || alone, "a message between ranks is sent on a mesh");
  return alone;
}

void copy(void* to, const void* from, Bytes size, cudaStream_t stream) {
  check_cuda(cudaMemcpyAsync(to, from, size.count, cudaMemcpyDefault, stream), "packing a message");
}
void clear(void* to, Bytes size, cudaStream_t stream) {
  check_cuda(cudaMemsetAsync(to, 0, size.count, stream), "clearing what nobody sent");
}
void wait_for(cudaStream_t stream) {
  check_cuda(cudaStreamSynchronize(stream), "reaching a message");
}

// Begins a message when the stream has come to it; waits on the host until it is done.
struct Halves {
  Launch begin, end;
};

Halves on_lane(const std::shared_ptr<GpuMessage>& message, void* stream) {
  return {.begin = [=] { message->begin(stream); }, .end = [=] { message->wait(); }};
}

Halves sent(const KernelCall& k, const Pointers& at, const void* from, Bytes size) {
  const auto to = static_cast<int>(other_rank(k.call));
  const ReadBytes data(static_cast<const std::byte*>(from), static_cast<size_t>(size.count));
  if (GpuGroup* const gpus = at.peers->gpus()) {
    return on_lane(gpus->messages().send(to, data), at.stream);
  }
  const auto pending = std::make_shared<Pending>();
  return {.begin =
              [=, peers = at.peers, stream = cuda_stream(at.stream)] {
                wait_for(stream);
                *pending = peers->send(to, data);
              },
          .end = [=] { pending->wait(); }};
}

Halves received(const KernelCall& k, const Pointers& at, void* to, Bytes size) {
  const auto from = static_cast<int>(other_rank(k.call));
  const WriteBytes data(static_cast<std::byte*>(to), static_cast<size_t>(size.count));
  if (GpuGroup* const gpus = at.peers->gpus()) {
    return on_lane(gpus->messages().receive(from, data), at.stream);
  }
  const auto pending = std::make_shared<Pending>();
  return {.begin =
              [=, peers = at.peers, stream = cuda_stream(at.stream)] {
                wait_for(stream);
                *pending = peers->receive(from, data);
              },
          .end = [=] { pending->wait(); }};
}

}  // namespace

Launch send_cuda(const KernelCall& k, const Pointers& at) {
  void* const token = at.out[0];
  const Bytes token_size = k.outputs[0].bytes(), each = k.call.inputs[0].bytes();
  const cudaStream_t stream = cuda_stream(at.stream);
  if (is_alone(k, at)) return [=] { clear(token, token_size, stream); };
  const bool packs = at.in.size() > 1;
  auto* const packed = static_cast<std::byte*>(at.workspace);
  const Halves message = sent(k, at, packs ? packed : at.in[0], packed_message(k.call.inputs));
  return halves(
      at,
      [=, in = at.in, begin = message.begin] {
        clear(token, token_size, stream);
        for (size_t i = 0; packs && i < in.size(); ++i) {
          copy(packed + static_cast<int64_t>(i) * each.count, in[i], each, stream);
        }
        begin();
      },
      message.end);
}

Launch receive_cuda(const KernelCall& k, const Pointers& at) {
  const Bytes each = k.outputs[0].bytes();
  const cudaStream_t stream = cuda_stream(at.stream);
  if (is_alone(k, at)) {
    return [=, out = at.out] {
      for (void* to : out) clear(to, each, stream);
    };
  }
  const bool packs = at.out.size() > 1;
  auto* const packed = static_cast<std::byte*>(at.workspace);
  const Halves message = received(k, at, packs ? packed : at.out[0], packed_message(k.outputs));
  if (!packs) return halves(at, message.begin, message.end);
  return halves(at, message.begin, [=, out = at.out, end = message.end] {
    end();
    for (size_t i = 0; i < out.size(); ++i) {
      copy(out[i], packed + static_cast<int64_t>(i) * each.count, each, stream);
    }
    // Readers wait for this call's place in its stream, which is behind them by now.
    wait_for(stream);
  });
}

}  // namespace adjoint
