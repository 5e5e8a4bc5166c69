#include "cli/answer.h"

#include <iostream>

#include "cli/command.h"

namespace adjoint {

int print_answer(std::string_view command, nlohmann::json answer, int indent) {
  answer["command"] = command;
  std::cout << answer.dump(indent, ' ', false, nlohmann::json::error_handler_t::replace) << "\n";
  return kDone;
}

}  // namespace adjoint
