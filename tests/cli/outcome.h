// Runs the binary as from a shell.
#pragma once
#include <sys/wait.h>

#include <cstdio>
#include <string>

namespace adjoint {

struct Outcome {
  int code;
  std::string text;  // both streams
};

// `before` is put in front of the command: limits, signals.
inline Outcome run(const std::string& arguments, const std::string& before = "") {
  const std::string command = before + " " ADJOINT_BINARY " " + arguments + " 2>&1";
  std::FILE* pipe = ::popen(command.c_str(), "r");
  Outcome outcome{-1, ""};
  char buffer[4096];
  for (size_t n; (n = std::fread(buffer, 1, sizeof buffer, pipe)) > 0;) {
    outcome.text.append(buffer, n);
  }
  const int status = ::pclose(pipe);
  outcome.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return outcome;
}

}  // namespace adjoint
