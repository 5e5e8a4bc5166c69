// What the functors of a stack found and did, for people.
#pragma once
#include <string>
#include <vector>

#include "functors/pipeline.h"

namespace adjoint {

// One line per functor: name, law, matches by kind, and how many morphisms it left.
std::string stack_table(const std::vector<Applied>& applied);

// What one functor did, as a sentence without its name: "48 linear; 144 calls more".
std::string what_it_did(const Applied& applied);
// One such line for every functor that found something, those on by default behind the others.
std::string deeds(const std::vector<Applied>& applied);

// The difference of two schemes, line by line and by source. What functors only said of objects,
// without another type or another call, makes no difference: realizations act on it.
struct Difference {
  std::vector<std::string> added = {}, gone = {};  // lines of the flat notation
  struct Changed {
    std::string source, was, is;
  };
  std::vector<Changed> changed = {};
};
Difference difference_of(const Scheme& before, const Scheme& after);
// Lines that were added (+), removed (-) or changed (~, with the new line).
std::string scheme_difference(const Scheme& before, const Scheme& after);

}  // namespace adjoint
