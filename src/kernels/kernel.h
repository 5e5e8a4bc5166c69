// How an op runs on one target. ops/ states what an op means; this is about the machine: where
// elements are, how large a workspace a call needs, how it is prepared.
#pragma once
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "device/target.h"
#include "ops/op_def.h"

namespace adjoint {

constexpr Bytes kNoCap{INT64_MAX};

// What a kernel is told besides its tensors; the same for all calls of a step.
struct KernelTerms {
  int threads = 1;
  // The largest workspace: a kernel chooses an algorithm that fits, or its smallest if none does.
  // Planning and preparing must pass the same cap, or they would choose different algorithms.
  Bytes workspace_cap = kNoCap;
  Target target = Target::kCpu;
  // The same bits every time, at some cost in time and memory. The CPU always gives the same bits.
  bool deterministic = false;
  // Kernels may be timed to choose among them. They then run on this call's memory, so it must hold
  // nothing of value.
  bool may_time = true;
};

// One call as a kernel sees it: where each tensor's elements are.
struct KernelCall : KernelTerms {
  // The caller adds the tensors. A call that is a piece of another call is given that one's terms.
  KernelCall(const OpCall& call, const KernelTerms& terms) : KernelTerms(terms), call(call) {}
  KernelCall(OpCall&& call,
             const KernelTerms& terms) = delete;  // the call is referred to, not copied

  const OpCall& call;
  std::vector<Type> outputs = {};
  std::vector<Strides> in_strides = {}, out_strides = {};
};
// A morphism as a kernel sees it: `call` is what call_of gave, and is only referred to.
KernelCall kernel_call(const OpCall& call, const Scheme& scheme, const Morphism& morphism,
                       const KernelTerms& terms, const std::function<Strides(Value)>& strides);

// A prepared call: everything that can fail or allocate has done so; running it does neither.
using Launch = std::function<void()>;

class Communicator;

struct Pointers {
  std::vector<const void*> in;
  std::vector<void*> out;
  void* workspace = nullptr;
  void* stream = nullptr;         // where CUDA's launches go
  Communicator* peers = nullptr;  // of a collective: the ranks along its axis of the mesh
  // CUDA's kernels may be put in place while those of the call before still run, and wait for them
  // themselves (kernels/cuda/elements.cuh).
  bool early = false;
  // Of a collective or a message: where its second half is put, which waits for what the launch has
  // begun; a kernel that puts none does both. Null: the launch does both.
  Launch* completion = nullptr;
};

// A kernel written by hand, for an op without a body or one whose body would be slow.
struct Kernel {
  std::string_view op;
  Launch (*prepare)(const KernelCall&, const Pointers&) = nullptr;
  Bytes (*workspace)(const KernelCall&) = nullptr;  // from shapes alone, without the device
  // The keys of the products that the call consists of, in the table of tuned products; none if the
  // call does more than that.
  std::vector<std::string> (*products)(const KernelCall&) = nullptr;
};

}  // namespace adjoint
