// Diagrams as Viete's editor has them, in and out: a box is a model, its values are vertices, its
// calls are edges, whose labels say the op with `_` for every operand, and several operands are a
// tuple. What a functor links is a mapping. docs/viete.md says every field.
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "scheme/document.h"
#include "scheme/scheme.h"

namespace adjoint {

// Stands for every operand in the label of an edge.
constexpr std::string_view kDrawnOperand = "_";

// `name` is the program's. An Error where an axis or number is called `_`.
nlohmann::json viete_diagram(const Document& document, std::string_view name);

// Adds two schemes, what a stack was given and what it made, and links every object to those that
// have its source path. `exact`: the law says that both give the same bits.
void add_viete_mapping(nlohmann::json& diagram, const Scheme& source, const Scheme& result,
                       std::string_view functor, bool exact);

bool is_viete_diagram(const nlohmann::json& json);

// The model that a diagram draws, of which mappings and whatever is drawn flat are no part. An
// Error names the vertex or edge.
Document read_viete(const nlohmann::json& diagram, std::string_view file);
// The same as text. With `places` a complaint about a statement names the vertex that it makes.
std::string viete_text(const nlohmann::json& diagram, std::string_view file, bool places);

}  // namespace adjoint
