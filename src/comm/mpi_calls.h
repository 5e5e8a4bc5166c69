// What Adjoint asks of MPI, as plain functions. The binary is not linked with MPI: Open MPI and
// MPICH have different handles (pointers here, numbers there) behind the same names, so code that
// was compiled with the headers of one cannot call the other. A small library, compiled with
// whichever headers are there (comm/mpi_shim.cc), fills this table, and is opened when a launcher
// has started us (comm/mpi.h). One binary so runs under each, and where there is none.
#pragma once
#include <cstdint>

namespace adjoint {

constexpr int kMpiCallsVersion = 1;  // of this table

struct MpiCalls {
  int version = 0;
  const char* library = "";  // "Open MPI 4.1.4"

  // Each returns null, or what went wrong.
  const char* (*start)(int* rank, int* ranks, int* largest_tag) = nullptr;
  const char* (*end)() = nullptr;

  // Messages: `request` is this call's until it is done. Sizes are at most kMostBytes.
  const char* (*send)(const void* data, int64_t size, int to, int tag, int64_t* request) = nullptr;
  const char* (*receive)(void* data, int64_t size, int from, int tag, int64_t* request) = nullptr;
  // Sets done[i] for what is; those requests are used up.
  const char* (*test)(int count, int64_t* requests, unsigned char* done) = nullptr;

  // The library's own collectives, to measure ours beside them; float32 where they add.
  const char* (*broadcast)(void* data, int64_t size, int root) = nullptr;
  const char* (*all_gather)(const void* in, void* out, int64_t size) = nullptr;  // size of `in`
  const char* (*all_to_all)(const void* in, void* out, int64_t segment) = nullptr;
  const char* (*all_reduce)(const float* in, float* out, int64_t count) = nullptr;
  const char* (*reduce_scatter)(const float* in, float* out, int64_t segment) = nullptr;
  const char* (*barrier)() = nullptr;
};

constexpr int64_t kMostBytes = int64_t{1} << 30;  // of a message: MPI counts in int

}  // namespace adjoint

extern "C" const adjoint::MpiCalls* adjoint_mpi_calls();
