// One step of a model by plain gradient descent, so that what it leaves behind tells its gradients.
#pragma once
#include <map>
#include <string>

#include "device/parallel.h"
#include "functors/pipeline.h"
#include "functors/reference.h"
#include "kernels/harness.h"
#include "models/test_models.h"
#include "run/parameters.h"

namespace adjoint {

// The parameters after the step, by source; by the float64 reference, or by the CPU's kernels.
inline std::map<std::string, Numbers> after_one_step(const Scheme& forward,
                                                     const std::string& stack, bool reference) {
  Scheme step = training_step(forward, {.optimizer = "sgd", .weight_decay = 0, .stack = stack});
  if (reference) step = to_reference(step);
  Run run(step, make_plan(step, {.threads = num_threads()}),
          {.reference = reference, .poison = true});
  initialize(run, 5);
  write_batch(run, 3);
  run.set_number(step.find({"rate"}).value(), 0.5);
  run.step();
  std::map<std::string, Numbers> parameters;
  for (const Carry& carry : step.carries) {
    if (step[carry.in].role != Role::kParameter) continue;
    parameters[to_string(step[carry.in].source)] = run.values(carry.out);
  }
  return parameters;
}

}  // namespace adjoint
