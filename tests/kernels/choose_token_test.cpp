#include "kernels/choice_calls.h"

namespace adjoint {
namespace {

TEST(ChooseToken, DrawsAsSaid) { choice_calls::expect_draws_as_said(Target::kCpu); }

}  // namespace
}  // namespace adjoint
