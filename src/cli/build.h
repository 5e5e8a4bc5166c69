// What this binary was built from, and with what, as --version tells it.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace adjoint {

// Written by the build (cmake/build.cmake): configure-time facts, and the commit as it was when
// the binary was linked.
struct Build {
  std::string_view commit;  // empty: built from files without a git repository
  std::string_view date;    // of the commit: 2026-11-18
  bool changed;             // files differed from the commit
  std::string_view type;    // Release
  std::string_view sanitizers;
  std::string_view cuda, cudnn;         // versions; empty: none
  std::string_view cuda_architectures;  // "80-real 90 90a-real"
  std::string_view xbyak;               // its version; empty: bodies are interpreted
  std::string_view mpi;                 // kinds that a library was built for: "openmpi mpich"
};
const Build& build();

std::string version_text();
std::string version_json();

}  // namespace adjoint
