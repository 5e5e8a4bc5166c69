// How much of the machine this process may still use. The kernel reports the whole machine, but
// containers and batch systems put a process into control groups (cgroups, version 1 or 2), and a
// process that exceeds its group's limit is killed. So both are read, and the smaller one counts.
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

// Memory that is available without swapping: free memory, and cached file pages that the kernel can
// drop. Nothing if the machine does not report it. `root` is the parent of proc and sys, for tests.
std::optional<AvailableMemory> available_memory(const std::filesystem::path& root = "/");

// "what needs 2 TiB of memory, the machine has 20 GiB available", or nothing if it has enough.
std::optional<std::string> lack_of_memory(Bytes need, const std::string& what);

// Throws an Error if there is less, for what was asked for is too much; `advice` ends its sentence.
void check_memory(Bytes need, const std::string& what, const std::string& advice = "");

// Throws a MachineError if the file system on which `folder` is, or would be, certainly has less
// room; "FOLDER: what needs 9 MiB of disk, and 3 MiB are free" begins its sentence.
void check_space(const std::filesystem::path& folder, Bytes need, const std::string& what,
                 const std::string& advice = "");

// The processor time that control groups allow, in processors; nothing where there is no limit.
std::optional<double> allowed_processors(const std::filesystem::path& root = "/");

// Processors that this process may run on, limited by its share of processor time; at least one.
int available_processors();

}  // namespace adjoint
