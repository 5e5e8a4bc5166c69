// Launching the CUDA reading of a body.
#include <algorithm>
#include <climits>

#include "base/error.h"
#include "kernels/body_readings.h"
#include "kernels/cuda/codegen/body.h"
#include "kernels/cuda/codegen/kernel_cache.h"

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
  const LaunchedKernel body(kernels, "body",
                            {.x = static_cast<unsigned>(blocks),
                             .threads = static_cast<unsigned>(cut.threads()),
                             .early = at.early});
  if (most == 0) return [=, stream = at.stream] { body(args.data(), stream); };
  const LaunchedKernel finish(kernels, "finish",
                              {.x = static_cast<unsigned>((most + 31) / 32),
                               .y = static_cast<unsigned>(outs.size()),
                               .threads = 1024,
                               .early = at.early});
  return [=, stream = at.stream] {
    body(args.data(), stream);
    finish(args.data(), stream);
  };
}

constexpr int64_t kMostParameterBytes = 32764;  // of a kernel, from compute capability 7.0 on

template <class T>
void append(std::vector<std::byte>& bytes, const T& value) {
  const auto* from = reinterpret_cast<const std::byte*>(&value);
  bytes.insert(bytes.end(), from, from + sizeof(T));
}

// As many members of a launch as its parameter holds.
CudaGang fitted(CudaGang gang, const std::vector<CudaGangMember>& members) {
  // Of a sum only operands are read in chunks.
  const size_t moved = gang.own.size() + (gang.sums ? 0 : gang.outputs.size());
  for (const CudaGangMember& m : members) {
    for (size_t k = 0; k < moved; ++k) {
      gang.chunks = gang.chunks && reinterpret_cast<uintptr_t>(m.at[k]) % 16 == 0;
    }
  }
  gang.members = 0;
  gang.members =
      std::min<int64_t>(static_cast<int64_t>(members.size()),
                        (kMostParameterBytes - gang.parameter_bytes()) / gang.member_bytes());
  return gang;
}

// The struct Args of one launch: members from the first on, as many as it takes, then pointers.
struct GangArgs {
  std::vector<std::byte> bytes = {};
  unsigned members = 0, blocks = 0;
};
GangArgs gang_args(const CudaGang& gang, const std::vector<CudaGangMember>& members, size_t first,
                   const std::vector<const void*>& pointers) {
  GangArgs args;
  const size_t last = std::min(members.size(), first + static_cast<size_t>(gang.members));
  for (size_t i = first; i < last; ++i) {
    for (const void* place : members[i].at) append(args.bytes, place);
    append(args.bytes, members[i].size);
    append(args.bytes, uint32_t{args.blocks});
    append(args.bytes, uint32_t{0});
    args.blocks += static_cast<unsigned>(gang.blocks(members[i].size));
  }
  args.members = static_cast<unsigned>(last - first);
  args.bytes.resize(gang.members * gang.member_bytes());
  for (const void* place : pointers) append(args.bytes, place);
  append(args.bytes, static_cast<int64_t>(args.members));
  return args;
}

constexpr unsigned kGangThreads = CudaGang::kThreads;

}  // namespace

Launch prepare_gang_cuda(CudaGang gang, const std::vector<CudaGangMember>& members,
                         const std::vector<const void*>& shared, void* stream) {
  gang = fitted(std::move(gang), members);
  const auto kernels = compile_kernels(cuda_gang_text(gang));
  std::vector<std::pair<LaunchedKernel, std::vector<std::byte>>> launches;
  for (size_t first = 0; first < members.size(); first += gang.members) {
    GangArgs args = gang_args(gang, members, first, shared);
    launches.emplace_back(
        LaunchedKernel(kernels, "gang", {.x = args.blocks, .threads = kGangThreads}),
        std::move(args.bytes));
  }
  return [launches, stream] {
    for (const auto& [kernel, args] : launches) kernel(args.data(), stream);
  };
}

Launch prepare_gang_sums_cuda(CudaGang gang, const std::vector<CudaGangMember>& members,
                              void* workspace, void* stream) {
  gang = fitted(std::move(gang), members);
  const auto kernels = compile_kernels(cuda_gang_text(gang));
  struct Pair {
    LaunchedKernel sums, finish;
    std::vector<std::byte> args;
  };
  std::vector<Pair> launches;
  auto* partial = static_cast<float*>(workspace);
  for (size_t first = 0; first < members.size(); first += gang.members) {
    GangArgs args = gang_args(gang, members, first, {partial});
    partial += args.blocks * gang.outputs.size();
    launches.push_back(
        {LaunchedKernel(kernels, "sums", {.x = args.blocks, .threads = kGangThreads}),
         LaunchedKernel(kernels, "finish", {.x = args.members, .threads = kGangThreads}),
         std::move(args.bytes)});
  }
  return [launches, stream] {
    for (const Pair& pair : launches) {
      pair.sums(pair.args.data(), stream);
      pair.finish(pair.args.data(), stream);
    }
  };
}

Launch prepare_body_cuda(const KernelCall& call, const Pointers& at) {
  return prepare_body(call, at, false);
}
Launch prepare_wide_body_cuda(const KernelCall& call, const Pointers& at) {
  return prepare_body(call, at, true);
}

}  // namespace adjoint
