#include "kernels/cuda/cublaslt/product_table.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <optional>
#include <thread>

#include "base/error.h"
#include "base/file.h"
#include "base/file_view.h"

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

std::unique_lock<std::mutex> lock_products() {
  static std::mutex mutex;
  return std::unique_lock(mutex);
}

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
// The products that this process may write to its table: those that it timed or read from there.
// Where a borrowed time hides one that was read, the one that was read.
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

// One process at a time reads the file, adds to it and replaces it. Whoever cannot get the lock
// within a second does without; its products are timed again in the next run.
class TableLock {
 public:
  explicit TableLock(const fs::path& table) {
    const std::string lock = table.string() + ".lock";
    file_ = ::open(checked_output(lock).c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0644);
    if (file_ < 0) fail_to_write(lock, errno);
    int error = 0;
    for (int tries = 0; tries < 100; ++tries) {
      if (::flock(file_, LOCK_EX | LOCK_NB) == 0) return;
      error = errno;
      if (error != EWOULDBLOCK && error != EINTR) break;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    ::close(file_);
    if (error != EWOULDBLOCK && error != EINTR) fail_to_write(lock, error);
    fail(lock, ": another process holds this lock");
  }
  ~TableLock() { ::close(file_); }
  TableLock(const TableLock&) = delete;
  TableLock& operator=(const TableLock&) = delete;

 private:
  int file_ = -1;
};

// What this process learnt since it last read or wrote the file, in the place of what the file says
// by now: other processes have learnt meanwhile, too.
TunedProducts with_what_others_learnt(const TunedProducts& own, const TunedProducts& saved,
                                      const fs::path& file) {
  TunedProducts all;
  std::error_code ignored;
  try {
    if (fs::exists(file, ignored)) all = TunedProducts::read(file);
  } catch (const Error&) {  // another version's, or damaged: replaced
  }
  for (const std::string& machine : own.machines()) {
    for (const auto& [product, tuned] : own.of(machine)) {
      const TunedProduct* before = saved.find(machine, product);
      const bool learnt = !before || !(*before == tuned);
      if (learnt || !all.find(machine, product)) all.remember(machine, product, tuned);
    }
  }
  return all;
}
}  // namespace

void save_product_table() noexcept try {
  Table& t = table();
  const fs::path file = in_cache_folder();
  if (!t.now || file.empty()) return;
  const TunedProducts own = own_products(t);
  if (own == t.saved) return;
  fs::create_directories(checked_output(file.parent_path()));
  const TableLock lock(file);
  with_what_others_learnt(own, t.saved, file).write(file);
  t.saved = own;
} catch (const std::exception&) {
}

}  // namespace adjoint
