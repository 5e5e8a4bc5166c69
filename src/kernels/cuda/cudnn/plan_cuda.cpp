#include <algorithm>
#include <map>
#include <mutex>

#include "base/error.h"
#include "kernels/cuda/cudnn/plan.h"
#include "kernels/kernel.h"

namespace adjoint {

namespace {

template <class T>
T attribute_of(const CudnnDescriptor& descriptor, cudnnBackendAttributeName_t name,
               cudnnBackendAttributeType_t type) {
  T value = {};
  int64_t count = 0;
  const cudnnStatus_t status =
      cudnnBackendGetAttribute(descriptor.get(), name, type, 1, &count, &value);
  if (status != CUDNN_STATUS_SUCCESS) fail_cudnn("reading an attribute", status);
  return value;
}

// The engine configurations that cuDNN suggests, the best first.
std::vector<CudnnDescriptor> suggestions(const CudnnDescriptor& operation_graph,
                                         cudnnBackendHeurMode_t mode) {
  CudnnDescriptor heuristic(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  heuristic.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, operation_graph);
  heuristic.set(CUDNN_ATTR_ENGINEHEUR_MODE, mode);
  if (heuristic.try_finalize() != CUDNN_STATUS_SUCCESS) return {};
  int64_t count = 0;
  if (cudnnBackendGetAttribute(heuristic.get(), CUDNN_ATTR_ENGINEHEUR_RESULTS,
                               CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, &count,
                               nullptr) != CUDNN_STATUS_SUCCESS)
    return {};
  std::vector<CudnnDescriptor> configs;
  std::vector<cudnnBackendDescriptor_t> raw;
  for (int64_t i = 0; i < count; ++i)
    raw.push_back(configs.emplace_back(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR).get());
  if (cudnnBackendGetAttribute(heuristic.get(), CUDNN_ATTR_ENGINEHEUR_RESULTS,
                               CUDNN_TYPE_BACKEND_DESCRIPTOR, count, &count,
                               raw.data()) != CUDNN_STATUS_SUCCESS)
    return {};
  configs.erase(configs.begin() + count, configs.end());
  return configs;
}

}  // namespace

CudnnPlan::CudnnPlan(CudnnGraph graph, cudnnHandle_t handle, Bytes room)
    : graph_(std::move(graph)), operation_graph_(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR) {
  std::vector<cudnnBackendDescriptor_t> operations;
  for (const CudnnDescriptor& op : graph_.operations_) operations.push_back(op.get());
  operation_graph_.set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, handle);
  operation_graph_.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                       operations.size(), operations.data());
  operation_graph_.finalize("a graph of ops");
  for (const cudnnBackendHeurMode_t mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK})
    for (const CudnnDescriptor& config : suggestions(operation_graph_, mode))
      if (try_config(config, handle, room)) return;
  if (least_)
    throw CudnnNoRoom(join_parts("cuDNN wants a workspace of ", least_->count, " bytes, where ",
                                 room.count, " are planned"));
  if (why_not_.empty()) fail_cudnn("no engine for this graph of ops", CUDNN_STATUS_NOT_SUPPORTED);
  throw MachineError("cuDNN: no engine for this graph of ops; the last said: " + why_not_);
}

bool CudnnPlan::try_config(const CudnnDescriptor& config, cudnnHandle_t handle, Bytes room) {
  auto plan = std::make_unique<CudnnDescriptor>(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
  plan->set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, handle);
  plan->set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config);
  const cudnnStatus_t status = plan->try_finalize();
  if (status != CUDNN_STATUS_SUCCESS) {
    why_not_ = cudnn_words(status);
    return false;
  }
  workspace_ = {
      attribute_of<int64_t>(*plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64)};
  if (workspace_ > room) {
    least_ = std::min(least_.value_or(workspace_), workspace_);
    return false;
  }
  plan_ = std::move(plan);
  return true;
}

Launch CudnnPlan::prepare(cudnnHandle_t handle,
                          const std::vector<std::pair<CudnnGraph::Tensor, void*>>& at,
                          void* workspace) const {
  std::vector<int64_t> ids;
  std::vector<void*> pointers;
  for (const auto& [tensor, pointer] : at) {
    ids.push_back(tensor);
    pointers.push_back(pointer);
  }
  for (const auto& [tensor, value] : graph_.numbers_) {
    ids.push_back(tensor);
    pointers.push_back(const_cast<float*>(&value));  // on the host; read when it runs
  }
  const auto pack = std::make_shared<CudnnDescriptor>(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  pack->set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, ids.size(), ids.data());
  pack->set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, pointers.size(),
            pointers.data());
  pack->set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace);
  pack->finalize("binding pointers");
  return [plan = shared_from_this(), handle, pack] {
    const cudnnStatus_t status = cudnnBackendExecute(handle, plan->plan_->get(), pack->get());
    if (status != CUDNN_STATUS_SUCCESS) fail_cudnn("running a plan", status);
  };
}

cudnnHandle_t cudnn_handle(cudaStream_t stream) {
  static std::mutex mutex;
  // Nobody destroys the handles: at exit CUDA may be gone.
  static std::map<std::pair<int, cudaStream_t>, cudnnHandle_t> handles;
  int device = 0;
  cudaGetDevice(&device);
  const std::scoped_lock lock(mutex);
  cudnnHandle_t& handle = handles[{device, stream}];
  cudnnStatus_t status = CUDNN_STATUS_SUCCESS;
  if (!handle) status = cudnnCreate(&handle);
  if (status != CUDNN_STATUS_SUCCESS) fail_cudnn("making a handle", status);
  // Every time: a stream that has gone may have had this one's address.
  status = cudnnSetStream(handle, stream);
  if (status != CUDNN_STATUS_SUCCESS) fail_cudnn("giving a handle its stream", status);
  return handle;
}

}  // namespace adjoint
