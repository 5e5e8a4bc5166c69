// Helpers for tests of models: elaborate a text, and find objects and morphisms by path.
#pragma once
#include <gtest/gtest.h>

#include "analysis/totals.h"
#include "models/elaborate.h"
#include "models/library.h"

namespace adjoint {

inline Scheme elaborate_text(std::string_view text, const ModelConfig& config = {}) {
  return elaborate(parse_document(text, "my.scheme"), "my.scheme", config);
}

inline Scheme elaborate_preset(std::string_view preset,
                               std::map<std::string, double> settings = {}) {
  const ModelText model = find_model(preset);
  return elaborate(parse_document(model.text, model.file), model.file,
                   {.preset = model.preset, .settings = std::move(settings)});
}

// The morphism at a path; the test fails, and the answer is empty, when there is none.
inline Morphism call_at(const Scheme& scheme, const std::string& path) {
  for (const Morphism& m : scheme.morphisms) {
    if (m.source.path == path) return m;
  }
  ADD_FAILURE() << "there is no call at " << path << " in\n" << print(scheme);
  return {.op = "", .inputs = {0, 0, 0}, .outputs = {0}};
}

inline Object object_at(const Scheme& scheme, const std::string& path) {
  const auto found = scheme.find({path});
  if (found) return scheme[*found];
  ADD_FAILURE() << "there is no object at " << path << " in\n" << print(scheme);
  return {.type = {}, .source = {}};
}

inline std::vector<std::string> paths_of(const Scheme& scheme, Role role) {
  std::vector<std::string> paths;
  for (const Value in : scheme.inputs) {
    if (scheme[in].role == role) paths.push_back(scheme[in].source.path);
  }
  return paths;
}

}  // namespace adjoint
