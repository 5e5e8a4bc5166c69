#include <array>
#include <exception>

#include "base/error.h"
#include "comm/gpu_group.h"
#include "comm/gpu_reduction.h"
#include "comm/nccl_check.h"
#include "device/cuda_check.h"
#include "device/gpu.h"

namespace adjoint {

namespace nccl {
constinit Library library("libnccl.so.2", "NCCL 2");
}

namespace {

nccl::Type type_of(Dtype dtype) {
  switch (dtype) {
    case Dtype::kF64:
      return nccl::kFloat64;
    case Dtype::kF32:
      return nccl::kFloat32;
    case Dtype::kBF16:
      return nccl::kBfloat16;
    case Dtype::kF16:
      return nccl::kFloat16;
    case Dtype::kI64:
      return nccl::kInt64;
    case Dtype::kI32:
      return nccl::kInt32;
    case Dtype::kI8:
      return nccl::kInt8;
    case Dtype::kU8:
      return nccl::kUint8;
  }
  CHECK(false, "every dtype is sent");
  return nccl::kUint8;
}

nccl::Op op_of(Reduction reduction) {
  return reduction == Reduction::kSum ? nccl::kSum : nccl::kMax;
}

}  // namespace

GpuGroup::GpuGroup(const Communicator& group, bool deterministic)
    : group_(group), deterministic_(deterministic), exceptions_(std::uncaught_exceptions()) {
  open_gpu();
  nccl::library.open();
  nccl::Key key = {};
  if (rank() == 0) check_nccl(nccl::get_key(&key), "its start");
  group_.broadcast(0, std::as_writable_bytes(std::span(&key, 1))).wait();
  check_nccl(nccl::init_rank(&comm_, size(), key, rank()),
             "meeting the other ranks, each with a GPU of its own");
}

void GpuGroup::open_messages() { messages_ = std::make_unique<GpuMessages>(group_); }
GpuMessages& GpuGroup::messages() {
  CHECK(messages_, "messages go along an axis that was opened for them");
  return *messages_;
}

GpuGroup::~GpuGroup() {
  if (!comm_) return;
  // A job that fails does not wait for work of ranks that may be gone.
  if (std::uncaught_exceptions() > exceptions_) {
    nccl::abort(comm_);
  } else {
    nccl::destroy(comm_);
  }
}

void GpuGroup::check() {
  nccl::Result result = nccl::kSuccess;
  check_nccl(nccl::async_error(comm_, &result), "a check");
  check_nccl(result, "work of a stream");
}

void GpuGroup::send(int to, ReadBytes data, void* stream) {
  check_nccl(nccl::send(data.data(), data.size(), nccl::kUint8, to, comm_, stream), "a send");
}

void GpuGroup::receive(int from, WriteBytes data, void* stream) {
  check_nccl(nccl::receive(data.data(), data.size(), nccl::kUint8, from, comm_, stream),
             "a receive");
}

void GpuGroup::broadcast(int root, WriteBytes data, void* stream) {
  check_nccl(
      nccl::broadcast(data.data(), data.data(), data.size(), nccl::kUint8, root, comm_, stream),
      "a broadcast");
}

void GpuGroup::all_gather(ReadBytes in, WriteBytes out, void* stream) {
  CHECK(out.size() == in.size() * size(), "there is room for all segments");
  check_nccl(nccl::all_gather(in.data(), out.data(), in.size(), nccl::kUint8, comm_, stream),
             "an all-gather");
}

void GpuGroup::all_to_all(ReadBytes in, WriteBytes out, void* stream) {
  CHECK(out.size() == in.size() && in.size() % size() == 0, "a segment for every rank");
  follow(make_route(request(Collective::kAllToAll, Dtype::kU8, static_cast<int64_t>(in.size()))),
         Dtype::kU8, Reduction::kSum, in, out, {}, stream);
}

// By exchange: on GPUs that are linked, n-1 messages go at the same time.
RouteRequest GpuGroup::request(Collective collective, Dtype dtype, int64_t whole) const {
  return {.collective = collective,
          .algorithm = Algorithm::kExchange,
          .rank = rank(),
          .ranks = size(),
          .whole = whole,
          .element = size_of(dtype).count};
}

Bytes GpuGroup::scratch(Collective collective, Dtype dtype, int64_t whole) const {
  return deterministic_ ? make_route(request(collective, dtype, whole)).scratch : Bytes{0};
}

void GpuGroup::reduce_scatter(Dtype dtype, ReadBytes in, WriteBytes out, Reduction reduction,
                              WriteBytes scratch, void* stream) {
  CHECK(in.size() == out.size() * size(), "`in` has a segment for every rank");
  if (deterministic_) {
    const auto whole = static_cast<int64_t>(in.size());
    return follow(make_route(request(Collective::kReduceScatter, dtype, whole)), dtype, reduction,
                  in, out, scratch, stream);
  }
  check_nccl(nccl::reduce_scatter(in.data(), out.data(), out.size() / size_of(dtype).count,
                                  type_of(dtype), op_of(reduction), comm_, stream),
             "a reduce-scatter");
}

void GpuGroup::all_reduce(Dtype dtype, ReadBytes in, WriteBytes out, Reduction reduction,
                          WriteBytes scratch, void* stream) {
  CHECK(in.size() == out.size(), "an all-reduce keeps its size");
  if (deterministic_) {
    const auto whole = static_cast<int64_t>(in.size());
    return follow(make_route(request(Collective::kAllReduce, dtype, whole)), dtype, reduction, in,
                  out, scratch, stream);
  }
  check_nccl(nccl::all_reduce(in.data(), out.data(), in.size() / size_of(dtype).count,
                              type_of(dtype), op_of(reduction), comm_, stream),
             "an all-reduce");
}

// The stream keeps the order of rounds; a round's messages are one group of NCCL's.
void GpuGroup::follow(const Route& route, Dtype dtype, Reduction reduction, ReadBytes in,
                      WriteBytes out, WriteBytes scratch, void* stream) {
  CHECK(static_cast<int64_t>(scratch.size()) >= route.scratch.count,
        "as much scratch as the call wants");
  const std::array<std::byte*, 3> pieces = {const_cast<std::byte*>(in.data()), out.data(),
                                            scratch.data()};
  const auto at = [&](const RouteRegion& region) {
    return pieces[static_cast<size_t>(region.piece)] + region.begin;
  };
  for (const RouteRound& round : route.rounds) {
    for (const RouteCopy& copy : round.copies) {
      if (at(copy.to) == at(copy.from)) continue;
      check_cuda(cudaMemcpyAsync(at(copy.to), at(copy.from), copy.from.size,
                                 cudaMemcpyDeviceToDevice, cuda_stream(stream)),
                 "a copy of a collective");
    }
    if (!round.messages.empty()) {
      check_nccl(nccl::group_start(), "a round");
      for (const RouteMessage& message : round.messages) {
        const RouteRegion& region = message.region;
        if (message.sends) {
          send(message.peer, {at(region), static_cast<size_t>(region.size)}, stream);
        } else {
          receive(message.peer, {at(region), static_cast<size_t>(region.size)}, stream);
        }
      }
      check_nccl(nccl::group_end(), "a round");
    }
    if (round.terms.empty()) continue;
    std::vector<const std::byte*> terms;
    for (const RouteRegion& term : round.terms) terms.push_back(at(term));
    reduce_on_gpu(reduction, dtype, terms, round.result.size / size_of(dtype).count,
                  at(round.result), stream);
  }
}

}  // namespace adjoint
