#include "ops/product_table.h"

#include <cstdlib>
#include <optional>

#include "base/error.h"

namespace adjoint {

namespace fs = std::filesystem;

namespace {

fs::path in_cache_folder() {
  if (const char* cache = std::getenv("XDG_CACHE_HOME"); cache && *cache) {
    return fs::path(cache) / "adjoint" / "products.json";
  }
  if (const char* home = std::getenv("HOME"); home && *home) {
    return fs::path(home) / ".cache" / "adjoint" / "products.json";
  }
  return {};
}

struct Table {
  std::optional<fs::path> file;
  bool said = false;
  std::optional<TunedProducts> now;
  TunedProducts saved;
};
Table& table() {
  static Table one;
  return one;
}

}  // namespace

void set_product_file(fs::path path) {
  CHECK(!table().now, "the file is said before the table is asked for");
  table().file = std::move(path);
  table().said = true;
}

fs::path product_file() {
  if (!table().file) table().file = in_cache_folder();
  return *table().file;
}

TunedProducts& product_table() {
  Table& t = table();
  if (t.now) return *t.now;
  std::error_code ignored;
  const fs::path file = product_file();
  t.now = TunedProducts{};
  if (file.empty() || !fs::exists(file, ignored)) return *t.now;
  try {
    t.now = TunedProducts::read(file);
  } catch (const Error&) {
    if (t.said) throw;  // a cache that another version wrote is learnt anew
  }
  t.saved = *t.now;
  return *t.now;
}

void save_product_table() noexcept try {
  Table& t = table();
  if (!t.now || *t.now == t.saved || product_file().empty()) return;
  fs::create_directories(product_file().parent_path());
  t.now->write(product_file());
  t.saved = *t.now;
} catch (const std::exception&) {
}

}  // namespace adjoint
