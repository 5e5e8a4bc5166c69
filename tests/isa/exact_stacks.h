// Models in which results are placed inside other objects, and stacks that must give the same bits
// as the plain one: a few for `make test`, all of them for tests/long.
#pragma once
#include <string>
#include <vector>

#include "models/test_models.h"
#include "train/same_steps.h"

namespace adjoint {

// Eight models: a GPT-2, a Llama with joined projections, nested boxes, and the five of
// tests/models. They have few and wide rows, for which oneDNN's kernels differ in the order of
// sums.
inline std::vector<SmallModel> exact_models() {
  const auto bound = [](const char* preset, nlohmann::json settings) {
    ModelSizes sizes{.batch = 3, .context = 4, .settings = std::move(settings)};
    return BoundModel(find_model(preset), sizes).forward();
  };
  std::vector<SmallModel> models = small_models();
  models[0].forward =
      bound("char", {{"layers", 2}, {"hidden", 64}, {"heads", 4}, {"vocab", 37}, {"dropout", 0.1}});
  models[1].forward =
      bound("llama-tiny",
            {{"layers", 2}, {"hidden", 128}, {"ffn", 704}, {"vocab", 41}, {"dropout", 0.1}});
  for (const std::string name : kTestModels) {
    std::map<std::string, double> sizes = {{"batch", 3}, {"seq", 4}};
    sizes.merge(name == "odd" ? std::map<std::string, double>{{"keel", 64}, {"bilge", 176}}
                              : std::map<std::string, double>{{"hidden", 64}, {"ffn", 176}});
    models.push_back({name, test_model(name, sizes), kTestVocab});
  }
  return models;
}

inline std::vector<std::string> exact_stacks() {
  return {"checkpoint(block)",
          "checkpoint(sqrt)",
          "checkpoint(selective)",
          "checkpoint(all)",
          "checkpoint(every=2)",
          "reside()",
          "offload(optimizer)",
          "offload(activations)",
          "offload(parameters)",
          "-recompute_cheap",
          "-fuse",
          "-simplify | -gang_updates",
          "checkpoint(block) | offload(activations) | offload(parameters) | offload(optimizer)"};
}

// Compares, for every number of threads, model and stack, the steps of `base` alone with those of
// `base` and the stack. Counts the pairs, and describes those that differ.
struct Compared {
  int pairs = 0;
  std::vector<std::string> different = {};
};
inline Compared compare_stacks(const std::vector<SmallModel>& models,
                               const std::vector<std::string>& stacks, const std::string& base) {
  Compared compared;
  const int threads = num_threads();
  for (const int count : {1, 2}) {
    set_num_threads(count);
    for (const SmallModel& model : models) {
      const Scheme plain = training_step(model.forward, {.stack = base});
      for (const std::string& stack : stacks) {
        const std::string whole = base.empty() ? stack : base + " | " + stack;
        const Scheme other = training_step(model.forward, {.stack = whole});
        ++compared.pairs;
        const std::string found = first_difference(plain, other, model.vocab);
        if (found.empty()) continue;
        compared.different.push_back(model.name + ", " + whole + ", " + std::to_string(count) +
                                     " threads: " + found);
      }
    }
  }
  set_num_threads(threads);
  return compared;
}

}  // namespace adjoint
