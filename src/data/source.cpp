#include "data/source.h"

#include <fnmatch.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <utility>

#include "base/error.h"
#include "base/file_view.h"
#include "base/hash.h"
#include "base/near_path.h"
#include "base/text.h"
#include "data/byte_reader.h"
#include "data/mapped_file.h"

namespace adjoint {

namespace fs = std::filesystem;

namespace {

// What a folder's files are read for; a file that is named itself may be called anything.
const std::vector<std::string> kEndings = {".txt", ".md", ".jsonl", ".ndjson", ".bin"};

bool is_pattern(std::string_view text) { return text.find_first_of("*?[") != text.npos; }

std::vector<fs::path> parts_of(const fs::path& path) { return {path.begin(), path.end()}; }

// `**` stands for any number of folders, also none.
bool matches(std::span<const fs::path> pattern, std::span<const fs::path> path) {
  if (pattern.empty()) return path.empty();
  if (pattern[0] == "**") {
    for (size_t skipped = 0; skipped <= path.size(); ++skipped) {
      if (matches(pattern.subspan(1), path.subspan(skipped))) return true;
    }
    return false;
  }
  return !path.empty() && ::fnmatch(pattern[0].c_str(), path[0].c_str(), FNM_PERIOD) == 0 &&
         matches(pattern.subspan(1), path.subspan(1));
}

template <class Wanted>
std::vector<DataFile> files_under(const fs::path& folder, const Wanted& wanted) {
  std::vector<DataFile> files;
  const auto options = fs::directory_options::skip_permission_denied |
                       fs::directory_options::follow_directory_symlink;
  for (fs::recursive_directory_iterator each(folder, options), end; each != end; ++each) {
    const fs::directory_entry& entry = *each;
    if (entry.is_symlink() && !is_visible(entry.path())) each.disable_recursion_pending();
    if (!wanted(entry.path()) || !fs::is_regular_file(checked_path(entry.path()))) continue;
    files.push_back({.path = entry.path(), .kind = kind_of(entry.path())});
  }
  std::sort(files.begin(), files.end(),
            [](const DataFile& a, const DataFile& b) { return a.path < b.path; });
  return files;
}

std::vector<DataFile> files_of(const std::string& said) {
  std::error_code ignored;
  if (fs::is_directory(checked_path(said), ignored)) {
    check_may_enter(said);
    auto files = files_under(said, [](const fs::path& path) {
      const std::string ending = without_compression(path).extension().string();
      return std::find(kEndings.begin(), kEndings.end(), ending) != kEndings.end();
    });
    if (files.empty()) {
      fail(said, ": this folder has no data: wanted files that end in ", join(kEndings, ", "),
           ", maybe with .gz or .zst behind");
    }
    return files;
  }
  if (fs::exists(said, ignored) || !is_pattern(said)) {
    if (!fs::exists(said, ignored)) fail_no_file(said);
    return {{.path = said, .kind = kind_of(said)}};
  }
  fs::path folder;
  std::vector<fs::path> pattern;
  for (const fs::path& part : fs::path(said)) {
    if (pattern.empty() && !is_pattern(part.string())) {
      folder /= part;
    } else {
      pattern.push_back(part);
    }
  }
  if (folder.empty()) folder = ".";
  check_may_enter(folder);
  if (!fs::is_directory(folder, ignored)) {
    fail(said, ": there is no folder ", folder.string(), did_you_mean_path(folder));
  }
  auto files = files_under(folder, [&](const fs::path& path) {
    return matches(pattern, parts_of(path.lexically_relative(folder)));
  });
  if (files.empty()) fail(said, ": no file is called so");
  return files;
}

}  // namespace

DataKind kind_of(const fs::path& path) {
  const std::string ending = without_compression(path).extension().string();
  if (ending == ".jsonl" || ending == ".ndjson") return DataKind::kJsonLines;
  // Those are mapped, so they are not compressed.
  if (path.extension() == ".bin") return DataKind::kTokens;
  if (path.extension() == ".safetensors") return DataKind::kFields;
  return DataKind::kText;
}

DataSource find_source(const std::string& said) {
  DataSource source{.said = said, .weight = {}, .files = {}};
  std::error_code ignored;
  const size_t colon = said.rfind(':');
  if (colon != said.npos && !fs::exists(said, ignored)) {
    const std::string text = said.substr(colon + 1);
    double weight = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), weight);
    if (error == std::errc() && end == text.data() + text.size()) {
      if (!(weight > 0 && std::isfinite(weight))) {
        fail("--data ", said, ": wanted a weight above 0 behind the colon, found ", text);
      }
      source.said = said.substr(0, colon);
      source.weight = weight;
    }
  }
  if (source.said.empty()) fail("--data ", said, ": wanted a file, a folder or a pattern");
  source.files = files_of(source.said);
  return source;
}

std::vector<DataSource> find_sources(std::span<const std::string> said) {
  std::vector<DataSource> sources;
  for (const std::string& one : said) sources.push_back(find_source(one));
  for (const DataSource& source : sources) {
    if (source.weight.has_value() != sources[0].weight.has_value()) {
      fail("--data ", sources[0].said, " and ", source.said,
           ": either all sources have a weight (PATH:WEIGHT) or none has");
    }
    for (const DataFile& file : source.files) {
      if (file.kind != DataKind::kFields || (sources.size() == 1 && source.files.size() == 1)) {
        continue;
      }
      fail(file.path.string(), ": a file of fields is the only data of a run, found ",
           sources.size(), " sources and ", source.files.size(), " files");
    }
  }
  return sources;
}

uint64_t hash_of_file(const fs::path& path) {
  constexpr int64_t kReadWhole = int64_t{1} << 28, kPieces = 1024, kPiece = int64_t{1} << 16;
  const MappedFile file(path);
  const int64_t size = file.size().count;
  if (size <= kReadWhole) return hash_of(file.data(), static_cast<size_t>(size));
  uint64_t hash = hash_of(&size, sizeof size);
  for (int64_t i = 0; i < kPieces; ++i) {
    hash = hash_of(file.data() + (size - kPiece) / (kPieces - 1) * i, kPiece, hash);
  }
  return hash;
}

uint64_t hash_of_files(std::span<const DataFile> files) {
  // A file alone is told by its own hash, as runs have done from the beginning.
  if (files.size() == 1) return hash_of_file(files[0].path);
  uint64_t hash = files.size();
  for (const DataFile& file : files) {
    const uint64_t part[] = {hash_of_file(file.path), static_cast<uint64_t>(file.kind)};
    hash = hash_of(part, sizeof part, hash);
  }
  return hash;
}

}  // namespace adjoint
