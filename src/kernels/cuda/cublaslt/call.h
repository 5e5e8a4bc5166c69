// One call of cuBLASLt, described once: what preparing and tuning share. Seen only by files that
// are built where CUDA is.
#pragma once
#include <cuda_runtime_api.h>

#include <memory>

#include "base/error.h"
#include "kernels/cuda/cublaslt/functions.h"
#include "kernels/cuda/cublaslt/product.h"

namespace adjoint {

// MachineErrors: "cuBLASLt could not ..." and "CUDA could not ...".
void require(cublasStatus_t status, const char* what);
void require(cudaError_t error, const char* what);

struct NoAlgorithm : MachineError {
  using MachineError::MachineError;
};

// Descriptors, pointers and algorithm, so that a step has nothing to create. The library's
// descriptors are held by value, so there is nothing to destroy either; they must not be moved.
class CublasLtCall {
 public:
  CublasLtCall(const ProductCall& call, const ProductPointers& at, void* workspace,
               cudaStream_t stream);
  CublasLtCall(const CublasLtCall&) = delete;
  CublasLtCall& operator=(const CublasLtCall&) = delete;

  const std::string& key() const { return key_; }
  cudaStream_t stream() const { return stream_; }

  // The library's candidates with a fixed order of sums, best first by its own estimate. Throws
  // NoAlgorithm if there is none.
  std::vector<cublasLtMatmulAlgo_t> candidates(int most) const;
  void choose(const cublasLtMatmulAlgo_t& algorithm) { algorithm_ = algorithm; }
  // What a table says, unless the library refuses it or it does not say what its words say.
  bool choose(const ProductAlgorithm& tuned);

  cublasStatus_t run() const;

 private:
  template <class T>
  void set(cublasLtMatmulDescAttributes_t attribute, const T& value);
  void describe(const ProductCall& call);
  void point(const ProductCall& call, const ProductPointers& at);
  void align(const ProductCall& call);
  void place_workspace(Bytes planned, void* workspace);

  // The C interface takes descriptors that it does not change as if it did.
  mutable cublasLtMatmulDescOpaque_t operation_ = {};  // for running
  mutable cublasLtMatmulDescOpaque_t choosing_ = {};   // the same, see `align`
  mutable cublasLtMatrixLayoutOpaque_t a_ = {}, b_ = {}, c_ = {};
  cublasLtMatmulAlgo_t algorithm_ = {};
  const void *at_a_ = nullptr, *at_b_ = nullptr, *addend_ = nullptr;
  void* at_c_ = nullptr;
  const void *bias_ = nullptr, *aux_ = nullptr;  // or the bias's gradient
  float beta_ = 0;
  void* workspace_ = nullptr;
  size_t workspace_bytes_ = 0;
  cudaStream_t stream_ = nullptr;
  ProductAlignments aligned_ = {};
  std::string key_ = {};
};

ProductAlgorithm said(const cublasLtMatmulAlgo_t& algorithm);

}  // namespace adjoint
