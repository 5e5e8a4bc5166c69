// A body as a GPU runs it. Rows are cut into chunks of eight elements; a group of threads shares a
// row, or a tile of it where no thread needs the whole, and each thread has some chunks in
// registers. Who adds what to what follows from the row's length and the shape alone, never from
// the other results of a kernel, so a body gives the same bits alone and joined to others.
#pragma once
#include <optional>
#include <string>

#include "kernels/body_layout.h"

namespace adjoint {

inline constexpr int64_t kChunk = 8;  // elements: 16 bytes of a 16-bit dtype

// How the space is shared out. Known without a GPU.
struct CudaCut {
  BodySpace space;
  std::vector<Type> in_types, out_types;
  bool wide = false;   // computed in float64
  bool whole = false;  // somebody needs the whole row
  int64_t group = 1;   // threads that share a row or a tile
  int64_t chunks = 1;  // of each thread at a time
  bool loops = false;  // the row is too long for registers, so each reduction reads it from memory
  int64_t tiles = 1;   // of a row
  int64_t blocks = 1;  // of summed rows
  int64_t block_rows = 1;
  std::vector<int64_t> partial_size = {};  // per output: elements of one block's sums; 0: none

  int64_t units() const { return (space.sums ? blocks * space.suffix_rows() : space.rows) * tiles; }
  int64_t threads() const { return group > 32 ? group : 256; }  // of a block of CUDA's
  int64_t element() const { return wide ? 8 : 4; }              // bytes of what is computed
  bool direct(size_t output) const {                            // no other block's sums to add
    return blocks == 1 && partial_size[output] == space.sum_size[output];
  }
  Bytes partial_bytes(size_t output) const {
    return direct(output) ? Bytes{0} : round_up({blocks * partial_size[output] * element()}, {256});
  }
  Bytes workspace() const;
};
CudaCut cut_for_cuda(const KernelCall& call, bool wide);

// What is known of an operand or a result when its place is: whether eight elements that follow
// each other can be moved at once.
std::vector<bool> whole_chunks(const CudaCut& cut, const std::vector<Strides>& strides,
                               const std::vector<Type>& types,
                               const std::vector<const void*>& places);

// The source of a kernel "body" and, where blocks have sums, of one "finish".
std::string cuda_text(const CudaCut& cut, const std::vector<bool>& in_chunks,
                      const std::vector<bool>& out_chunks);

// Many calls of one elementwise body whose own operands are dense and shared ones single numbers,
// in one launch; or of one that adds up such elements, each result a single number, in two.
// `own` and `outputs` are the dtypes of one call; a launch takes `members` calls.
struct CudaGang {
  Body body;
  std::vector<Dtype> own = {}, shared = {}, outputs = {};
  bool sums = false;  // adds_elements(body); nothing is shared then
  int64_t members = 1;
  bool chunks = true;  // all places are aligned

  static constexpr int64_t kThreads = 256;  // of one block of CUDA's
  // Of a sum: a thread has 64 elements, so that a block's sum costs little beside its elements.
  static constexpr int64_t kSumChunks = 8;
  // Elements of one block. What is added to what follows from this and a call's size alone.
  int64_t block_elements() const { return kThreads * kChunk * (sums ? kSumChunks : 1); }
  int64_t blocks(int64_t size) const { return (size + block_elements() - 1) / block_elements(); }
  // Bytes of the kernel's parameter: see gang_text.cpp.
  int64_t member_bytes() const {
    return static_cast<int64_t>(own.size() + outputs.size()) * 8 + 16;
  }
  int64_t parameter_bytes() const {
    return members * member_bytes() + (sums ? 1 : static_cast<int64_t>(shared.size())) * 8 + 8;
  }
};
// The source of a kernel "gang", or of a kernel "sums" and one "finish".
std::string cuda_gang_text(const CudaGang& gang);

// Where one call's operands (own ones, then results) are.
struct CudaGangMember {
  std::vector<const void*> at;
  int64_t size;
};
Launch prepare_gang_cuda(CudaGang gang, const std::vector<CudaGangMember>& members,
                         const std::vector<const void*>& shared, void* stream);
// The same of sums; the workspace is one float for every block and result.
Launch prepare_gang_sums_cuda(CudaGang gang, const std::vector<CudaGangMember>& members,
                              void* workspace, void* stream);

// A call that adds all elements of its operands up to single numbers is a gang of one, so that it
// has the same bits alone and in a gang; nothing where the call is another. gang.cpp
std::optional<CudaGang> lone_sum_for_cuda(const KernelCall& call);
Launch prepare_lone_sum_cuda(const CudaGang& sum, const KernelCall& call, const Pointers& at);
Bytes lone_sum_workspace(const CudaGang& sum, const KernelCall& call);

}  // namespace adjoint
