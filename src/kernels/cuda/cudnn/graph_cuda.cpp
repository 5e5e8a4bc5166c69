#include "base/error.h"
#include "kernels/cuda/cudnn/graph.h"

namespace adjoint {

namespace {

// What a tensor's address must be a multiple of: kernels read 16 bytes at a time.
constexpr int64_t kAlignment = 16;

}  // namespace

std::string cudnn_words(cudnnStatus_t status) {
  std::array<char, 1024> message = {};
  cudnnGetLastErrorString(message.data(), message.size());
  return join_parts(cudnnGetErrorString(status), message[0] ? ": " : "", message.data());
}

void fail_cudnn(const std::string& what, cudnnStatus_t status) {
  throw MachineError(join_parts("cuDNN: ", what, ": ", cudnn_words(status)));
}

CudnnDescriptor::CudnnDescriptor(cudnnBackendDescriptorType_t type) {
  cudnnBackendDescriptor_t raw = nullptr;
  const cudnnStatus_t status = cudnnBackendCreateDescriptor(type, &raw);
  if (status != CUDNN_STATUS_SUCCESS) fail_cudnn(join_parts("creating descriptor ", type), status);
  descriptor_.reset(raw);
}

void CudnnDescriptor::set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                          int64_t count, const void* values) {
  const cudnnStatus_t status = cudnnBackendSetAttribute(get(), name, type, count, values);
  if (status != CUDNN_STATUS_SUCCESS) fail_cudnn(join_parts("setting attribute ", name), status);
}
void CudnnDescriptor::set(cudnnBackendAttributeName_t name, int64_t value) {
  set(name, CUDNN_TYPE_INT64, 1, &value);
}
void CudnnDescriptor::set(cudnnBackendAttributeName_t name, bool value) {
  set(name, CUDNN_TYPE_BOOLEAN, 1, &value);
}
void CudnnDescriptor::set(cudnnBackendAttributeName_t name, float value) {
  set(name, CUDNN_TYPE_FLOAT, 1, &value);
}
void CudnnDescriptor::set(cudnnBackendAttributeName_t name, cudnnDataType_t value) {
  set(name, CUDNN_TYPE_DATA_TYPE, 1, &value);
}
void CudnnDescriptor::set(cudnnBackendAttributeName_t name, cudnnPointwiseMode_t value) {
  set(name, CUDNN_TYPE_POINTWISE_MODE, 1, &value);
}
void CudnnDescriptor::set(cudnnBackendAttributeName_t name, cudnnReduceTensorOp_t value) {
  set(name, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, &value);
}
void CudnnDescriptor::set(cudnnBackendAttributeName_t name, cudnnBackendHeurMode_t value) {
  set(name, CUDNN_TYPE_HEUR_MODE, 1, &value);
}
void CudnnDescriptor::set(cudnnBackendAttributeName_t name, cudnnHandle_t value) {
  set(name, CUDNN_TYPE_HANDLE, 1, &value);
}
void CudnnDescriptor::set(cudnnBackendAttributeName_t name, const CudnnDescriptor& value) {
  cudnnBackendDescriptor_t raw = value.get();
  set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &raw);
}

void CudnnDescriptor::finalize(const std::string& what) {
  const cudnnStatus_t status = try_finalize();
  if (status != CUDNN_STATUS_SUCCESS) fail_cudnn(what, status);
}

Dims dense_strides(const Dims& dims) {
  return {dims[1] * dims[2] * dims[3], dims[2] * dims[3], dims[3], 1};
}

CudnnGraph::Tensor CudnnGraph::add(cudnnDataType_t dtype, const Dims& dims, const Dims& strides,
                                   bool is_hidden, bool is_number) {
  CudnnDescriptor& tensor = tensors_.emplace_back(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  const Tensor id = static_cast<Tensor>(tensors_.size());
  dtypes_.push_back(dtype);
  tensor.set(CUDNN_ATTR_TENSOR_DATA_TYPE, dtype);
  tensor.set(CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, dims.size(), dims.data());
  tensor.set(CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, strides.size(), strides.data());
  tensor.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, id);
  tensor.set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, kAlignment);
  if (is_hidden) tensor.set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, true);
  if (is_number) tensor.set(CUDNN_ATTR_TENSOR_IS_BY_VALUE, true);
  tensor.finalize("describing a tensor");
  return id;
}

CudnnGraph::Tensor CudnnGraph::memory(cudnnDataType_t dtype, const Dims& dims,
                                      const Dims& strides) {
  return add(dtype, dims, strides, false, false);
}
CudnnGraph::Tensor CudnnGraph::hidden(cudnnDataType_t dtype, const Dims& dims,
                                      const Dims& strides) {
  return add(dtype, dims, strides, true, false);
}
CudnnGraph::Tensor CudnnGraph::number(float value) {
  const Tensor tensor = add(CUDNN_DATA_FLOAT, {1, 1, 1, 1}, {1, 1, 1, 1}, false, true);
  numbers_.emplace_back(tensor, value);
  return tensor;
}

CudnnDescriptor& CudnnGraph::operation(cudnnBackendDescriptorType_t type) {
  return operations_.emplace_back(type);
}

CudnnGraph::Tensor CudnnGraph::matmul(Tensor a, Tensor b, Tensor out) {
  CudnnDescriptor kind(CUDNN_BACKEND_MATMUL_DESCRIPTOR);
  kind.set(CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_DATA_FLOAT);
  kind.finalize("describing a matmul");
  CudnnDescriptor& matmul = operation(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
  matmul.set(CUDNN_ATTR_OPERATION_MATMUL_DESC, kind);
  matmul.set(CUDNN_ATTR_OPERATION_MATMUL_ADESC, at(a));
  matmul.set(CUDNN_ATTR_OPERATION_MATMUL_BDESC, at(b));
  matmul.set(CUDNN_ATTR_OPERATION_MATMUL_CDESC, at(out));
  matmul.finalize("a matmul");
  return out;
}

CudnnGraph::Tensor CudnnGraph::pointwise(cudnnPointwiseMode_t mode,
                                         std::initializer_list<Tensor> operands, Tensor out) {
  CudnnDescriptor kind(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
  kind.set(CUDNN_ATTR_POINTWISE_MODE, mode);
  const bool compares = dtypes_[out - 1] == CUDNN_DATA_BOOLEAN;
  kind.set(CUDNN_ATTR_POINTWISE_MATH_PREC, compares ? CUDNN_DATA_BOOLEAN : CUDNN_DATA_FLOAT);
  return pointwise(kind, operands, out);
}

CudnnGraph::Tensor CudnnGraph::index(Tensor like, int64_t axis, Tensor out) {
  CudnnDescriptor kind(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
  kind.set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_POINTWISE_GEN_INDEX);
  kind.set(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_DATA_FLOAT);
  kind.set(CUDNN_ATTR_POINTWISE_AXIS, axis);
  return pointwise(kind, {like}, out);
}

CudnnGraph::Tensor CudnnGraph::pointwise(CudnnDescriptor& kind,
                                         std::initializer_list<Tensor> operands, Tensor out) {
  constexpr std::array<cudnnBackendAttributeName_t, 3> kOperands = {
      CUDNN_ATTR_OPERATION_POINTWISE_XDESC, CUDNN_ATTR_OPERATION_POINTWISE_BDESC,
      CUDNN_ATTR_OPERATION_POINTWISE_TDESC};
  kind.finalize("describing an elementwise op");
  CudnnDescriptor& op = operation(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
  op.set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, kind);
  size_t i = 0;
  for (const Tensor operand : operands) op.set(kOperands[i++], at(operand));
  op.set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, at(out));
  op.set(CUDNN_ATTR_OPERATION_POINTWISE_ALPHA1, 1.0f);
  op.set(CUDNN_ATTR_OPERATION_POINTWISE_ALPHA2, 1.0f);
  op.finalize("an elementwise op");
  return out;
}

CudnnGraph::Tensor CudnnGraph::tanh_slope(Tensor dy, Tensor x, Tensor dx) {
  CudnnDescriptor kind(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
  kind.set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_POINTWISE_TANH_BWD);
  kind.set(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_DATA_FLOAT);
  kind.finalize("describing the gradient of tanh");
  CudnnDescriptor& op = operation(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
  op.set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, kind);
  op.set(CUDNN_ATTR_OPERATION_POINTWISE_DYDESC, at(dy));
  op.set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, at(x));
  op.set(CUDNN_ATTR_OPERATION_POINTWISE_DXDESC, at(dx));
  op.set(CUDNN_ATTR_OPERATION_POINTWISE_ALPHA1, 1.0f);
  op.set(CUDNN_ATTR_OPERATION_POINTWISE_ALPHA2, 1.0f);
  op.finalize("the gradient of tanh");
  return dx;
}

CudnnGraph::Tensor CudnnGraph::reduce(cudnnReduceTensorOp_t mode, Tensor in, Tensor out) {
  CudnnDescriptor kind(CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
  kind.set(CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_DATA_FLOAT);
  kind.set(CUDNN_ATTR_REDUCTION_OPERATOR, mode);
  kind.set(CUDNN_ATTR_REDUCTION_IS_DETERMINISTIC, false);
  kind.finalize("describing a reduction");
  CudnnDescriptor& op = operation(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
  op.set(CUDNN_ATTR_OPERATION_REDUCTION_DESC, kind);
  op.set(CUDNN_ATTR_OPERATION_REDUCTION_XDESC, at(in));
  op.set(CUDNN_ATTR_OPERATION_REDUCTION_YDESC, at(out));
  op.finalize("a reduction");
  return out;
}

CudnnGraph::Tensor CudnnGraph::reshape(Tensor in, Tensor out) {
  CudnnDescriptor& op = operation(CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
  op.set(CUDNN_ATTR_OPERATION_RESHAPE_XDESC, at(in));
  op.set(CUDNN_ATTR_OPERATION_RESHAPE_YDESC, at(out));
  op.finalize("a reshape");
  return out;
}

}  // namespace adjoint
