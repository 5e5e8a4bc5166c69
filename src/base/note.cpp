#include "base/note.h"

#include <cstdio>
#include <mutex>
#include <set>

namespace adjoint {

namespace {
struct Notes {
  std::mutex mutex = {};
  std::set<std::string> said = {};
  std::function<void(const std::string&)> writer = nullptr;
};
Notes& notes() {
  static Notes all;
  return all;
}
}  // namespace

void note_once(const std::string& text) {
  Notes& all = notes();
  const std::scoped_lock lock(all.mutex);
  if (!all.said.insert(text).second) return;
  if (all.writer) return all.writer(text);
  std::fprintf(stderr, "adjoint: note: %s\n", text.c_str());
}

void set_note_writer(std::function<void(const std::string&)> writer) {
  Notes& all = notes();
  const std::scoped_lock lock(all.mutex);
  all.said.clear();
  all.writer = std::move(writer);
}

}  // namespace adjoint
