#include "data/token_stream.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <deque>
#include <future>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/file_view.h"
#include "base/hash.h"

namespace adjoint {

namespace fs = std::filesystem;

void TokenStream::add(std::shared_ptr<const TokenShard> shard) {
  if (shard->size() == 0) return;
  begins_.push_back(size() + shard->size());
  shards_.push_back(std::move(shard));
}

void TokenStream::add(const TokenStream& other) {
  for (const auto& shard : other.shards_) add(shard);
}

bool TokenStream::marked() const {
  return std::any_of(shards_.begin(), shards_.end(), [](const auto& s) { return s->marked(); });
}

bool TokenStream::tells_documents() const {
  return std::all_of(shards_.begin(), shards_.end(),
                     [](const auto& s) { return s->tells_documents(); });
}

int64_t TokenStream::num_documents() const {
  int64_t count = 0;
  for (const auto& shard : shards_) count += static_cast<int64_t>(shard->ends().size());
  return count;
}

int64_t TokenStream::largest() const {
  int64_t largest = -1;
  for (const auto& shard : shards_) largest = std::max(largest, shard->largest());
  return largest;
}

size_t TokenStream::shard_at(int64_t token) const noexcept {
  return static_cast<size_t>(std::upper_bound(begins_.begin(), begins_.end(), token) -
                             begins_.begin() - 1);
}

void TokenStream::copy(int64_t start, int64_t count, uint32_t* to) const noexcept {
  for (size_t i = shard_at(start); count > 0; ++i) {
    const int64_t here = std::min(count, begins_[i + 1] - start);
    shards_[i]->copy(start - begins_[i], here, to);
    to += here;
    start += here;
    count -= here;
  }
}

int64_t TokenStream::end_behind(int64_t at) const noexcept {
  for (size_t i = shard_at(at); i < shards_.size(); ++i) {
    const auto ends = shards_[i]->ends();
    const auto found = std::upper_bound(ends.begin(), ends.end(), at - begins_[i]);
    if (found != ends.end()) return begins_[i] + *found;
  }
  return size();
}

namespace {

// Only one process at a time tokenizes into a cache: it uses all cores, and the next one finds the
// shards that it wrote.
class CacheLock {
 public:
  explicit CacheLock(const fs::path& folder) {
    std::error_code error;
    fs::create_directories(checked_output(folder), error);
    const fs::path path = checked_output(folder / "lock");
    file_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (file_ < 0) fail_to_write(path, errno);
    while (::flock(file_, LOCK_EX) != 0) {
      if (errno == EINTR) continue;
      const int why = errno;
      ::close(file_);
      fail_to_write(path, why);
    }
  }
  ~CacheLock() { ::close(file_); }
  CacheLock(const CacheLock&) = delete;
  CacheLock& operator=(const CacheLock&) = delete;

 private:
  int file_;
};

// Shards of a source in a cache: HASH.0.tokens, HASH.1.tokens, ...
class ShardFiles {
 public:
  ShardFiles(fs::path folder, uint64_t made_of) : folder_(std::move(folder)), made_of_(made_of) {}

  fs::path path(int64_t part) const {
    return folder_ / fmt::format("{:016x}.{}.tokens", made_of_, part);
  }
  // Null when there is none, or one that cannot be used and was removed.
  std::shared_ptr<const TokenShard> find(int64_t part, bool may_remove) const {
    const fs::path file = path(part);
    std::error_code ignored;
    if (!fs::exists(file, ignored)) return nullptr;
    try {
      auto shard = std::make_shared<const TokenShard>(file);
      if (shard->made_of() == made_of_) return shard;
    } catch (const Error&) {
      if (!may_remove) return nullptr;
    }
    if (may_remove) fs::remove(file, ignored);
    return nullptr;
  }
  // What writers left that died; only whoever holds the lock knows that they did.
  void remove_leftovers() const {
    std::error_code ignored;
    for (const fs::directory_entry& entry : fs::directory_iterator(folder_, ignored)) {
      const std::string name = entry.path().filename().string();
      const size_t end = name.find(".tokens");
      if (end == name.npos) continue;
      const fs::path shard = folder_ / name.substr(0, end + 7);
      if (AtomicFile::is_temporary_of(shard, entry.path())) fs::remove(entry.path(), ignored);
    }
  }

 private:
  fs::path folder_;
  uint64_t made_of_;
};

// The shards that are there, in order; `complete` when they are all.
struct FoundShards {
  std::vector<std::shared_ptr<const TokenShard>> shards;
  bool complete = false;
};
FoundShards find_shards(const ShardFiles& files, bool may_remove) {
  FoundShards found;
  while (!found.complete) {
    auto shard = files.find(static_cast<int64_t>(found.shards.size()), may_remove);
    if (!shard) break;
    found.complete = shard->last();
    found.shards.push_back(std::move(shard));
  }
  return found;
}

// Takes tokenized chunks in order; gives shards.
class ShardMaker {
 public:
  ShardMaker(FoundShards& found, const ShardFiles* files, uint64_t made_of, int64_t limit)
      : found_(found), files_(files), limit_(limit), origin_{.made_of = made_of, .last = false} {
    if (found.shards.empty()) return;
    origin_.chunks = found.shards.back()->chunks();
    origin_.bad_lines = found.shards.back()->bad_lines();
  }

  void add(const TokenizedChunk& chunk) {
    // Only now, because an end of a document may come without tokens behind the last one.
    if (files_ && !chunk.tokens.empty() && static_cast<int64_t>(tokens_.size()) >= limit_) flush();
    const auto before = static_cast<int64_t>(tokens_.size());
    tokens_.insert(tokens_.end(), chunk.tokens.begin(), chunk.tokens.end());
    for (const int64_t end : chunk.ends) {
      if (before + end > (ends_.empty() ? 0 : ends_.back())) ends_.push_back(before + end);
    }
    ++origin_.chunks;
    origin_.bad_lines += chunk.bad_lines;
  }
  void finish() {
    origin_.last = true;
    flush();
  }
  int64_t bad_lines() const { return origin_.bad_lines; }

 private:
  void flush() {
    if (!files_) {
      found_.shards.push_back(
          std::make_shared<const TokenShard>(std::move(tokens_), std::move(ends_)));
    } else {
      const fs::path path = files_->path(static_cast<int64_t>(found_.shards.size()));
      write_shard(path, tokens_, ends_, origin_);
      found_.shards.push_back(std::make_shared<const TokenShard>(path));
    }
    tokens_.clear();
    ends_.clear();
  }

  FoundShards& found_;
  const ShardFiles* files_;
  int64_t limit_;
  ShardOrigin origin_;
  std::vector<uint32_t> tokens_;
  std::vector<int64_t> ends_;
};

// Chunks are tokenized on threads of their own, some ahead of the one whose turn it is.
void tokenize_files(std::span<const DataFile> files, const TokenizeOptions& options,
                    int64_t skipped, ShardMaker& maker) {
  ChunkReader reader(files, options.chunk_bytes, options.documents.tokenizer->cuts_at_lines());
  for (int64_t i = 0; i < skipped; ++i) reader.next();
  std::deque<std::future<TokenizedChunk>> ahead;
  const auto most = static_cast<size_t>(2 * std::max(1, options.threads));
  while (true) {
    auto chunk = reader.next();
    if (!chunk && ahead.empty()) return;
    if (chunk) {
      ahead.push_back(std::async(std::launch::async, [chunk = std::move(*chunk), &options] {
        return tokenize(chunk, options.documents);
      }));
      if (options.told) options.told(reader.bytes_read());
      if (ahead.size() < most) continue;
    }
    maker.add(ahead.front().get());
    ahead.pop_front();
  }
}

// Files of one kind lie side by side: those of tokens are read as they are. Calls visit(files).
template <class Visit>
void for_each_kind(const DataSource& source, const Visit& visit) {
  for (size_t at = 0; at < source.files.size();) {
    const auto same = [&](const DataFile& file) {
      return (file.kind == DataKind::kTokens) == (source.files[at].kind == DataKind::kTokens);
    };
    const auto end = std::find_if_not(source.files.begin() + static_cast<std::ptrdiff_t>(at),
                                      source.files.end(), same);
    const std::span files(source.files.begin() + static_cast<std::ptrdiff_t>(at), end);
    at += files.size();
    visit(files);
  }
}

uint64_t hash_of_tokens(std::span<const DataFile> files, const TokenizeOptions& options) {
  const uint64_t parts[] = {hash_of_files(files), options.documents_hash,
                            static_cast<uint64_t>(options.documents.skip_bad)};
  return hash_of(parts, sizeof parts);
}

// Finds documents by going through a source as it was tokenized.
class DocumentFinder {
 public:
  DocumentFinder(const TokenizeOptions& options, std::span<const int64_t> tokens)
      : options_(options), tokens_(tokens) {}

  bool is_done() const { return found_.size() == tokens_.size(); }
  // The next so many tokens are a file's.
  void pass_tokens(const DataFile& file, int64_t count) {
    while (is_within(count)) found_.push_back({file.path});
    before_ += count;
  }
  // The next tokens were made of these files. A shard that holds none of those wanted is passed by.
  void pass_texts(std::span<const DataFile> files) {
    ChunkReader reader(files, options_.chunk_bytes);
    std::vector<std::shared_ptr<const TokenShard>> shards;
    if (!options_.cache.empty()) {
      shards = find_shards({options_.cache, hash_of_tokens(files, options_)}, false).shards;
    }
    int64_t chunks = 0;
    for (const auto& shard : shards) {
      const bool wanted = is_within(shard->size());
      if (!wanted) before_ += shard->size();
      for (; chunks < shard->chunks() && !is_done(); ++chunks) {
        if (!pass(reader, wanted)) return;
      }
    }
    while (shards.empty() && pass(reader, true)) {
    }
  }
  std::vector<DocumentPlace> found() && {
    found_.resize(tokens_.size());
    return std::move(found_);
  }

 private:
  bool is_within(int64_t count) const {
    return !is_done() && tokens_[found_.size()] < before_ + count;
  }
  bool pass(ChunkReader& reader, bool wanted) {
    if (is_done() || reader.bytes_read() > kMostLookedAt) return false;
    const auto chunk = reader.next();
    if (!chunk) return false;
    if (!wanted) return true;
    const TokenizedChunk made = tokenize(*chunk, options_.documents);
    const auto size = static_cast<int64_t>(made.tokens.size());
    while (is_within(size)) {
      const int64_t token = tokens_[found_.size()] - before_;
      const auto document =
          std::upper_bound(made.ends.begin(), made.ends.end(), token) - made.ends.begin();
      found_.push_back({chunk->file->path, made.lines.empty() ? 0 : made.lines[document]});
    }
    before_ += size;
    return true;
  }

  const TokenizeOptions& options_;
  std::span<const int64_t> tokens_;
  std::vector<DocumentPlace> found_;
  int64_t before_ = 0;  // tokens that were passed
};

}  // namespace

TokenizedSource tokenize_source(const DataSource& source, const TokenizeOptions& options) {
  TokenizedSource made;
  for_each_kind(source, [&](std::span<const DataFile> files) {
    if (files[0].kind == DataKind::kTokens) {
      for (const DataFile& file : files) {
        made.tokens.add(std::make_shared<const TokenShard>(file.path, options.border));
      }
      return;
    }
    FoundShards found;
    if (options.cache.empty()) {
      ShardMaker maker(found, nullptr, 0, options.shard_tokens);
      tokenize_files(files, options, 0, maker);
      maker.finish();
      made.bad_lines += maker.bad_lines();
    } else {
      const uint64_t made_of = hash_of_tokens(files, options);
      const ShardFiles cached(options.cache, made_of);
      found = find_shards(cached, false);
      if (!found.complete) {
        const CacheLock lock(options.cache);
        cached.remove_leftovers();
        found = find_shards(cached, true);
        if (!found.complete) {
          ShardMaker maker(found, &cached, made_of, options.shard_tokens);
          const int64_t skipped = found.shards.empty() ? 0 : found.shards.back()->chunks();
          tokenize_files(files, options, skipped, maker);
          maker.finish();
        }
      }
      made.bad_lines += found.shards.back()->bad_lines();
    }
    for (auto& shard : found.shards) made.tokens.add(std::move(shard));
  });
  if (made.tokens.size() == 0) fail(source.said, ": this source is empty: it has no tokens");
  return made;
}

std::vector<DocumentPlace> find_documents(const DataSource& source, const TokenizeOptions& options,
                                          std::span<const int64_t> tokens) {
  DocumentFinder finder(options, tokens);
  for_each_kind(source, [&](std::span<const DataFile> files) {
    if (files[0].kind != DataKind::kTokens) return finder.pass_texts(files);
    for (const DataFile& file : files) {
      if (finder.is_done()) return;
      finder.pass_tokens(file, TokenShard(file.path, options.border).size());
    }
  });
  return std::move(finder).found();
}

}  // namespace adjoint
