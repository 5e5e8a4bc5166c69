// cuBLASLt sees columns where we see rows, so our c[m, n] is its n by m: its A is our b, its B our
// a, and what goes along our n goes along its rows. That is how a bias must lie, and why the
// gradient of a bias that is the sum of our a is BGRADB.
#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "device/buffer.h"
#include "kernels/cuda/cublaslt/call.h"

namespace adjoint {

namespace {

using Epilogue = Product::Epilogue;

// One for the process, made at the first call and never destroyed: at exit CUDA may be gone.
cublasLtHandle_t handle() {
  static cublasLtHandle_t made = [] {
    cublasLtHandle_t handle = nullptr;
    require(cublasLtCreate(&handle), "start");
    return handle;
  }();
  return made;
}

cudaDataType_t data_type(Dtype dtype) {
  return dtype == Dtype::kBF16 ? CUDA_R_16BF : dtype == Dtype::kF16 ? CUDA_R_16F : CUDA_R_32F;
}

cublasLtEpilogue_t epilogue_of(const ProductCall& call) {
  switch (call.epilogue) {
    case Epilogue::kNone:
      return call.bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
    case Epilogue::kGelu:
      return call.bias ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_GELU_AUX;
    case Epilogue::kGeluGrad:
      return CUBLASLT_EPILOGUE_DGELU;
    case Epilogue::kGeluGradBiasGrad:
      return CUBLASLT_EPILOGUE_DGELU_BGRAD;
    case Epilogue::kBiasGradA:
      return CUBLASLT_EPILOGUE_BGRADB;
    case Epilogue::kBiasGradB:
      return CUBLASLT_EPILOGUE_BGRADA;
  }
  return CUBLASLT_EPILOGUE_DEFAULT;
}

void describe_matrix(cublasLtMatrixLayoutOpaque_t& layout, const ProductCall::Matrix& m,
                     Dtype dtype, int64_t rows, int64_t columns, int64_t batch) {
  const int64_t its_rows = m.by_rows ? columns : rows, its_columns = m.by_rows ? rows : columns;
  require(cublasLtMatrixLayoutInit_internal(&layout, sizeof layout, data_type(dtype), its_rows,
                                            its_columns, m.leading),
          "describe a matrix");
  if (batch == 1) return;
  const auto count = static_cast<int32_t>(batch);
  require(cublasLtMatrixLayoutSetAttribute(&layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count,
                                           sizeof count),
          "describe a batch");
  require(cublasLtMatrixLayoutSetAttribute(&layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                                           &m.to_next, sizeof m.to_next),
          "describe a batch");
}

const void* moved(const void* from, int64_t elements, Dtype dtype) {
  return from ? static_cast<const char*>(from) + elements * size_of(dtype).count : nullptr;
}

// The largest power of two that divides it, up to what the arena promises.
int64_t alignment_of(uint64_t address) {
  const uint64_t promised = kAlignment.count;
  return static_cast<int64_t>(address ? std::min(address & -address, promised) : promised);
}

// Nothing said is 0: some algorithms lack some attributes.
template <class T>
int64_t attribute(const cublasLtMatmulAlgo_t& algorithm,
                  cublasLtMatmulAlgoConfigAttributes_t which) {
  T value = 0;
  size_t written = 0;
  const cublasStatus_t status =
      cublasLtMatmulAlgoConfigGetAttribute(&algorithm, which, &value, sizeof value, &written);
  return status == CUBLAS_STATUS_SUCCESS ? static_cast<int64_t>(value) : 0;
}

// Pieces of a sum that are added in place may be added as they come. The other schemes keep them in
// the workspace and add them in order.
bool is_ordered(const cublasLtMatmulAlgo_t& algorithm) {
  return attribute<uint32_t>(algorithm, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME) !=
         CUBLASLT_REDUCTION_SCHEME_INPLACE;
}

}  // namespace

void require(cublasStatus_t status, const char* what) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw MachineError(
      join_parts("cuBLASLt could not ", what, ": ", cublasLtGetStatusString(status)));
}

void require(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  throw MachineError(join_parts("CUDA could not ", what, ": ", cudaGetErrorString(error)));
}

ProductAlgorithm said(const cublasLtMatmulAlgo_t& from) {
  ProductAlgorithm to{
      .id = attribute<int32_t>(from, CUBLASLT_ALGO_CONFIG_ID),
      .tile = attribute<uint32_t>(from, CUBLASLT_ALGO_CONFIG_TILE_ID),
      .stages = attribute<uint32_t>(from, CUBLASLT_ALGO_CONFIG_STAGES_ID),
      .split_k = attribute<int32_t>(from, CUBLASLT_ALGO_CONFIG_SPLITK_NUM),
      .reduction = attribute<uint32_t>(from, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME),
      .swizzle = attribute<uint32_t>(from, CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING),
      .custom = attribute<uint32_t>(from, CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION),
      .inner_shape = attribute<uint16_t>(from, CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID),
      .cluster_shape = attribute<uint16_t>(from, CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID)};
  static_assert(sizeof to.words == sizeof from.data);
  std::memcpy(to.words.data(), from.data, sizeof from.data);
  return to;
}

CublasLtCall::CublasLtCall(const ProductCall& call, const ProductPointers& at, void* workspace,
                           cudaStream_t stream)
    : beta_(call.accumulate ? 1 : 0), stream_(stream) {
  describe(call);
  point(call, at);
  place_workspace(call.workspace, workspace);
  align(call);
}

template <class T>
void CublasLtCall::set(cublasLtMatmulDescAttributes_t attribute, const T& value) {
  for (cublasLtMatmulDescOpaque_t* desc : {&operation_, &choosing_}) {
    require(cublasLtMatmulDescSetAttribute(desc, attribute, &value, sizeof value),
            "describe a product");
  }
}

void CublasLtCall::describe(const ProductCall& call) {
  const cublasComputeType_t compute = call.tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
  for (cublasLtMatmulDescOpaque_t* desc : {&operation_, &choosing_}) {
    require(cublasLtMatmulDescInit_internal(desc, sizeof *desc, compute, CUDA_R_32F),
            "describe a product");
  }
  // Its op(A) is n by k: our b as it lies, where the elements of a row are neighbours.
  set(CUBLASLT_MATMUL_DESC_TRANSA, call.b.by_rows ? CUBLAS_OP_N : CUBLAS_OP_T);
  set(CUBLASLT_MATMUL_DESC_TRANSB, call.a.by_rows ? CUBLAS_OP_N : CUBLAS_OP_T);
  set(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue_of(call));
  describe_matrix(a_, call.a, call.dtype, call.m, call.k, call.batch);
  describe_matrix(b_, call.b, call.dtype, call.k, call.n, call.batch);
  describe_matrix(c_, call.c, call.out_dtype, call.m, call.n, call.batch);
}

void CublasLtCall::point(const ProductCall& call, const ProductPointers& at) {
  at_a_ = moved(call.transposed ? at.b : at.a, call.a.begin, call.dtype);
  at_b_ = moved(call.transposed ? at.a : at.b, call.b.begin, call.dtype);
  at_c_ = const_cast<void*>(moved(at.c, call.c.begin, call.out_dtype));
  CHECK(at_a_ && at_b_ && at_c_, "a product has operands and a result");
  const bool apart = call.accumulate && !call.continues && at.addend;
  addend_ = apart ? moved(at.addend, call.c.begin, call.out_dtype) : at_c_;

  if (call.bias || is_bias_grad(call.epilogue)) {
    bias_ = call.bias ? at.bias : at.bias_grad;
    CHECK(bias_, "a product with a bias, or its gradient, has where it is");
  }
  if (has_aux(call.epilogue)) {
    aux_ = moved(at.aux, call.c.begin, call.out_dtype);
    CHECK(aux_, "gelu's gradient needs what gelu was given");
    set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, call.c.leading);
    if (call.batch > 1) set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE, call.c.to_next);
  }
}

void CublasLtCall::place_workspace(Bytes planned, void* workspace) {
  if (planned.count <= kWorkspaceAligned) return;
  CHECK(workspace, "a product's workspace is where it was planned");
  workspace_bytes_ = planned.count - kWorkspaceAligned;
  size_t room = planned.count;
  workspace_ = std::align(kWorkspaceAligned, workspace_bytes_, workspace, room);
}

// The library looks at the pointers of an epilogue when it chooses. It is shown examples that are
// aligned as they are, so that it cannot choose by where the plan put them.
void CublasLtCall::align(const ProductCall& call) {
  // In a batch the least aligned matrix counts.
  const auto least = [&](const void* pointer, int64_t to_next, Dtype dtype) {
    const int64_t step = call.batch > 1 ? to_next * size_of(dtype).count : 0;
    return std::min(alignment_of(reinterpret_cast<uintptr_t>(pointer)), alignment_of(step));
  };
  aligned_ = {.a = least(at_a_, call.a.to_next, call.dtype),
              .b = least(at_b_, call.b.to_next, call.dtype),
              .c = least(at_c_, call.c.to_next, call.out_dtype),
              .addend = least(addend_, call.c.to_next, call.out_dtype),
              .bias = least(bias_, 0, call.out_dtype),
              .aux = least(aux_, call.c.to_next, call.out_dtype)};
  const auto show = [&](cublasLtMatmulDescAttributes_t which, const void* pointer,
                        int64_t aligned) {
    if (!pointer) return;
    const auto example = static_cast<uintptr_t>(aligned);
    require(cublasLtMatmulDescSetAttribute(&operation_, which, &pointer, sizeof pointer),
            "take a pointer");
    require(cublasLtMatmulDescSetAttribute(&choosing_, which, &example, sizeof example),
            "take a pointer");
  };
  show(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias_, aligned_.bias);
  show(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, aux_, aligned_.aux);
  key_ = product_key(call, aligned_);
}

std::vector<cublasLtMatmulAlgo_t> CublasLtCall::candidates(int most) const {
  cublasLtMatmulPreferenceOpaque_t wish = {};
  require(cublasLtMatmulPreferenceInit_internal(&wish, sizeof wish), "take a wish");
  const auto set = [&](cublasLtMatmulPreferenceAttributes_t which, auto value) {
    require(cublasLtMatmulPreferenceSetAttribute(&wish, which, &value, sizeof value),
            "take a wish");
  };
  set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<uint64_t>(workspace_bytes_));
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, static_cast<uint32_t>(aligned_.b));
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, static_cast<uint32_t>(aligned_.a));
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, static_cast<uint32_t>(aligned_.addend));
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, static_cast<uint32_t>(aligned_.c));
  std::vector<cublasLtMatmulHeuristicResult_t> found(most);
  cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
  std::vector<cublasLtMatmulAlgo_t> algorithms;
  const auto ask = [&] {
    int count = 0;
    status = cublasLtMatmulAlgoGetHeuristic(handle(), &choosing_, &b_, &a_, &c_, &c_, &wish, most,
                                            found.data(), &count);
    for (int i = 0; status == CUBLAS_STATUS_SUCCESS && i < count; ++i) {
      const bool fits = found[i].state == CUBLAS_STATUS_SUCCESS &&
                        found[i].workspaceSize <= workspace_bytes_ && is_ordered(found[i].algo);
      if (fits) algorithms.push_back(found[i].algo);
    }
  };
  ask();
  if (algorithms.empty()) {  // of a long, thin product it likes only sums in changing order
    set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
        static_cast<uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE |
                              CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE));
    ask();
  }
  if (algorithms.empty()) {
    throw NoAlgorithm(join_parts("cuBLASLt has no algorithm for the product ", key_, ": ",
                                 cublasLtGetStatusString(status)));
  }
  return algorithms;
}

bool CublasLtCall::choose(const ProductAlgorithm& tuned) {
  cublasLtMatmulAlgo_t algorithm = {};
  std::memcpy(algorithm.data, tuned.words.data(), sizeof algorithm.data);
  cublasLtMatmulHeuristicResult_t result = {};
  const cublasStatus_t status =
      cublasLtMatmulAlgoCheck(handle(), &choosing_, &b_, &a_, &c_, &c_, &algorithm, &result);
  if (status != CUBLAS_STATUS_SUCCESS || result.workspaceSize > workspace_bytes_ ||
      !is_ordered(algorithm) || said(algorithm) != tuned) {
    return false;
  }
  algorithm_ = algorithm;
  return true;
}

cublasStatus_t CublasLtCall::run() const {
  const float alpha = 1;
  return cublasLtMatmul(handle(), &operation_, &alpha, at_b_, &b_, at_a_, &a_, &beta_, addend_, &c_,
                        at_c_, &c_, &algorithm_, workspace_, workspace_bytes_, stream_);
}

}  // namespace adjoint
