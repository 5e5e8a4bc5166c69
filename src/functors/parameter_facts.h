// What an optimizer's text may ask about its parameter, as numbers: rank(p), elements(p),
// dim(p, -1), matrix(p); and so which of its cases is the parameter's.
#pragma once
#include <optional>

#include "functors/optimizer_text.h"

namespace adjoint {

// A term with numbers where it asked.
class ParameterFacts {
 public:
  ParameterFacts(const OptimizerText& text, const Type& parameter, const ParameterIs& is)
      : text_(text), parameter_(parameter), is_(is), words_(parameter_facts()) {}

  Term operator()(Term term) const;

 private:
  std::optional<double> fact(const Term& term) const;
  double dim(const Term& axis) const;

  const OptimizerText& text_;
  const Type& parameter_;
  const ParameterIs& is_;
  std::vector<std::string> words_;
};

// The numbers that a text was called with, for a piece of the models' notation that may name them.
std::vector<Setting> numbers_of(const Optimizer& optimizer);

}  // namespace adjoint
