// Words of the model notation that are no ops: a call says something in smaller ops. They are
// described as ops are, by params and a surface, and never stand in a scheme.
#pragma once
#include "ops/op_def.h"

namespace adjoint {

std::span<const OpDef> notation_words();
const OpDef* find_word(std::string_view name);

}  // namespace adjoint
