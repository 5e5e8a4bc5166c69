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
  std::optional<TunedProducts> now;
  TunedProducts saved, borrowed;
};
Table& table() {
  static Table one;
  return one;
}

}  // namespace

TunedProducts& product_table() {
  Table& t = table();
  if (t.now) return *t.now;
  std::error_code ignored;
  const fs::path file = in_cache_folder();
  t.now = TunedProducts{};
  if (file.empty() || !fs::exists(file, ignored)) return *t.now;
  try {
    t.now = TunedProducts::read(file);
  } catch (const Error&) {  // a cache that another version wrote is learnt anew
  }
  t.saved = *t.now;
  return *t.now;
}

void borrow_products(const TunedProducts& others) {
  product_table().remember(others);
  table().borrowed.remember(others);
}

namespace {
// What was known or learnt here. Of what was borrowed, what stood in the file before.
TunedProducts own_products(const Table& t) {
  TunedProducts own;
  for (const std::string& machine : t.now->machines()) {
    for (const auto& [product, tuned] : t.now->of(machine)) {
      const bool borrowed = t.borrowed.find(machine, product);
      const TunedProduct* kept = borrowed ? t.saved.find(machine, product) : &tuned;
      if (kept) own.remember(machine, product, *kept);
    }
  }
  return own;
}
}  // namespace

void save_product_table() noexcept try {
  Table& t = table();
  const fs::path file = in_cache_folder();
  if (!t.now || file.empty()) return;
  const TunedProducts own = own_products(t);
  if (own == t.saved) return;
  fs::create_directories(file.parent_path());
  own.write(file);
  t.saved = own;
} catch (const std::exception&) {
}

}  // namespace adjoint
