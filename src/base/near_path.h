// What a path that leads nowhere may have meant, and why it may lead nowhere.
#pragma once
#include <filesystem>
#include <string>
#include <string_view>

namespace adjoint {

// The path with its wrong parts replaced by the nearest names that are there; empty where nothing
// is near, or the path leads somewhere.
std::filesystem::path near_path(const std::filesystem::path& path);
// "; did you mean 'texts/book.txt'?", or nothing.
std::string did_you_mean_path(const std::filesystem::path& path);

// The same where a folder is wanted: of a file in a folder of a run or of a model, that folder.
std::string did_you_mean_folder(const std::filesystem::path& path);

// Refuses a path that is, or leads through, a folder whose rights keep this process out: nobody
// knows then whether it leads anywhere.
void check_may_enter(const std::filesystem::path& path);

// Refuses the pointer that Git LFS leaves where a large file was not fetched; `begin` is how the
// file begins.
void refuse_pointer(const std::filesystem::path& path, std::string_view begin);

// PATH: there is no such file; did you mean 'PATH'?
[[noreturn]] void fail_no_file(const std::filesystem::path& path);

}  // namespace adjoint
