#include "base/note.h"

#include <cstdio>
#include <mutex>
#include <set>

#include "base/activity.h"

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

void tell_once(const char* kind, const std::string& text) {
  Notes& all = notes();
  const std::scoped_lock lock(all.mutex);
  if (!all.said.insert(text).second) return;
  if (all.writer) return all.writer(text);
  const Teller::Quiet quiet(teller());
  std::fprintf(stderr, "adjoint: %s: %s\n", kind, text.c_str());
}
}  // namespace

void note_once(const std::string& text) { tell_once("note", text); }
void warn_once(const std::string& text) { tell_once("warning", text); }

void set_note_writer(std::function<void(const std::string&)> writer) {
  Notes& all = notes();
  const std::scoped_lock lock(all.mutex);
  all.said.clear();
  all.writer = std::move(writer);
}

}  // namespace adjoint
