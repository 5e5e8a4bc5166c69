// Tokens that are drawn on the GPU. Skipped where there is none.
#include "device/gpu.h"
#include "device/parallel.h"
#include "functors/evaluation.h"
#include "kernels/choice_calls.h"
#include "models/test_models.h"
#include "run/parameters.h"
#include "train/cached_model.h"

namespace adjoint {
namespace {

TEST(GpuChooseToken, DrawsAsSaid) {
  if (!has_gpu()) GTEST_SKIP() << "no GPU that this binary can use";
  choice_calls::expect_draws_as_said(Target::kCuda);
}

// A step that begins with the token that the last one drew, before anybody knows it, is the step
// that is given that token; recorded steps are as those before them.
TEST(GpuCachedModel, GoesOnWithTheTokensThatItDrew) {
  if (!has_gpu()) GTEST_SKIP() << "no GPU that this binary can use";
  constexpr int64_t kSamples = 3;
  for (const char* name : {"mistral-tiny", "mixtral-tiny", "gemma2-tiny", "char"}) {
    const ModelText text = find_model(name);
    const ModelConfig config{.preset = text.preset,
                             .settings = {{"batch", double{kSamples}}, {"context", 60}}};
    const Scheme logits =
        logits_of(elaborate(parse_document(text.text, text.file), text.file, config));
    const auto texts = [&](Target target, bool on) {
      CachedModel model(logits, {}, {.threads = num_threads(), .target = target}, {3});
      initialize(model.run(), 7);
      std::vector<int32_t> tokens(kSamples, 1), all;
      const std::vector<int32_t> zeros(kSamples, 0);
      for (int32_t at = 0; at < 50; ++at) {
        const std::vector<int32_t> origins(kSamples, at);
        if (on && at > 0) {
          model.step_on(origins);
        } else {
          model.step(tokens, origins, zeros);
        }
        model.ask_drawn();
        if (on && at == 0) continue;
        tokens = model.take_drawn();
        all.insert(all.end(), tokens.begin(), tokens.end());
      }
      if (on) {
        tokens = model.take_drawn();
        all.insert(all.end(), tokens.begin(), tokens.end());
      }
      return all;
    };
    const std::vector<int32_t> known = texts(Target::kCuda, false);
    EXPECT_EQ(texts(Target::kCuda, true), known) << name;
    EXPECT_EQ(texts(Target::kCpu, false), known) << name << ", which the CPU draws otherwise";
  }
}

}  // namespace
}  // namespace adjoint
