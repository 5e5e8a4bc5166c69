#include "studio/page.h"

#include "base/file.h"
#include "studio/api_error.h"
#include "studio/folder.h"

namespace adjoint {

namespace fs = std::filesystem;

namespace {

constexpr const char* kHowToGetIt =
    "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><title>Adjoint Studio</title>"
    "</head><body style=\"font: 16px/1.5 sans-serif; max-width: 40em; margin: 4em auto\">"
    "<h1>This binary was built without the page</h1>"
    "<p>The page is built by <code>make studio</code>, which needs Node 18 or newer and npm, and "
    "then builds the binary again. The interface under <code>api/</code> works as it is "
    "(docs/studio_api.md).</p></body></html>\n";

std::string_view type_of(const fs::path& path) {
  const std::string ending = path.extension().string();
  if (ending == ".html") return "text/html; charset=utf-8";
  if (ending == ".js" || ending == ".mjs") return "text/javascript; charset=utf-8";
  if (ending == ".css") return "text/css; charset=utf-8";
  if (ending == ".json") return "application/json";
  if (ending == ".svg") return "image/svg+xml";
  if (ending == ".png") return "image/png";
  if (ending == ".woff2") return "font/woff2";
  if (ending == ".wasm") return "application/wasm";
  return "application/octet-stream";
}

// Vite puts a hash of its content into the name of every file under assets.
std::string cache_control(std::string_view name) {
  return name.starts_with("assets/") ? "public, max-age=31536000, immutable" : "no-cache";
}

}  // namespace

Page::Page(const fs::path& folder) : folder_(folder) {}

bool Page::is_there() const {
  std::error_code ignored;
  if (!folder_.empty()) return fs::is_regular_file(folder_ / "index.html", ignored);
  return !page_files().empty();
}

HttpAnswer Page::answer(const std::string& asked) const {
  if (!is_there()) {
    if (!asked.empty()) return {.status = 404};
    return {.type = "text/html; charset=utf-8", .body = kHowToGetIt};
  }
  const std::string name = asked.empty() ? "index.html" : asked;
  if (!folder_.empty()) {
    try {
      const fs::path file = Folder(folder_).resolve(name);
      return {.type = std::string(type_of(file)),
              .body = read_file(file),
              .headers = {{"Cache-Control", "no-store"}}};
    } catch (const Error&) {
      return {.status = 404};
    }
  }
  for (const PageFile& file : page_files()) {
    if (file.name != name) continue;
    return {.type = std::string(file.type),
            .body = std::string(file.bytes),
            .headers = {{"Content-Encoding", "gzip"}, {"Cache-Control", cache_control(name)}}};
  }
  return {.status = 404};
}

}  // namespace adjoint
