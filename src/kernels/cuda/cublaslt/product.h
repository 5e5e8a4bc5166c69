// Matrix products on CUDA through cuBLASLt, the sibling of oneDNN's. What shapes alone decide
// (which products it takes, its workspace, the calls and their keys) is in product.cpp and needs no
// CUDA; the calls themselves are in product_cuda.cpp.
#pragma once
#include "kernels/backend.h"
#include "kernels/cuda/cublaslt/tuned_products.h"
#include "kernels/product.h"

using cudaStream_t = struct CUstream_st*;  // as CUDA says it, for those who have none

namespace adjoint {

// Device pointers. What the product does not read or write may be null.
struct ProductPointers {
  const void* a = nullptr;
  const void* b = nullptr;
  void* c = nullptr;
  const void* bias = nullptr;    // [n], of c's dtype
  void* bias_grad = nullptr;     // written, not added to; of c's dtype
  void* aux = nullptr;           // gelu writes it, its gradient reads it
  const void* addend = nullptr;  // c = a b + addend where it accumulates; null: c itself
};

// One call of the library. Its c is row-major; a product with a column-major c is computed
// transposed, with a and b exchanged.
struct ProductCall {
  struct Matrix {
    bool by_rows = true;  // whether the elements of a row are neighbours, or those of a column
    int64_t leading = 1;  // from a row (or column) to the next
    int64_t to_next = 0;  // from a matrix of the batch to the next
    int64_t begin = 0;    // where the first one begins; all in elements
    bool operator==(const Matrix&) const = default;
  };
  int64_t batch = 1, m = 1, n = 1, k = 1;
  Matrix a, b, c;
  bool transposed = false;  // a is the product's b
  Dtype dtype = Dtype::kF32, out_dtype = Dtype::kF32;
  bool tf32 = false, bias = false, accumulate = false;
  bool continues = false;  // adds to what an earlier call made: never to `addend`
  Product::Epilogue epilogue = Product::Epilogue::kNone;
  Bytes workspace = {};
};

// The calls that make a product, in order; nothing where the library does not take it: each matrix
// needs neighbours along one axis, whole rows (or columns) apart; dtypes f32, bf16 or f16, and c
// f32 or the operands'. More axes of a batch than one are a call each, and so are outer ones.
std::optional<std::vector<ProductCall>> cublaslt_calls(const Product& product);
bool cublaslt_takes(const Product& product);

bool is_bias_grad(Product::Epilogue epilogue);
bool has_aux(Product::Epilogue epilogue);

// What the pointers are multiples of. More than the arena promises is not asked for, or the
// algorithm would depend on where the plan put a tensor.
struct ProductAlignments {
  int64_t a = 64, b = 64, c = 64, addend = 64, bias = 64, aux = 64;  // bytes
};

// What an algorithm is chosen by: shape, layouts, dtypes, epilogue, alignments, workspace.
std::string product_key(const ProductCall& call, const ProductAlignments& aligned = {});

// From the shape alone, the same on every machine; algorithms that need more are not taken.
Bytes product_cuda_workspace(const Product& product);
constexpr int64_t kWorkspaceAligned = 256;  // the library's wish; within the workspace

// The device and the version of the library: what a table of tuned products is keyed by.
std::string product_machine();

// The table's algorithm where it has one that the library accepts, else the library's own first
// choice. A MachineError where it has none. The launch may be captured in a graph.
Launch prepare_product_cuda(const Product& product, const ProductPointers& at, void* workspace,
                            Bytes workspace_bytes, cudaStream_t stream,
                            const TunedProducts* tuned = nullptr);

// Times the library's candidates on these pointers and remembers the fastest whose sums have one
// order, unless the table knows this product. What c, aux and bias_grad hold is destroyed. It waits
// for the device: not while capturing.
void tune_product(const Product& product, const ProductPointers& at, void* workspace,
                  Bytes workspace_bytes, cudaStream_t stream, TunedProducts& table);

// The same with the algorithm from the process's table (product_table.h). A product that the table
// lacks is timed first, which is possible because a run's calls are prepared before its memory
// holds anything. Timing may have another outcome tomorrow, so deterministic runs take the
// library's first candidate; without `may_time` only the table is used. Nothing if the library has
// no algorithm, as for rows of odd length in 16 bits.
std::optional<Launch> tuned_product_cuda(const Product& product, const ProductPointers& at,
                                         const Pointers& call, bool deterministic, bool may_time);

}  // namespace adjoint
