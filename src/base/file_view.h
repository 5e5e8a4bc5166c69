// Which files this process may open. Usually all of them. A command that works for the studio is
// started with `--inside FOLDER`: it opens files of that folder alone, links included, so that a
// request from a page cannot reach another file of the user's. With `--read-only` it writes none.
// Drafts are texts that nobody has saved yet: whoever reads a file that has a draft gets the draft.
//
// Every reader and writer of files that a user names asks here before it opens one. The system's
// own files (/proc, /sys, libraries) are nobody's input and do not ask.
#pragma once
#include <filesystem>
#include <map>
#include <optional>
#include <string>

namespace adjoint {

struct FileView {
  std::filesystem::path inside = {};  // empty: anywhere
  bool read_only = false;
  std::map<std::filesystem::path, std::string> drafts = {};  // by path, as a command names it
};

// At the start, before there are threads. An Error if the folder is missing, or if a draft is
// outside.
void set_file_view(FileView view);

// The file of this program, which tells a run by what it was made. Every view has it.
constexpr const char* kThisProgram = "/proc/self/exe";

// The same path if the view allows it to be read, or written; otherwise an Error.
const std::filesystem::path& checked_path(const std::filesystem::path& path);
const std::filesystem::path& checked_output(const std::filesystem::path& path);

// The draft of this file, or null.
const std::string* draft_of(const std::filesystem::path& path);

// Whether the view has a file or a folder of this name. What is outside is not there.
bool is_visible(const std::filesystem::path& path);

// Whether a path is a folder's own or of something in it, both with every link followed.
bool lies_in(const std::filesystem::path& folder, const std::filesystem::path& path);

// Where a path leads once every link in it is followed, whether or not its end exists. Nothing for
// a chain of links without an end, or a folder that may not be entered.
std::optional<std::filesystem::path> followed(const std::filesystem::path& path);

// Makes a folder and those above it that are missing, if the view allows it.
void make_folders(const std::filesystem::path& folder);

}  // namespace adjoint
