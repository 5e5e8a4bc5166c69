// What the names in a box's terms are. A name is bound again and again (x = x + ...), so a value is
// what one statement, or the head, gave that name; and not every name is a value: `name=q`,
// `causal` and `axis=hidden` are words, of which only the op that is called knows what they mean.
#pragma once
#include <compare>
#include <map>
#include <string>
#include <vector>

#include "scheme/document.h"

namespace adjoint {

// The index-th name of a statement; of the head (its index-th formal) the statement is -1.
struct ValueId {
  int statement = -1;
  size_t index = 0;
  auto operator<=>(const ValueId&) const = default;
};

struct NameUse {
  enum class Kind : uint8_t {
    kValue,
    kNumber,    // an axis or a number, or what every text knows: batch, seq, l, position
    kLabel,     // the label of an axis
    kCallName,  // name=, weights=, weight=: what a call is called
    kWord,      // any other
  };
  const Term* term;
  Kind kind;
  size_t statement;  // in which it stands
  ValueId value = {};
};

// In the order in which the box's statements are written; terms in heads are left out.
std::vector<NameUse> names_of(const Document& document, const Box& box);
// The values that have names before a statement runs; past the last one, when the box is done.
std::map<std::string, ValueId, std::less<>> values_before(const Box& box, size_t statement);
const std::string& name_of(const Box& box, ValueId value);

// Whether a word is a name as the notation has them, or one of a preset, which may have - and . in
// it.
bool is_name(std::string_view word);
bool is_preset_name(std::string_view word);

// Whether a name is an axis or a number of the document, or one that every text knows.
bool is_known_number(const Document& document, std::string_view name);

// The params that a call of an op or a word leaves to their defaults; none of a box.
struct DefaultParam {
  std::string name, value;
};
std::vector<DefaultParam> defaults_of(const Document& document, const Term& call,
                                      const std::map<std::string, ValueId, std::less<>>& values);

}  // namespace adjoint
