// A step that ends by an exception, and the steps after it.
#include <gtest/gtest.h>

#include <stdexcept>

#include "device/parallel.h"
#include "run/run.h"

namespace adjoint {
namespace {

// A timed step's clock is gone with it: a later step that still wrote to it would write anywhere.
TEST(ThrowingCall, LeavesNoClockBehind) {
  const Scheme scheme = parse_scheme(
      "scheme add:\n  input %0 x: f32[n=4]\n  input %1 y: f32[n=4]\n"
      "  %2 z: f32[n=4] = add(%0, %1) @z\n  return %2\n");
  adjoint::Run run(scheme, make_plan(scheme, {.threads = num_threads()}));
  const auto set_inputs = [&] {  // a step that poisons what it frees leaves none of them
    run.set_values(scheme.inputs[0], {1, 2, 3, 4});
    run.set_values(scheme.inputs[1], {1, 1, 1, 1});
  };
  set_inputs();
  run.after_call = [](int) { throw std::runtime_error("a call that fails"); };
  EXPECT_THROW(run.timed_step(), std::runtime_error);
  run.after_call = nullptr;
  set_inputs();
  run.step();
  EXPECT_EQ(run.values(scheme.outputs[0]), (std::vector<double>{2, 3, 4, 5}));
  EXPECT_EQ(run.timed_step().size(), 1u);
}

}  // namespace
}  // namespace adjoint
