// Our own declarations of NCCL (comm/nccl_functions.h) against its header, where that is installed.
#include <gtest/gtest.h>

#if __has_include(<nccl.h>) && __has_include(<cuda_runtime_api.h>)
#include <nccl.h>

#include <type_traits>

#include "comm/nccl_functions.h"

namespace adjoint {
namespace {

// The same once our types stand for NCCL's.
template <class T>
struct Ours {
  using type = T;
};
template <>
struct Ours<ncclComm_t> {
  using type = nccl::Comm*;
};
template <>
struct Ours<ncclComm_t*> {
  using type = nccl::Comm**;
};
template <>
struct Ours<ncclUniqueId> {
  using type = nccl::Key;
};
template <>
struct Ours<ncclUniqueId*> {
  using type = nccl::Key*;
};
template <>
struct Ours<ncclResult_t> {
  using type = nccl::Result;
};
template <>
struct Ours<ncclResult_t*> {
  using type = nccl::Result*;
};
template <>
struct Ours<ncclDataType_t> {
  using type = nccl::Type;
};
template <>
struct Ours<ncclRedOp_t> {
  using type = nccl::Op;
};
template <>
struct Ours<cudaStream_t> {
  using type = nccl::Stream;
};

template <class Function>
struct Translated;
template <class Result, class... Arguments>
struct Translated<Result(Arguments...)> {
  using type = LibraryFunction<typename Ours<Result>::type(typename Ours<Arguments>::type...)>;
};

#define EXPECT_DECLARED_AS(ours, theirs)                                                 \
  static_assert(std::is_same_v<std::remove_const_t<decltype(ours)>,                      \
                               Translated<std::remove_cvref_t<decltype(theirs)>>::type>, \
                #theirs)
EXPECT_DECLARED_AS(nccl::get_key, ncclGetUniqueId);
EXPECT_DECLARED_AS(nccl::init_rank, ncclCommInitRank);
EXPECT_DECLARED_AS(nccl::destroy, ncclCommDestroy);
EXPECT_DECLARED_AS(nccl::abort, ncclCommAbort);
EXPECT_DECLARED_AS(nccl::async_error, ncclCommGetAsyncError);
EXPECT_DECLARED_AS(nccl::group_start, ncclGroupStart);
EXPECT_DECLARED_AS(nccl::group_end, ncclGroupEnd);
EXPECT_DECLARED_AS(nccl::send, ncclSend);
EXPECT_DECLARED_AS(nccl::receive, ncclRecv);
EXPECT_DECLARED_AS(nccl::broadcast, ncclBroadcast);
EXPECT_DECLARED_AS(nccl::all_gather, ncclAllGather);
EXPECT_DECLARED_AS(nccl::all_reduce, ncclAllReduce);
EXPECT_DECLARED_AS(nccl::reduce_scatter, ncclReduceScatter);
EXPECT_DECLARED_AS(nccl::error_text, ncclGetErrorString);

TEST(Nccl, OurNumbersAreThoseOfItsHeader) {
  EXPECT_EQ(sizeof(nccl::Key), sizeof(ncclUniqueId));
  EXPECT_EQ(int{nccl::kSuccess}, int{ncclSuccess});
  EXPECT_EQ(int{nccl::kInProgress}, int{ncclInProgress});
  EXPECT_EQ(int{nccl::kInt8}, int{ncclInt8});
  EXPECT_EQ(int{nccl::kUint8}, int{ncclUint8});
  EXPECT_EQ(int{nccl::kInt32}, int{ncclInt32});
  EXPECT_EQ(int{nccl::kInt64}, int{ncclInt64});
  EXPECT_EQ(int{nccl::kFloat16}, int{ncclFloat16});
  EXPECT_EQ(int{nccl::kFloat32}, int{ncclFloat32});
  EXPECT_EQ(int{nccl::kFloat64}, int{ncclFloat64});
  EXPECT_EQ(int{nccl::kBfloat16}, int{ncclBfloat16});
  EXPECT_EQ(int{nccl::kSum}, int{ncclSum});
  EXPECT_EQ(int{nccl::kMax}, int{ncclMax});
}

}  // namespace
}  // namespace adjoint
#else
TEST(Nccl, OurNumbersAreThoseOfItsHeader) { GTEST_SKIP() << "nccl.h is not installed"; }
#endif
