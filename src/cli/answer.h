// How commands answer with --json: one value on standard output, which says whose it is.
#pragma once
#include <nlohmann/json.hpp>
#include <string_view>

namespace adjoint {

// `indent` -1: on one line, for answers that are long or one of many. What is no UTF-8 (a
// stranger's text) is replaced, not refused. Returns kDone.
int print_answer(std::string_view command, nlohmann::json answer, int indent = 2);

}  // namespace adjoint
