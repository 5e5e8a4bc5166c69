// What Adjoint calls of NCCL, declared here: it compiles where NCCL is not installed, and NCCL is
// opened when ranks with GPUs ask for it. NCCL keeps these names, numbers and signatures over all
// of version 2; tests/comm/nccl_test.cpp holds them to its header where that is installed.
#pragma once
#include <cstddef>

#include "device/library.h"

namespace adjoint::nccl {

struct Comm;  // ncclComm
struct Key {  // ncclUniqueId
  char internal[128];
};
using Stream = void*;  // cudaStream_t

enum Result : int { kSuccess = 0, kInProgress = 7 };
enum Type : int {
  kInt8 = 0,
  kUint8 = 1,
  kInt32 = 2,
  kInt64 = 4,
  kFloat16 = 6,
  kFloat32 = 7,
  kFloat64 = 8,
  kBfloat16 = 9,
};
enum Op : int { kSum = 0, kMax = 2 };

extern Library library;

#define NCCL_FUNCTION(name, function, ...) \
  inline constinit LibraryFunction<Result(__VA_ARGS__)> name(library, function)

NCCL_FUNCTION(get_key, "ncclGetUniqueId", Key*);
NCCL_FUNCTION(init_rank, "ncclCommInitRank", Comm**, int ranks, Key, int rank);
NCCL_FUNCTION(destroy, "ncclCommDestroy", Comm*);
NCCL_FUNCTION(abort, "ncclCommAbort", Comm*);
NCCL_FUNCTION(async_error, "ncclCommGetAsyncError", Comm*, Result*);
NCCL_FUNCTION(group_start, "ncclGroupStart");
NCCL_FUNCTION(group_end, "ncclGroupEnd");
NCCL_FUNCTION(send, "ncclSend", const void*, size_t, Type, int peer, Comm*, Stream);
NCCL_FUNCTION(receive, "ncclRecv", void*, size_t, Type, int peer, Comm*, Stream);
NCCL_FUNCTION(broadcast, "ncclBroadcast", const void*, void*, size_t, Type, int root, Comm*,
              Stream);
NCCL_FUNCTION(all_gather, "ncclAllGather", const void*, void*, size_t, Type, Comm*, Stream);
NCCL_FUNCTION(all_reduce, "ncclAllReduce", const void*, void*, size_t, Type, Op, Comm*, Stream);
NCCL_FUNCTION(reduce_scatter, "ncclReduceScatter", const void*, void*, size_t, Type, Op, Comm*,
              Stream);
#undef NCCL_FUNCTION
inline constinit LibraryFunction<const char*(Result)> error_text(library, "ncclGetErrorString");

}  // namespace adjoint::nccl
