// Libraries that want larger workspaces than were planned: kernels of our own serve, and say so.
// Skipped where there is no GPU.
#include <gtest/gtest.h>

#include <algorithm>

#include "base/note.h"
#include "device/gpu.h"
#include "device/parallel.h"
#include "functors/pipeline.h"
#include "kernels/cuda/library_room.h"
#include "models/small_models.h"
#include "run/random_steps.h"

namespace adjoint {
namespace {

// 2048 places of 500 ids: more than one tile of the sort, and runs longer than a piece.
std::vector<double> losses(const std::string& stack, Bytes room) {
  set_library_room(room);
  const Scheme forward = elaborate_preset(
      "gpt2",
      {{"batch", 16}, {"seq", 128}, {"layers", 2}, {"hidden", 64}, {"heads", 4}, {"vocab", 500}});
  const Scheme step = build_step(forward, parse_stack(stack), {.target = Target::kCuda}).scheme;
  Run run(
      step,
      make_plan(step, {.threads = num_threads(), .target = Target::kCuda, .deterministic = true}));
  RandomSteps random(run, 1);
  random.begin();
  std::vector<double> all;
  for (int i = 0; i < 4; ++i) {
    random.feed();
    random.step();
    all.push_back(random.loss());
  }
  return all;
}

class GpuLibraryRoom : public testing::Test {
 protected:
  void SetUp() override {
    if (!has_gpu()) GTEST_SKIP() << "no GPU that this binary can use";
    set_note_writer([this](const std::string& text) { notes_.push_back(text); });
  }
  void TearDown() override {
    set_library_room(kNoCap);
    set_note_writer(nullptr);
  }

  int64_t notes_of(const std::string& word) const {
    return std::count_if(notes_.begin(), notes_.end(), [&](const std::string& note) {
      return note.find(word) != std::string::npos;
    });
  }

 private:
  std::vector<std::string> notes_;
};

TEST_F(GpuLibraryRoom, AnEmbeddingsGradientSortsByItselfToTheSameBits) {
  const auto by_library = losses("", kNoCap);
  EXPECT_EQ(notes_of("CUB"), 0) << "what is planned is enough for CUB here";
  EXPECT_EQ(losses("", {-1}), by_library);
  EXPECT_EQ(notes_of("CUB"), 1) << "said once";
  EXPECT_EQ(notes_of("cuDNN"), 0) << "attention of float32 is ours anyway";
}

TEST_F(GpuLibraryRoom, AttentionRunsByOurOwnKernels) {
  const auto by_library = losses("bf16", kNoCap);
  EXPECT_EQ(notes_of("cuDNN"), 0) << "what is planned is enough for cuDNN here";
  const auto by_ours = losses("bf16", {-1});
  // Forward and backward have each a plan that wants some number of bytes.
  EXPECT_GE(notes_of("cuDNN"), 1);
  EXPECT_LE(notes_of("cuDNN"), 2) << "each said once, though the model has two layers";
  for (size_t i = 0; i < by_library.size(); ++i) {
    EXPECT_NEAR(by_ours[i], by_library[i], 2e-3 * by_library[i]) << "step " << i;
  }
}

}  // namespace
}  // namespace adjoint
