// What a refusal says: the Error's text, or "" when nothing was refused.
#pragma once
#include <string>

#include "base/error.h"

namespace adjoint {

template <class Call>
std::string error_text(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

inline bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace adjoint
