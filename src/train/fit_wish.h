// What a user specifies about machine and memory, as flags and files say it.
#pragma once
#include <string>

#include "base/bytes.h"

namespace adjoint {

// Enough for a model of 70 billion parameters on two cores.
constexpr int kFitSeconds = 100;

struct FitWish {
  std::string budget = {};       // "24GB"; "": no stack is chosen
  bool may_approximate = false;  // precision may be lowered
  double seconds = kFitSeconds;  // that the search may take; 0: as many as it wants
  std::string device = "cpu";    // a sheet's name, or its file
  std::string profile = {};      // a folder of `adjoint profile`, for measured costs
};

// Parses a size above 0, and refuses everything else.
Bytes budget_of(const std::string& text);
// Parses --workspace, "64MiB": the cap on workspaces. Throws an Error.
Bytes workspace_of(const std::string& text);

}  // namespace adjoint
