// What a functor can be told, as in checkpoint(every=2), and what it was told.
#pragma once
#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "scheme/document.h"

namespace adjoint {

// What a functor can be told: `every` of checkpoint(every=2).
struct FunctorParam {
  std::string name;
  std::string otherwise = {};  // the default, as it is written; "": it must be given
  std::string summary = {};
  std::vector<std::string> words = {};  // the words that it may be; none: a number
  bool whole = true;                    // of a number
  double least = 1, most = std::numeric_limits<double>::infinity();
  bool list = false;  // several, as in keep=[2, 5]
  bool text = false;  // in quotes
  // What it is told on a small copy of a model, where the default would find nothing to do.
  std::string on_small = {};
};

// "checkpoint(every=2: block | n)": what a functor or an optimizer can be told.
std::string signature(const std::string& name, const std::vector<FunctorParam>& params);

// What it was told, defaults filled in and checked.
class Arguments {
 public:
  // Every param is given, by position, by name or by default. Complaints name the functor and,
  // where `file` says what the call was read from, the place in it.
  Arguments(std::string_view functor, const std::vector<FunctorParam>& params, const Term& call,
            std::string_view file = "");

  bool is_word(std::string_view name) const;
  double number(std::string_view name) const;
  int64_t whole(std::string_view name) const { return static_cast<int64_t>(number(name)); }
  std::string word(std::string_view name) const;
  const Term& term(std::string_view name) const;
  // Elements of a list; a single value is a list of one.
  std::vector<Term> list(std::string_view name) const;
  std::string print() const;  // (every=2), only what is not the default

 private:
  std::map<std::string, Term, std::less<>> values_;
  std::string printed_;
};

}  // namespace adjoint
