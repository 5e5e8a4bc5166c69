// The folder that the studio shows. Paths are relative to it and end inside it, wherever links
// lead; nothing else is read or written. Texts are written whole or not at all, and only over the
// text that the writer has seen: its etag is a hash of the file's bytes.
#pragma once
#include <cstdint>
#include <filesystem>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace adjoint {

struct ListedFile {
  std::string path;  // relative, with /
  std::string kind;  // model, functor, optimizer, schedule, text, jsonl, tokens, config, run,
                     // folder, other
  bool folder = false;
  int64_t bytes = 0;
  int64_t modified = 0;  // nanoseconds since 1970
};

struct SavedText {
  std::string text, etag;
};

class Folder {
 public:
  explicit Folder(std::filesystem::path root);
  const std::filesystem::path& root() const { return root_; }

  // The absolute path of what a request names, links followed; an ApiError if it is no path inside.
  std::filesystem::path resolve(const std::string& path) const;

  // What lies in the folder, folders before what they hold, up to a depth and a number of entries.
  // Hidden files, folders of builds, links that lead outside and files that are being written are
  // left out, and so is what a run or a model's folder holds.
  std::vector<ListedFile> list() const;

  // Removes what writers left that were killed.
  void sweep() const;

  SavedText read(const std::string& path) const;
  // Gives the new etag. `etag` is that of the text to be replaced; null: there is no file yet.
  std::string write(const std::string& path, std::string_view text, const std::string* etag);
  void rename(const std::string& from, const std::string& to);
  void remove(const std::string& path, const std::string& etag);

 private:
  std::filesystem::path writable(const std::string& path) const;
  // The name itself, where it is a link: only the folders on the way are followed.
  std::filesystem::path entry(const std::string& path) const;
  void check_name(const std::string& path, const std::filesystem::path& file) const;
  std::filesystem::path root_;  // canonical
  std::mutex writing_;
};

// Moves a file where no other of that name is, without a moment in which both names or neither are
// somebody else's. Whether it was moved; an Error where the system refuses.
bool move_to_new_name(const std::filesystem::path& from, const std::filesystem::path& to);
// The same where the file system cannot do it in one step.
bool link_to_new_name(const std::filesystem::path& from, const std::filesystem::path& to);

// Whether bytes are text as JSON can hold it: UTF-8 without a NUL.
bool is_text(std::string_view bytes);

}  // namespace adjoint
