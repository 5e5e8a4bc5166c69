// Words of the model notation that are no ops. They are described as ops are and never stand in a
// scheme: a call says something in smaller ops, by its surface, or speaks of parameters and lists,
// which the elaborator knows (models/box_calls.cpp).
#pragma once
#include "ops/op_def.h"

namespace adjoint {

std::span<const OpDef> notation_words();
const OpDef* find_word(std::string_view name);

// What a call of an op or a word takes, with the defaults: "x, out, bias=yes".
std::string params_text(const OpDef& op);
// "linear(x, out, bias=yes)"; the name alone where no text can call it.
std::string signature(const OpDef& op);

}  // namespace adjoint
