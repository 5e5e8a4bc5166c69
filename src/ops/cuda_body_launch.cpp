// Launching the CUDA reading of a body.
#include <algorithm>
#include <climits>

#include "base/error.h"
#include "ops/body_readings.h"
#include "ops/cuda_body.h"
#include "ops/kernel_cache.h"

namespace adjoint {

namespace {

Launch prepare_body(const KernelCall& call, const Pointers& at, bool wide) {
  const CudaCut cut = cut_for_cuda(call, wide);
  const std::vector<const void*> outs(at.out.begin(), at.out.end());
  const auto kernels =
      compile_kernels(cuda_text(cut, whole_chunks(cut, cut.space.in, cut.in_types, at.in),
                                whole_chunks(cut, cut.space.out, cut.out_types, outs)));
  // The struct Args of the source: operands, results, where blocks leave their sums.
  std::vector<const void*> args = at.in;
  if (args.empty()) args.push_back(nullptr);
  args.insert(args.end(), outs.begin(), outs.end());
  const auto* workspace = static_cast<const std::byte*>(at.workspace);
  int64_t used = 0, most = 0;
  for (size_t k = 0; k < outs.size(); ++k) {
    args.push_back(workspace + used);
    if (cut.partial_size[k] == 0 || cut.direct(k)) continue;
    used += cut.partial_bytes(k).count;
    most = std::max(most, cut.space.sum_size[k]);
  }
  const int64_t blocks = (cut.units() * cut.group + cut.threads() - 1) / cut.threads();
  CHECK(blocks <= INT_MAX, "a body's blocks can be counted");
  if (blocks == 0) return [] {};
  const LaunchedKernel body(
      kernels, "body",
      {.x = static_cast<unsigned>(blocks), .threads = static_cast<unsigned>(cut.threads())});
  if (most == 0) return [=, stream = at.stream] { body(args.data(), stream); };
  const LaunchedKernel finish(kernels, "finish",
                              {.x = static_cast<unsigned>((most + 31) / 32),
                               .y = static_cast<unsigned>(outs.size()),
                               .threads = 1024});
  return [=, stream = at.stream] {
    body(args.data(), stream);
    finish(args.data(), stream);
  };
}

}  // namespace

namespace {
constexpr int64_t kMostParameterBytes = 32764;  // of a kernel, from compute capability 7.0 on

template <class T>
void append(std::vector<std::byte>& bytes, const T& value) {
  const auto* from = reinterpret_cast<const std::byte*>(&value);
  bytes.insert(bytes.end(), from, from + sizeof(T));
}
}  // namespace

Launch prepare_gang_cuda(CudaGang gang, const std::vector<CudaGangMember>& members,
                         const std::vector<const void*>& shared, void* stream) {
  for (const CudaGangMember& m : members) {
    for (const void* place : m.at) {
      gang.chunks = gang.chunks && reinterpret_cast<uintptr_t>(place) % 16 == 0;
    }
  }
  gang.members = 1;
  const int64_t each = CudaGang{gang}.parameter_bytes();
  gang.members = 2;
  const int64_t step = gang.parameter_bytes() - each;
  gang.members = std::min<int64_t>(static_cast<int64_t>(members.size()),
                                   (kMostParameterBytes - (each - step)) / step);
  const auto kernels = compile_kernels(cuda_gang_text(gang));
  std::vector<std::pair<LaunchedKernel, std::vector<std::byte>>> launches;
  for (size_t first = 0; first < members.size(); first += gang.members) {
    const size_t last = std::min(members.size(), first + static_cast<size_t>(gang.members));
    std::vector<std::byte> args;
    uint32_t block = 0;
    for (size_t i = first; i < last; ++i) {
      for (const void* place : members[i].at) append(args, place);
      append(args, members[i].size);
      append(args, block);
      append(args, uint32_t{0});
      block += static_cast<uint32_t>((members[i].size + CudaGang::kBlockElements - 1) /
                                     CudaGang::kBlockElements);
    }
    args.resize(gang.members * step);
    for (const void* place : shared) append(args, place);
    append(args, static_cast<int64_t>(last - first));
    launches.emplace_back(LaunchedKernel(kernels, "gang", {.x = block, .threads = 256}),
                          std::move(args));
  }
  return [launches, stream] {
    for (const auto& [kernel, args] : launches) kernel(args.data(), stream);
  };
}

Launch prepare_body_cuda(const KernelCall& call, const Pointers& at) {
  return prepare_body(call, at, false);
}
Launch prepare_wide_body_cuda(const KernelCall& call, const Pointers& at) {
  return prepare_body(call, at, true);
}

}  // namespace adjoint
