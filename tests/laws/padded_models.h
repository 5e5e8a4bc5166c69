// Models whose logits and their gradient are given other room by pad_rows, or whose logits others
// read as well: a kernel that takes the one's width for the other's gives other gradients.
#pragma once
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "device/parallel.h"
#include "laws/verify.h"
#include "run/random_steps.h"
#include "train/bound_model.h"

namespace adjoint {

struct PaddedModel {
  const char* name;
  const char* head;         // the model's last lines, of h[batch, seq, hidden]
  const char* beside = "";  // functors that the stack has as well
};

inline constexpr PaddedModel kPaddedModels[] = {
    {"a_parameter_added",
     "  logits = linear(h, vocab, bias=no, name=readout) + param(vocab)\n"
     "  loss = cross_entropy(logits, targets)\n"},
    {"two_heads_added",
     "  logits = linear(h, vocab, bias=no, name=one) + linear(h, vocab, name=two)\n"
     "  loss = cross_entropy(logits, targets)\n"},
    {"an_adapter_beside",
     "  low = linear(h, 4, bias=no, name=low)\n"
     "  logits = linear(h, vocab, bias=no, name=readout) + 0.5*linear(low, vocab, bias=no, "
     "name=up)\n"
     "  loss = cross_entropy(logits, targets)\n"},
    {"read_by_a_slice",
     "  logits = linear(h, vocab, bias=no, name=readout)\n"
     "  few = slice(logits, 3, 17)\n"
     "  loss = cross_entropy(logits, targets) + 0.1*average(mean(few*few), targets)\n"},
    {"read_by_a_gather",
     "  logits = linear(h, vocab, bias=no, name=readout)\n"
     "  best = gather(logits, top_k(logits, 3))\n"
     "  loss = cross_entropy(logits, targets) + 0.1*average(mean(best*best), targets)\n"},
    {"read_by_a_split",
     "  logits = linear(h, vocab, bias=no, name=readout)\n"
     "  parts = sum(split(logits, 7), -1)\n"
     "  loss = cross_entropy(logits, targets) + 0.1*average(mean(parts*parts), targets)\n"},
    {"moved_out",
     "  logits = linear(h, vocab, bias=no, name=readout)\n"
     "  loss = cross_entropy(logits, targets)\n",
     "offload(activations)"},
    {"a_parameter_added_and_moved_out",
     "  logits = linear(h, vocab, bias=no, name=readout) + param(vocab)\n"
     "  loss = cross_entropy(logits, targets)\n",
     "offload(activations)"},
};

// Of one block and 301 = 7 * 43 tokens.
inline ModelText padded_model(const PaddedModel& model) {
  return {.file = std::string(model.name) + ".scheme",
          .text = std::string("axes layers=1 hidden=32 heads=2 ffn=44 context=8 vocab=301\n"
                              "block x[batch, seq, hidden]:\n"
                              "  n = rms_norm(x)\n"
                              "  x = x + linear(attention(linear(n, 3*hidden, name=qkv), heads, "
                              "causal), hidden, name=proj)\n"
                              "  x = x + linear(gelu(linear(rms_norm(x), ffn, name=up)), hidden, "
                              "name=down)\n"
                              "model tokens[batch, seq], targets[batch, seq]:\n"
                              "  h = rms_norm(block^layers(embed(tokens, vocab, name=wte)))\n") +
                  model.head};
}

// The functors that the model is about, and these.
inline std::string stack_with(const PaddedModel& model, const std::string& stack) {
  const std::string beside = model.beside;
  return beside + (beside.empty() || stack.empty() ? "" : " | ") + stack;
}

// The law of every functor of the stack holds, at the model's own size.
inline void expect_laws(const PaddedModel& model, const std::string& stack, Target target) {
  VerifyOptions options{.sizes = {.batch = 2, .context = 8}, .full = true, .target = target};
  options.seeds = 1;
  const Report report =
      verify_model(padded_model(model), parse_stack(stack_with(model, stack)), options);
  EXPECT_TRUE(report.ok) << report.reason;
  bool judged = false;
  for (const Verdict& v : report.functors) {
    judged = judged || (v.functor.starts_with("pad_rows") && v.matches > 0);
  }
  EXPECT_TRUE(judged) << "pad_rows finds something in this model";
}

// The losses of some steps, the later of which follow from the gradients of the earlier ones.
inline std::vector<double> losses_of(const PaddedModel& model, const std::string& stack,
                                     Target target, int steps = 3) {
  const Scheme forward = BoundModel(padded_model(model), {.batch = 2, .context = 8}).forward();
  const Scheme step =
      build_step(forward, parse_stack(stack_with(model, stack)), {.target = target}).scheme;
  Run run(step,
          make_plan(step, {.threads = num_threads(), .target = target, .deterministic = true}),
          {.poison = true});
  run.fill_arena(std::byte{0xff});
  RandomSteps random(run, 1);
  random.begin();
  std::vector<double> losses;
  for (int i = 0; i < steps; ++i) {
    random.feed();
    random.step();
    losses.push_back(random.loss());
  }
  return losses;
}

inline void expect_same_losses(const PaddedModel& model, const std::string& with,
                               const std::string& without, Target target) {
  const auto got = losses_of(model, with, target), want = losses_of(model, without, target);
  for (size_t i = 0; i < want.size(); ++i) {
    EXPECT_NEAR(got[i], want[i], 1e-5 * want[i]) << "of step " << i + 1;
  }
}

}  // namespace adjoint
