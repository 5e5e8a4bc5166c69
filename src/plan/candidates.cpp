#include "plan/candidates.h"

#include <algorithm>

#include "base/error.h"
#include "functors/stack.h"

namespace adjoint {

namespace {

constexpr size_t kMostParts = 8;  // numbers of parts that are tried

// How activations may be held, and how frozen parameters. Of formats of as many bits the one whose
// error is smaller is tried; scales are what the functor takes by default.
constexpr const char* kNarrow = "bf16";
constexpr const char* kFrozenNarrow = "bf16(frozen=bf16)";
constexpr const char* kCodes[] = {"quantize(int8)", "quantize(nf4)"};

bool names(const Stack& stack, std::string_view functor) {
  return std::any_of(stack.functors.begin(), stack.functors.end(), [&](const StackedFunctor& f) {
    return !f.by_default && f.functor.name == functor;
  });
}

std::vector<int64_t> divisors(int64_t n) {
  std::vector<int64_t> all;
  for (int64_t d = 1; d <= n; ++d) {
    if (n % d == 0) all.push_back(d);
  }
  if (all.size() <= kMostParts) return all;
  std::vector<int64_t> some;
  for (size_t k = 0; k < kMostParts; ++k) {
    some.push_back(all[k * (all.size() - 1) / (kMostParts - 1)]);
  }
  return some;
}

// Samples that one rank has: of a mesh, its share of the batch.
int64_t samples_of(const Scheme& step, int64_t batch) {
  int64_t most = 0;
  for (const Value in : step.inputs) {
    const Object& object = step[in];
    if (object.role == Role::kInput && object.type.rank() > 0) {
      most = std::max(most, object.type.dim(0));
    }
  }
  return most > 0 ? std::min(most, batch) : batch;
}

bool is_frozen(const Object& object) {
  return object.role == Role::kParameter && object.frozen && is_float(object.type.dtype);
}

}  // namespace

std::string joined(const std::string& a, const std::string& b) {
  return a.empty() ? b : b.empty() ? a : a + " | " + b;
}

FitCandidates candidates_beside(const Stack& given, const Scheme& said, const Scheme& step,
                                const FitOptions& options) {
  FitCandidates all;
  const auto is_said = [](const Object& o) { return !o.attributes.precision.empty(); };
  const auto any = [&](const auto& which) {
    return std::any_of(said.objects.begin(), said.objects.end(), which);
  };
  const bool activations_said =
      any([&](const Object& o) { return o.role == Role::kActivation && is_said(o); });
  const bool frozen_said = any([&](const Object& o) { return is_frozen(o) && is_said(o); });
  const bool some_frozen = any(is_frozen) && !frozen_said;
  std::vector<std::string> narrow, codes;
  if (!activations_said) narrow.push_back(kNarrow);
  if (!activations_said && some_frozen) narrow.push_back(kFrozenNarrow);
  if (some_frozen) codes.assign(std::begin(kCodes), std::end(kCodes));
  const Law most = options.may_approximate ? Law::kApproximating : Law::kReassociating;
  const auto add = [&](const std::string& stack) {
    if (law_of(parse_stack(stack)) <= most) all.precisions.push_back(stack);
  };
  for (const std::string& each : narrow) add(each);
  for (const std::string& each : codes) {
    if (!activations_said) add(joined(kNarrow, each));
    add(each);
  }
  if (!options.costs.sheet.one_memory() && !names(given, "offload")) {
    all.tiers.insert(all.tiers.end(),
                     {"offload(optimizer)", "offload(optimizer) | offload(parameters)"});
  }
  // Parts of a pipeline are its own.
  if (!names(given, "accumulate") && said.schedule.empty()) {
    for (const int64_t n : divisors(samples_of(step, options.batch))) {
      if (n > 1) all.parts.push_back("accumulate(" + std::to_string(n) + ")");
    }
  }
  return all;
}

}  // namespace adjoint
