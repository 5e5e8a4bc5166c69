// What was said of objects along one axis of the mesh, and what follows from it for parameters,
// their gradients and their states.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "analysis/spread.h"
#include "scheme/scheme.h"

namespace adjoint {

class PlacementSaid {
 public:
  // A parameter lies as it was said to, or as its first reader wants it; its gradient and the
  // state of its optimizer go where it is. What it is only kept as says nothing of these.
  // `adopted`, by source: parameters of which nothing was said, as their first readers want them.
  PlacementSaid(const Scheme& scheme, const MeshAxis& axis,
                const std::map<std::string, Share>& adopted);

  // What was said of an object; nothing where nobody said anything.
  std::optional<Share> of(Value v) const;
  bool is_home(Value v) const;  // it is only kept so (Placement::home)
  // Of a parameter itself, or of its gradient or a state of its optimizer. The state of a part of
  // what is at a path, such as a codebook's centres, has the path alone, and the part's shape.
  std::optional<Share> of_parameter(const Object& object) const;

 private:
  const Scheme& scheme_;
  const MeshAxis& axis_;
  std::map<std::string, std::pair<Share, Type>> parameters_;  // by source: those that work follows
};

// A parameter of which each rank keeps a piece, and which whoever reads it reads whole.
bool is_kept_in_pieces(const Object& object);
// cast(concat(W, ...))  ->  concat(cast(W), ...), of such parameters: each is gathered by itself,
// in the bits in which it is read, and straight to its place.
Scheme with_casts_before_joins(const Scheme& scheme);

}  // namespace adjoint
