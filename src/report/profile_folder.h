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
// Each is complete on disk before the first takes its place.
void write_profile(const std::filesystem::path& folder, const std::vector<ProfileFile>& files);

// profile.json of such a folder; an Error that names it when it is none.
nlohmann::json read_profile(const std::filesystem::path& folder);

}  // namespace adjoint
