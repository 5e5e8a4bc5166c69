#include "fuzz/fuzz_target.h"

#include <unistd.h>

#include <cstdio>

namespace adjoint {

namespace fs = std::filesystem;

fs::path fuzz_folder() {
  // It goes with the process; whoever is killed leaves it.
  static const struct Folder {
    fs::path path;
    Folder() {
      std::error_code ignored;
      const fs::path memory = "/dev/shm";
      path = (fs::is_directory(memory, ignored) ? memory : fs::temp_directory_path()) /
             ("adjoint_fuzz." + std::to_string(::getpid()));
    }
    ~Folder() {
      std::error_code ignored;
      fs::remove_all(path, ignored);
    }
  } folder;
  fs::remove_all(folder.path);
  fs::create_directories(folder.path);
  return folder.path;
}

void put_file(const fs::path& path, std::string_view bytes) {
  std::FILE* file = std::fopen(path.c_str(), "wb");
  CHECK(file, path.string());
  // Nothing may lie nowhere, which fwrite does not take.
  CHECK(bytes.empty() || std::fwrite(bytes.data(), 1, bytes.size(), file) == bytes.size(),
        path.string());
  std::fclose(file);
}

std::string_view part_of(std::string_view input, size_t index) {
  constexpr std::string_view kBorder = "\n---\n";
  for (; index > 0; --index) {
    const size_t border = input.find(kBorder);
    if (border == input.npos) return {};
    input.remove_prefix(border + kBorder.size());
  }
  return input.substr(0, input.find(kBorder));
}

}  // namespace adjoint
