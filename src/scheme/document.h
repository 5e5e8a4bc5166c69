// A model as people write it: axes, numbers, presets, boxes and a model, with sizes still symbolic
// and repetition still folded. models/elaborate turns it into a Scheme.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "scheme/format.h"
#include "scheme/term.h"
#include "scheme/type.h"

namespace adjoint {

// a, b = f(x), g(y); several names take several values: a product of objects.
struct Statement {
  std::vector<std::string> names;
  std::vector<Term> values;
  Position at = {};
  bool operator==(const Statement&) const = default;
};

// x[batch, seq, hidden] in the head of a box; a dtype may precede the bracket: tokens i32[batch].
struct Formal {
  std::string name;
  std::optional<Dtype> dtype = {};
  std::vector<Term> axes = {};
  Position at = {}, end = {};
  bool operator==(const Formal&) const = default;
};

// A morphism with a scheme inside. Its value is what its last statement names.
struct Box {
  std::string name;
  std::vector<Formal> formals = {};
  std::vector<Statement> body = {};
  Position at = {};
  bool operator==(const Box&) const = default;
};

struct Preset {
  std::string name;
  std::vector<Setting> settings = {};
  Position at = {};
  bool operator==(const Preset&) const = default;
};

struct Document {
  std::vector<Setting> axes = {};     // sizes, whole numbers
  std::vector<Setting> numbers = {};  // rates, eps and the like
  std::vector<Preset> presets = {};
  std::vector<Box> boxes = {};  // the one named `model` is the whole
  std::vector<Format> formats = {};
  bool operator==(const Document&) const = default;

  const Box* box(std::string_view name) const;
  const Preset* preset(std::string_view name) const;
};

Document parse_document(std::string_view text, std::string_view file);
std::string print(const Document& document);

}  // namespace adjoint
