// What gradients are called: after what they are the gradients of, which need not be a whole path.
// Of a matrix W that is made of centres, W:grad is the matrix's and W:centres.grad the centres'.
#pragma once
#include <algorithm>

#include "scheme/scheme.h"

namespace adjoint {

inline constexpr std::string_view kGradFacet = "grad";

inline Source gradient_source(const Source& of) { return with_facet(of, kGradFacet); }

// The inverse, also for parts of a gradient and for what was made of it: W:centres.grad.part2 is of
// W:centres. What is no gradient is of its path.
inline Source owner_of_gradient(const Source& gradient) {
  const std::string& facet = gradient.facet;
  for (size_t at = 0; at <= facet.size();) {
    const size_t dot = std::min(facet.find('.', at), facet.size());
    if (std::string_view(facet).substr(at, dot - at) == kGradFacet) {
      return {gradient.path, facet.substr(0, at == 0 ? 0 : at - 1)};
    }
    at = dot + 1;
  }
  return {gradient.path};
}

}  // namespace adjoint
