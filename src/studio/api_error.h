// A request that cannot be answered: the status, and one sentence for whoever reads the page.
#pragma once
#include "base/error.h"

namespace adjoint {

class ApiError : public Error {
 public:
  ApiError(int status, const std::string& message) : Error(message), status(status) {}
  int status;
};

template <class... Parts>
[[noreturn]] void refuse(int status, const Parts&... parts) {
  throw ApiError(status, join_parts(parts...));
}

}  // namespace adjoint
