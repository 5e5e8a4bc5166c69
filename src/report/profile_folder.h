// The folder that `adjoint profile` writes: profile.json, index.html, trace.json.
#pragma once
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace adjoint {

constexpr const char* kProfileFormat = "adjoint profile 1";

// Refuses a folder that holds something else, before anything is run.
void check_profile_folder(const std::filesystem::path& folder);

struct ProfileFile {
  std::string name, text;
};
// All files are complete on disk before the first one is moved to its name.
void write_profile(const std::filesystem::path& folder, const std::vector<ProfileFile>& files);

// profile.json of such a folder; throws an Error that names the folder if it is not one.
nlohmann::json read_profile(const std::filesystem::path& folder);

}  // namespace adjoint
