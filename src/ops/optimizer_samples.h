// What the optimizers' op files share: a parameter's update takes p, its gradient, the optimizer's
// state, then three numbers that every parameter of the step has in common.
//   rate    the learning rate
//   factor  what the gradient of the sum is multiplied by: 1/count, unscaling and clipping at once
//   ok      0 when the step must leave everything as it is
#pragma once
#include "base/error.h"
#include "ops/samples.h"

namespace adjoint {

inline void check_update(const OpCall& call, size_t tensors, size_t numbers) {
  bool fits = call.inputs.size() == tensors + numbers;
  for (size_t i = 0; fits && i < call.inputs.size(); ++i) {
    fits = i < tensors ? same_shape(call.inputs[i], call.inputs[0]) : call.inputs[i].rank() == 0;
  }
  if (!fits) {
    fail(call.op, ": wants ", tensors, " objects of one shape, then ", numbers, " numbers");
  }
}

inline std::vector<Sample> update_samples(size_t tensors, size_t numbers, Attrs attrs) {
  std::vector<Sample> samples;
  for (const auto& sizes : {std::vector<int64_t>{7}, std::vector<int64_t>{3, 1031}}) {
    Sample s{.inputs = std::vector<Type>(tensors, of(sizes)), .attrs = attrs, .fills = {}};
    s.inputs.resize(tensors + numbers, of({}));
    s.fills.assign(tensors, Sample::Fill::kPositive);
    s.fills.resize(tensors + numbers, Sample::Fill::kOne);
    samples.push_back(s);
  }
  return samples;
}

inline std::vector<Sample> update_refusals(size_t tensors, size_t numbers) {
  std::vector<Sample> samples = update_samples(tensors, numbers, {});
  samples.resize(1);
  samples[0].inputs[1] = of({8});
  return samples;
}

}  // namespace adjoint
