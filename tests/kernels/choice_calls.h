// Tokens drawn in every way that there is, of logits with ties and without, beside the reference.
#pragma once
#include <gtest/gtest.h>

#include "kernels/harness.h"
#include "ops/choose_token.h"
#include "ops/samples.h"

namespace adjoint::choice_calls {

// Every way to draw, one for each sample.
inline Numbers all_choices() {
  Numbers choices;
  for (const double temperature : {0.0, 0.3, 1.0, 4.0}) {
    for (const double top_k : {0.0, 1.0, 3.0, 40.0, 1e6}) {
      for (const double top_p : {1e-6, 0.5, 0.9, 1.0}) {
        for (const double min_p : {0.0, 0.2, 1.0}) {
          for (const double number : {0.0, 0.37, 1 - 0x1p-24}) {
            choices.insert(choices.end(), {temperature, top_k, top_p, min_p, number});
          }
        }
      }
    }
  }
  return choices;
}

// `levels`: how many different logits there are; 0: all differ.
inline void expect_draws(Target target, int64_t vocab, int64_t usable, int levels, Dtype dtype) {
  const Numbers choices = all_choices();
  const auto samples = static_cast<int64_t>(choices.size()) / kChoiceNumbers;
  const Sample sample{.inputs = {of({samples, 1, vocab}), of({samples, kChoiceNumbers})},
                      .attrs = {{"usable", usable}}};
  Scheme scheme = sample_scheme("choose_token", sample, dtype);
  scheme[scheme.inputs[1]].type.dtype = Dtype::kF32;
  Numbers logits(samples * vocab);
  std::mt19937 random(5);
  std::normal_distribution<double> normal;
  for (double& logit : logits) {
    logit =
        levels ? static_cast<double>(random() % levels) : round_element(2 * normal(random), dtype);
  }
  Numbers exact = choices;
  for (double& number : exact) number = round_element(number, Dtype::kF32);
  // What is no number is never drawn; what is out of reach is not looked at.
  logits[0] = NAN;
  for (int64_t i = usable; i < vocab; ++i) logits[i] = 1e9;
  const Numbers want = run_scheme(scheme, {logits, exact}, true)[0];
  const Numbers got = run_scheme(scheme, {logits, exact}, false, target)[0];
  for (int64_t i = 0; i < samples; ++i) {
    ASSERT_EQ(got[i], want[i]) << "temperature " << exact[5 * i] << ", top_k " << exact[5 * i + 1]
                               << ", top_p " << exact[5 * i + 2] << ", min_p " << exact[5 * i + 3]
                               << ", number " << exact[5 * i + 4] << ", of " << vocab;
  }
}

inline void expect_draws_as_said(Target target) {
  for (const Dtype dtype : {Dtype::kF32, Dtype::kBF16}) {
    expect_draws(target, 7, 7, 0, dtype);
    expect_draws(target, 50, 41, 3, dtype);  // ties, and logits of no token
    expect_draws(target, 1500, 1500, 0, dtype);
    expect_draws(target, 1500, 1500, 1, dtype);  // all equal
  }
}

}  // namespace adjoint::choice_calls
