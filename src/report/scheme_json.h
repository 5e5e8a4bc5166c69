// A scheme for machines: objects and morphisms by number, with what functors have said of them
// (docs/json.md, "A scheme").
#pragma once
#include <nlohmann/json.hpp>

#include "functors/pipeline.h"
#include "models/elaborate.h"

namespace adjoint {

// Where a forward scheme's text says what.
struct WrittenIn {
  const Written& places;
  std::string_view text;  // as it was written, in which offsets count
};
nlohmann::json scheme_json(const Scheme& scheme, const WrittenIn* written = nullptr);
nlohmann::json type_json(const Type& type);  // dtype, axes, bytes

// What each functor of a stack did, with its rules and what they acted on where firings are known.
nlohmann::json applied_json(const std::vector<Applied>& applied, const Stack& stack,
                            const std::vector<Firing>& firings = {});

}  // namespace adjoint
