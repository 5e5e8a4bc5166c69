#include "studio/metrics_tail.h"

#include <sys/stat.h>

#include <algorithm>
#include <fstream>
#include <optional>
#include <string>
#include <utility>

#include "base/hash.h"
#include "base/json.h"

namespace adjoint {

using nlohmann::json;

namespace {

constexpr int64_t kPiece = 4 * 1024 * 1024;

std::string bytes_of(const std::filesystem::path& file, int64_t from, int64_t most) {
  std::ifstream in(file, std::ios::binary | std::ios::ate);
  most = std::clamp<int64_t>(static_cast<int64_t>(in.tellg()) - from, 0, most);
  in.seekg(from);
  std::string text(static_cast<size_t>(most), '\0');
  in.read(text.data(), most);
  text.resize(static_cast<size_t>(std::max<std::streamsize>(in.gcount(), 0)));
  return text;
}

// Bytes from a place on, up to the end of the last complete line. Of a line that is longer than
// `most`, which no run writes, a piece that ends in no line, so that whoever reads comes past it.
std::string complete_lines(const std::filesystem::path& file, int64_t from, int64_t most) {
  std::string text = bytes_of(file, from, most);
  const size_t end = text.rfind('\n');
  if (end != text.npos) text.resize(end + 1);
  if (end == text.npos && std::ssize(text) < most) text.clear();
  return text;
}

// Of a line that is an object. A stranger's may be nested so deeply that writing it would end the
// stack.
std::optional<json> entry_of(std::string_view line) {
  auto read = try_parse_json(line);
  json* const entry = std::get_if<json>(&read);
  return entry && entry->is_object() ? std::optional(std::move(*entry)) : std::nullopt;
}

template <class Take>
void each_line(std::string_view text, const Take& take) {
  while (!text.empty()) {
    const size_t end = text.find('\n');
    if (end == text.npos) return;
    take(text.substr(0, end));
    text.remove_prefix(end + 1);
  }
}

}  // namespace

MetricsTail::MetricsTail(std::filesystem::path file) : file_(std::move(file)) {
  if (!file_.empty()) next();
}

std::vector<json> MetricsTail::next() {
  std::vector<json> fresh;
  struct stat about = {};
  if (file_.empty()) return fresh;
  if (::stat(file_.c_str(), &about) != 0) {
    seen_.clear();  // the run was removed
    inode_ = 0;
    position_ = 0;
    return fresh;
  }
  if (!S_ISREG(about.st_mode)) return fresh;  // to open a pipe would be to wait
  const std::pair<int64_t, int64_t> changed(about.st_mtim.tv_sec, about.st_mtim.tv_nsec);
  if (about.st_ino == inode_ && about.st_size == position_ && changed == changed_) return fresh;
  // A file that was removed and made anew may have the number of the old one.
  const bool rewritten = about.st_ino != inode_ || about.st_size < position_ || !has_last_line();
  inode_ = about.st_ino;
  changed_ = changed;
  if (rewritten) position_ = 0;
  size_t line_number = rewritten ? 0 : seen_.size();
  bool same = rewritten;  // so far, as the lines that were there before
  for (std::string text; !(text = complete_lines(file_, position_, kPiece)).empty();) {
    each_line(text, [&](std::string_view line) {
      const uint64_t hash = hash_of(line);
      last_ = {.begin = position_ + (line.data() - text.data()), .size = std::ssize(line)};
      if (same && line_number < seen_.size() && seen_[line_number] == hash) {
        ++line_number;
        return;
      }
      if (same) seen_.resize(std::min(line_number, seen_.size()));
      same = false;
      ++line_number;
      seen_.push_back(hash);
      if (auto entry = entry_of(line)) fresh.push_back(std::move(*entry));
    });
    position_ += static_cast<int64_t>(text.size());
  }
  if (same) seen_.resize(std::min(line_number, seen_.size()));
  return fresh;
}

bool MetricsTail::has_last_line() const {
  return seen_.empty() || hash_of(bytes_of(file_, last_.begin, last_.size)) == seen_.back();
}

MetricsPart read_metrics(const std::filesystem::path& file, int64_t from, int64_t most_bytes) {
  MetricsPart part{.lines = json::array(), .next = from};
  const std::string text = complete_lines(file, from, most_bytes);
  part.next += static_cast<int64_t>(text.size());
  each_line(text, [&](std::string_view line) {
    if (auto entry = entry_of(line)) part.lines.push_back(std::move(*entry));
  });
  return part;
}

}  // namespace adjoint
