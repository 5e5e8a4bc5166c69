// Graphs of small ops that cuDNN fuses into a kernel or a few, over its backend C API. A graph's
// tensors are memory (bound to pointers at launch), numbers (passed by value) or hidden (never
// stored). Written by hand over the C API, because cuDNN's packages come without its C++ front end.
#pragma once
#include <array>
#include <initializer_list>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kernels/cuda/cudnn/functions.h"

namespace adjoint {

// The status and the sentence cuDNN left about it.
std::string cudnn_words(cudnnStatus_t status);
// Throws a MachineError that says what failed, and these words.
[[noreturn]] void fail_cudnn(const std::string& what, cudnnStatus_t status);

class CudnnDescriptor {
 public:
  explicit CudnnDescriptor(cudnnBackendDescriptorType_t type);
  cudnnBackendDescriptor_t get() const { return descriptor_.get(); }

  void set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t count,
           const void* values);
  void set(cudnnBackendAttributeName_t name, int64_t value);
  void set(cudnnBackendAttributeName_t name, bool value);
  void set(cudnnBackendAttributeName_t name, float value);
  void set(cudnnBackendAttributeName_t name, cudnnDataType_t value);
  void set(cudnnBackendAttributeName_t name, cudnnPointwiseMode_t value);
  void set(cudnnBackendAttributeName_t name, cudnnReduceTensorOp_t value);
  void set(cudnnBackendAttributeName_t name, cudnnBackendHeurMode_t value);
  void set(cudnnBackendAttributeName_t name, cudnnHandle_t value);
  void set(cudnnBackendAttributeName_t name, const CudnnDescriptor& value);
  void finalize(const std::string& what);
  cudnnStatus_t try_finalize() { return cudnnBackendFinalize(get()); }

 private:
  struct Destroy {
    void operator()(void* descriptor) const { cudnnBackendDestroyDescriptor(descriptor); }
  };
  std::unique_ptr<void, Destroy> descriptor_;
};

using Dims = std::array<int64_t, 4>;
Dims dense_strides(const Dims& dims);

class CudnnGraph {
 public:
  using Tensor = int64_t;  // its unique id in the graph, counted from 1

  Tensor memory(cudnnDataType_t dtype, const Dims& dims, const Dims& strides);
  Tensor number(float value);
  Tensor hidden(cudnnDataType_t dtype, const Dims& dims, const Dims& strides);
  Tensor hidden(const Dims& dims) { return hidden(CUDNN_DATA_FLOAT, dims, dense_strides(dims)); }

  // Each returns `out`. All compute in float32 (comparisons in bool), whatever their operands are.
  Tensor matmul(Tensor a, Tensor b, Tensor out);
  Tensor pointwise(cudnnPointwiseMode_t mode, std::initializer_list<Tensor> operands, Tensor out);
  Tensor index(Tensor like, int64_t axis, Tensor out);  // where along the axis an element is
  Tensor tanh_slope(Tensor dy, Tensor x, Tensor dx);    // dx = dy * (1 - tanh(x)^2)
  Tensor reduce(cudnnReduceTensorOp_t op, Tensor in, Tensor out);
  Tensor reshape(Tensor in, Tensor out);

 private:
  friend class CudnnPlan;
  Tensor add(cudnnDataType_t dtype, const Dims& dims, const Dims& strides, bool is_hidden,
             bool is_number);
  CudnnDescriptor& operation(cudnnBackendDescriptorType_t type);
  const CudnnDescriptor& at(Tensor tensor) const { return tensors_[tensor - 1]; }
  Tensor pointwise(CudnnDescriptor& mode, std::initializer_list<Tensor> operands, Tensor out);

  std::vector<CudnnDescriptor> tensors_, operations_;
  std::vector<cudnnDataType_t> dtypes_;
  std::vector<std::pair<Tensor, float>> numbers_;
};

}  // namespace adjoint
