// How an op runs on one target. What an op is, is said in ops/; here is what only a machine cares
// about: where elements lie, what room beside its operands a call wants, how it is prepared.
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

// What a kernel is told beside its tensors: all calls of a step alike.
struct KernelTerms {
  int threads = 1;
  // What the workspace may be at most: the kernel chooses a way that fits, and takes its smallest
  // where none does. A plan's calls and their preparation say the same, or they would choose twice.
  Bytes workspace_cap = kNoCap;
  Target target = Target::kCpu;
  // The same bits every time, at some cost of time and memory. On the CPU they always are.
  bool deterministic = false;
  // Kernels may be chosen by the clock, on memory that holds noise and nothing of worth.
  bool may_time = true;
};

// One call as a kernel sees it: where each tensor's elements are.
struct KernelCall : KernelTerms {
  // The tensors are to follow. A call that is a piece of another call is given that one's terms.
  KernelCall(const OpCall& call, const KernelTerms& terms) : KernelTerms(terms), call(call) {}
  KernelCall(OpCall&& call, const KernelTerms& terms) = delete;  // it is not kept here

  const OpCall& call;
  std::vector<Type> outputs = {};
  std::vector<Strides> in_strides = {}, out_strides = {};
};
// A morphism as a kernel sees it: `call` is what call_of gave, and is only referred to.
KernelCall kernel_call(const OpCall& call, const Scheme& scheme, const Morphism& morphism,
                       const KernelTerms& terms, const std::function<Strides(Value)>& strides);

struct Pointers {
  std::vector<const void*> in;
  std::vector<void*> out;
  void* workspace = nullptr;
  void* stream = nullptr;  // where CUDA's launches go
};

// A prepared call: everything that can fail or allocate has done so; running it does neither.
using Launch = std::function<void()>;

// A kernel by hand, for an op whose body does not say it all.
struct Kernel {
  std::string_view op;
  Launch (*prepare)(const KernelCall&, const Pointers&) = nullptr;
  Bytes (*workspace)(const KernelCall&) = nullptr;  // from shapes alone, without the device
  // The products that the call consists of, as a table of tuned ones knows them; none where they
  // are not all of it.
  std::vector<std::string> (*products)(const KernelCall&) = nullptr;
};

}  // namespace adjoint
