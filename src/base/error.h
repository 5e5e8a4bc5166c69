// The kinds of error: the user's (Error), ours (CHECK), the machine's (MachineError).
// What is merely absent is a std::optional.
#pragma once
#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <stdexcept>
#include <string>

namespace adjoint {

// A mistake of the user's: a bad config, scheme or file. `main` prints it and exits with 1.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The machine failed us: no memory, a library call. `main` prints it and exits with 3.
class MachineError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

template <class... Parts>
std::string join_parts(const Parts&... parts) {
  std::ostringstream message;
  (message << ... << parts);
  return message.str();
}

template <class... Parts>
[[noreturn]] void fail(const Parts&... parts) {
  throw Error(join_parts(parts...));
}

}  // namespace adjoint

// A mistake of ours. Kept in release builds: a wrong gradient costs more than a branch.
// A macro, because clang 14 (and so clang-tidy 14) has no std::source_location.
#define CHECK(claim, why)                                                        \
  do {                                                                           \
    if (!(claim)) {                                                              \
      std::fprintf(stderr, "%s:%d: CHECK(%s): %s\n", __FILE__, __LINE__, #claim, \
                   std::string(why).c_str());                                    \
      std::abort();                                                              \
    }                                                                            \
  } while (false)
