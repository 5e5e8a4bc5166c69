// What this process may still take of the machine. The kernel's own count is of the whole machine;
// containers and batch systems put a process in control groups (cgroups, version 1 or 2), whose
// limits it does not know: who takes more than a group has is killed. So both are read, and the
// least counts.
#pragma once
#include <filesystem>
#include <optional>
#include <string>

#include "base/bytes.h"

namespace adjoint {

struct AvailableMemory {
  Bytes bytes = {0};
  std::string giver = {};  // the beginning of a sentence: "the machine has"
};

// What can be had without swapping: free memory, and files' pages that the kernel gives up for it.
// Nothing where the machine does not say. `root` is the folder that proc and sys are in, for tests.
std::optional<AvailableMemory> available_memory(const std::filesystem::path& root = "/");

// MachineError where there is less; `advice` ends its sentence.
void check_memory(Bytes need, const std::string& what, const std::string& advice = "");

// The processor time that control groups allow, in processors; nothing where there is no limit.
std::optional<double> allowed_processors(const std::filesystem::path& root = "/");

// Processors that this process may run on and has the time of, at least one.
int available_processors();

}  // namespace adjoint
