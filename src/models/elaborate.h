// A model's text and its settings -> the forward scheme: every size concrete, every repetition
// written out, boxes left as paths (block[3].qkv.weight).
#pragma once
#include <map>

#include "models/settings.h"
#include "scheme/scheme.h"

namespace adjoint {

// A use that a text may repeat: where it is called y, y(x) is the same op with the same constants
// and another first operand.
struct KnownUse {
  std::string op;
  Attrs attrs = {};
  std::vector<std::string> operands = {};     // by what each is called in the model
  size_t named = 0;                           // the first so many can be given
  std::map<std::string, Type> controls = {};  // operands that the run says, by path
};
using KnownUses = std::map<std::string, KnownUse, std::less<>>;

// Where a text says what it made, for whoever draws or edits the text.
struct Written {
  std::vector<TextSpan> calls = {};         // per morphism; line 0: no call of the text
  std::map<Value, std::string> names = {};  // what statements call objects; the outermost one
};

// Inputs: the model box's formals (i32 unless they say otherwise), then parameters and control in
// the order in which they arise. Outputs: what the model's last statement names; for a loss that is
// the pair (sum, count). An Error names file, line and column.
Scheme elaborate(const Document& document, std::string_view file, const ModelConfig& config,
                 const KnownUses& uses = {}, Written* written = nullptr);

}  // namespace adjoint
