// Messages between two ranks on a CPU: the communicator moves the bytes while the caller computes.
// Several objects travel packed, in a planned workspace. One rank alone has nobody to speak to.
#include <cstring>

#include "base/error.h"
#include "comm/communicator.h"
#include "kernels/halves.h"
#include "ops/message.h"

namespace adjoint {

namespace {

Bytes packed(const std::vector<Type>& types) {
  Bytes sum{0};
  for (const Type& type : types) sum += type.bytes();
  return sum;
}

bool is_alone(const KernelCall& k, const Pointers& at) {
  const bool alone = k.call.integer("ranks") == 1;
  CHECK(at.peers || alone, "a message between ranks is sent on a mesh");
  return alone;
}

Launch send(const KernelCall& k, const Pointers& at) {
  auto* const token = static_cast<float*>(at.out[0]);
  if (is_alone(k, at)) return [token] { *token = 0; };
  const Bytes size = packed(k.call.inputs);
  const bool packs = at.in.size() > 1;
  const auto* const from = static_cast<const std::byte*>(packs ? at.workspace : at.in[0]);
  const int64_t each = k.call.inputs[0].bytes().count;
  const auto pending = std::make_shared<Pending>();
  const auto to = static_cast<int>(other_rank(k.call));
  return halves(
      at,
      [=, in = at.in, to_pack = static_cast<char*>(at.workspace), peers = at.peers] {
        *token = 0;
        for (size_t i = 0; packs && i < in.size(); ++i) {
          std::memcpy(to_pack + static_cast<int64_t>(i) * each, in[i], each);
        }
        *pending = peers->send(to, {from, static_cast<size_t>(size.count)});
      },
      [pending] { pending->wait(); });
}

Launch receive(const KernelCall& k, const Pointers& at) {
  const Bytes size = packed(k.outputs);
  const int64_t each = k.outputs[0].bytes().count;
  if (is_alone(k, at)) {
    return [out = at.out, each] {
      for (void* to : out) std::memset(to, 0, each);
    };
  }
  const bool packs = at.out.size() > 1;
  auto* const to = static_cast<std::byte*>(packs ? at.workspace : at.out[0]);
  const auto pending = std::make_shared<Pending>();
  const auto from = static_cast<int>(other_rank(k.call));
  return halves(
      at,
      [=, peers = at.peers] {
        *pending = peers->receive(from, {to, static_cast<size_t>(size.count)});
      },
      [=, out = at.out] {
        pending->wait();
        for (size_t i = 0; packs && i < out.size(); ++i) {
          std::memcpy(out[i], to + static_cast<int64_t>(i) * each, each);
        }
      });
}

}  // namespace

extern const Kernel cpu_send = {
    .op = "send",
    .prepare = send,
    .workspace =
        [](const KernelCall& k) {
          return k.call.inputs.size() > 1 ? packed(k.call.inputs) : Bytes{0};
        },
};

extern const Kernel cpu_receive = {
    .op = "receive",
    .prepare = receive,
    .workspace =
        [](const KernelCall& k) { return k.outputs.size() > 1 ? packed(k.outputs) : Bytes{0}; },
};

}  // namespace adjoint
