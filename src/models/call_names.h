// How the calls of a box are called, as its text says it: by `name=`, or by the kind of call and a
// number, `layer_norm#2`. Names are parts of the paths by which formats and saves know weights.
#pragma once
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "scheme/document.h"

namespace adjoint {

// Tells if a call of this kind without a name could be called so: layer_norm#2. The first call of
// a box has no number.
bool is_numbered_name(std::string_view word, std::string_view kind, bool is_box);

// The numbered names that calls of a box say: no other call of it is called so.
std::set<std::string> numbered_names(const Box& box);

// One call of a box. A call without a name has the number first, or where conditions decide which
// calls there are, one from first to last.
struct CallName {
  const Term* call;
  std::string kind;
  bool is_box = false;
  std::optional<std::string> said = {};
  int first = 1, last = 1;

  // Nothing where conditions decide.
  std::optional<std::string> name() const;
  // The call's name by this number.
  std::string numbered(int number) const;
  bool may_be(std::string_view component) const;
};

// In the order in which they are made.
std::vector<CallName> call_names(const Document& document, const Box& box);

// Modules of a format that no call of the text can be, in any settings.
std::vector<const FormatModule*> impossible_modules(const Document& document, const Format& format);

}  // namespace adjoint
