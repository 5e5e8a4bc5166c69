// The page: files that travel inside the binary (scripts/embed_page.py), or a folder that was named
// for those who work on the page.
#pragma once
#include <filesystem>
#include <optional>
#include <span>
#include <string_view>

#include "studio/http_message.h"

namespace adjoint {

struct PageFile {
  std::string_view name;   // assets/index-4f1c.js
  std::string_view type;   // text/javascript
  std::string_view bytes;  // gzip
};
std::span<const PageFile> page_files();

class Page {
 public:
  // An empty folder: what is inside the binary.
  explicit Page(const std::filesystem::path& folder = {});
  bool is_there() const;
  // The file of this name; "" is the page itself.
  HttpAnswer answer(const std::string& name) const;

 private:
  std::filesystem::path folder_;
};

}  // namespace adjoint
