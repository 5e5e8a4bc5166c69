// A graph made ready for one device: cuDNN has chosen and compiled its kernels. A plan serves any
// number of calls, each with pointers of its own.
#pragma once
#include <optional>

#include "base/error.h"
#include "kernels/cuda/cudnn/graph.h"
#include "kernels/kernel.h"

namespace adjoint {

// There are plans, but none that works in the room it was offered.
class CudnnNoRoom : public MachineError {
 public:
  using MachineError::MachineError;
};

class CudnnPlan : public std::enable_shared_from_this<CudnnPlan> {
 public:
  // The first plan of those cuDNN suggests that it can make and that wants no larger workspace, or
  // MachineError.
  CudnnPlan(CudnnGraph graph, cudnnHandle_t handle, Bytes room);

  Bytes workspace() const { return workspace_; }
  // The plan outlives the launch. Pointers are those of the graph's memory.
  Launch prepare(cudnnHandle_t handle, const std::vector<std::pair<CudnnGraph::Tensor, void*>>& at,
                 void* workspace) const;

 private:
  bool try_config(const CudnnDescriptor& config, cudnnHandle_t handle, Bytes room);

  CudnnGraph graph_;
  CudnnDescriptor operation_graph_;
  std::unique_ptr<CudnnDescriptor> plan_;
  Bytes workspace_;
  std::string why_not_;
  std::optional<Bytes> least_;  // that a plan without room wanted
};

// The stream's handle: made at first use, kept to the end of the process.
cudnnHandle_t cudnn_handle(cudaStream_t stream);

}  // namespace adjoint
