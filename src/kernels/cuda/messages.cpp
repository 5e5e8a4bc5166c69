// Messages on a GPU, and the workspaces that they want: several objects travel packed.
#include "kernels/cuda/messages.h"

namespace adjoint {

Bytes packed_message(const std::vector<Type>& objects) {
  Bytes sum{0};
  for (const Type& type : objects) sum += type.bytes();
  return sum;
}

extern const Kernel cuda_receive = {
    .op = "receive",
    .prepare = receive_cuda,
    .workspace =
        [](const KernelCall& k) {
          return k.outputs.size() > 1 ? packed_message(k.outputs) : Bytes{0};
        },
};

extern const Kernel cuda_send = {
    .op = "send",
    .prepare = send_cuda,
    .workspace =
        [](const KernelCall& k) {
          return k.call.inputs.size() > 1 ? packed_message(k.call.inputs) : Bytes{0};
        },
};

}  // namespace adjoint
