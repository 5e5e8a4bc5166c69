// The table of comm/mpi_calls.h, compiled with the headers of one MPI. No .cpp, because it is no part
// of the room's library: CMake compiles it once for every MPI that it finds, with that one's compiler.
#define OMPI_SKIP_MPICXX 1  // bindings of another age
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>

#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "comm/mpi_calls.h"

namespace {

using adjoint::MpiCalls;

static_assert(sizeof(MPI_Request) <= sizeof(int64_t));

const char* trouble(int status) {
  if (status == MPI_SUCCESS) return nullptr;
  static thread_local char text[MPI_MAX_ERROR_STRING];
  int size = 0;
  MPI_Error_string(status, text, &size);
  return text;
}

int64_t boxed(MPI_Request request) {
  int64_t box = 0;
  std::memcpy(&box, &request, sizeof(request));
  return box;
}

MPI_Request unboxed(int64_t box) {
  MPI_Request request;
  std::memcpy(&request, &box, sizeof(request));
  return request;
}

MPI_Comm world = MPI_COMM_NULL;

const char* start(int* rank, int* ranks, int* largest_tag) {
  int given = 0;
  // Open MPI, where ranks share cores, yields at every question that has no answer yet. We ask and
  // then sleep, so that would only give our turn away.
  setenv("OMPI_MCA_mpi_yield_when_idle", "0", 0);
  // One thread at a time calls, and not always the same one.
  if (const char* text = trouble(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &given))) {
    return text;
  }
  if (given < MPI_THREAD_SERIALIZED) return "it does not support calls from several threads";
  MPI_Comm_dup(MPI_COMM_WORLD, &world);
  MPI_Comm_set_errhandler(world, MPI_ERRORS_RETURN);
  MPI_Comm_rank(world, rank);
  MPI_Comm_size(world, ranks);
  int found = 0;
  int* limit = nullptr;
  MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &limit, &found);
  *largest_tag = found ? *limit : 32767;  // what the standard promises
  return nullptr;
}

const char* end() {
  MPI_Comm_free(&world);
  return trouble(MPI_Finalize());
}

const char* send(const void* data, int64_t size, int to, int tag, int64_t* request) {
  MPI_Request made = MPI_REQUEST_NULL;
  const char* text =
      trouble(MPI_Isend(data, static_cast<int>(size), MPI_BYTE, to, tag, world, &made));
  *request = boxed(made);
  return text;
}

const char* receive(void* data, int64_t size, int from, int tag, int64_t* request) {
  MPI_Request made = MPI_REQUEST_NULL;
  const char* text =
      trouble(MPI_Irecv(data, static_cast<int>(size), MPI_BYTE, from, tag, world, &made));
  *request = boxed(made);
  return text;
}

const char* test(int count, int64_t* requests, unsigned char* done) {
  static std::vector<MPI_Request> unboxes;
  static std::vector<int> which;
  unboxes.resize(count);
  which.resize(count);
  for (int i = 0; i < count; ++i) unboxes[i] = unboxed(requests[i]);
  int found = 0;
  const char* text =
      trouble(MPI_Testsome(count, unboxes.data(), &found, which.data(), MPI_STATUSES_IGNORE));
  if (text || found == MPI_UNDEFINED) return text;
  for (int i = 0; i < count; ++i) requests[i] = boxed(unboxes[i]);
  for (int i = 0; i < found; ++i) done[which[i]] = 1;
  return nullptr;
}

const char* broadcast(void* data, int64_t size, int root) {
  return trouble(MPI_Bcast(data, static_cast<int>(size), MPI_BYTE, root, world));
}

const char* all_gather(const void* in, void* out, int64_t size) {
  const int count = static_cast<int>(size);
  return trouble(MPI_Allgather(in, count, MPI_BYTE, out, count, MPI_BYTE, world));
}

const char* all_to_all(const void* in, void* out, int64_t segment) {
  const int count = static_cast<int>(segment);
  return trouble(MPI_Alltoall(in, count, MPI_BYTE, out, count, MPI_BYTE, world));
}

const char* all_reduce(const float* in, float* out, int64_t count) {
  return trouble(MPI_Allreduce(in, out, static_cast<int>(count), MPI_FLOAT, MPI_SUM, world));
}

const char* reduce_scatter(const float* in, float* out, int64_t segment) {
  return trouble(
      MPI_Reduce_scatter_block(in, out, static_cast<int>(segment), MPI_FLOAT, MPI_SUM, world));
}

const char* barrier() { return trouble(MPI_Barrier(world)); }

}  // namespace

extern "C" const MpiCalls* adjoint_mpi_calls() {
  static const std::string name = [] {
    char text[MPI_MAX_LIBRARY_VERSION_STRING];
    int size = 0;
    MPI_Get_library_version(text, &size);
    std::string line(text, size);
    return line.substr(0, line.find_first_of(",\n"));
  }();
  static const MpiCalls calls = [] {
    MpiCalls table;
    table.version = adjoint::kMpiCallsVersion;
    table.library = name.c_str();
    table.start = start;
    table.end = end;
    table.send = send;
    table.receive = receive;
    table.test = test;
    table.broadcast = broadcast;
    table.all_gather = all_gather;
    table.all_to_all = all_to_all;
    table.all_reduce = all_reduce;
    table.reduce_scatter = reduce_scatter;
    table.barrier = barrier;
    return table;
  }();
  return &calls;
}
