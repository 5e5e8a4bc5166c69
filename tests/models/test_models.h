// The models of tests/models/*.scheme by name, in their own small sizes (all of them have 37 tokens
// and a context of 16), and batches for a run of any model.
#pragma once
#include <algorithm>
#include <random>
#include <string>

#include "models/elaborate.h"
#include "models/library.h"
#include "ops/builder.h"
#include "run/run.h"

namespace adjoint {

constexpr const char* kTestModels[] = {"hybrid", "mixtral", "moe", "odd", "qwen"};
constexpr int64_t kTestVocab = 37;

inline std::string test_model_file(const std::string& name) {
  return std::string(SOURCE_DIR) + "/tests/models/" + name + ".scheme";
}

// The forward scheme, dropout on: batch, seq, layers and the like may be set.
inline Scheme test_model(const std::string& name, std::map<std::string, double> settings = {}) {
  const ModelText model = find_model(test_model_file(name));
  settings.emplace("batch", 3);
  settings.emplace("dropout", 0.1);
  return elaborate(parse_document(model.text, model.file), model.file, {.settings = settings});
}

// The published designs that come with Adjoint, each in its smallest preset.
inline std::vector<std::string> smallest_presets() {
  std::vector<std::string> tiny;
  for (const std::string& preset : known_presets()) {
    if (preset.ends_with("-tiny")) tiny.push_back(preset);
  }
  return tiny;
}
// A preset, in characters that a test may be named with.
inline std::string test_name(std::string preset) {
  std::replace_if(
      preset.begin(), preset.end(), [](char c) { return c == '-' || c == '.'; }, '_');
  return preset;
}

// Tokens and targets of step `number`, one target in seven masked, and the random counter.
inline void write_batch(Run& run, int number, int64_t vocab = kTestVocab, int64_t seed = 11) {
  const Scheme& s = run.scheme();
  std::mt19937 random(100 + number);
  for (const char* name : {"tokens", "targets"}) {
    const Value v = s.find({name}).value();
    auto* ids = static_cast<int32_t*>(run.data(v));
    for (int64_t i = 0; i < s[v].type.num_elements(); ++i) {
      ids[i] = static_cast<int32_t>(random() % vocab);
      if (name[1] == 'a' && random() % 7 == 0) ids[i] = -1;
    }
  }
  if (const auto counter = s.find({std::string(kRandomCounter)})) {
    auto* c = static_cast<int64_t*>(run.data(*counter));
    c[0] = seed, c[1] = number, c[2] = 0;
  }
}

// Objects that hold routing choices (a router's top-k), in the order of the scheme.
inline std::vector<Value> choices_of(const Scheme& scheme) {
  std::vector<Value> choices;
  for (const Morphism& m : scheme.morphisms) {
    if (op_named(m.op).effect != Effect::kChoosing) continue;
    choices.insert(choices.end(), m.outputs.begin(), m.outputs.end());
  }
  return choices;
}

// The same scheme with its choices as further inputs. A reference repeats the choices of the run
// that it is compared with, because float64 may rank two nearly equal scores the other way.
inline Scheme with_given_choices(const Scheme& scheme) {
  Scheme result = scheme;
  for (const Value choice : choices_of(scheme)) {
    result.inputs.push_back(choice);
    result[choice].role = Role::kInput;
  }
  std::erase_if(result.morphisms,
                [](const Morphism& m) { return op_named(m.op).effect == Effect::kChoosing; });
  verify(result);
  return result;
}

}  // namespace adjoint
