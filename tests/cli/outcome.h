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

// `before` is put in front of the command: limits, signals. A slow machine must not add lines on
// what is being done.
inline Outcome run(const std::string& arguments, const std::string& before = "",
                   const std::string& streams = "2>&1") {
  const std::string command =
      before + " " ADJOINT_BINARY " " +
      (arguments.empty() || arguments.starts_with("complete ") ? "" : "--tell-every 0 ") +
      arguments + " " + streams;
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
