#include "data/token_shard.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "data/documents.h"
#include "data/mapped_file.h"

namespace adjoint {

namespace fs = std::filesystem;

namespace {

constexpr uint64_t kMagic = 0x31'4b'4f'54'4a'44'41;  // "ADJTOK1"
constexpr uint32_t kNarrowMark = 0x8000;
constexpr int64_t kMaxTokens = int64_t{1} << 40;  // sizes below this cannot overflow

struct ShardHeader {
  uint64_t magic = kMagic;
  uint16_t bytes_per_token = 4;
  uint8_t marked = 0, last = 1;
  uint32_t largest = 0;
  int64_t tokens = 0, documents = 0, chunks = 0, bad_lines = 0;
  uint64_t made_of = 0;
  uint64_t hash = 0;  // of everything before it, and of the rest of the file
};
static_assert(sizeof(ShardHeader) == 64);

int64_t padded(int64_t bytes) { return (bytes + 7) / 8 * 8; }

// Of a large file only pieces, so that opening a corpus does not read it.
uint64_t hash_of_pieces(const std::byte* data, int64_t size, uint64_t seed) {
  constexpr int64_t kReadWhole = int64_t{1} << 24, kPieces = 64, kPiece = int64_t{1} << 16;
  if (size <= kReadWhole) return hash_of(data, static_cast<size_t>(size), seed);
  for (int64_t i = 0; i < kPieces; ++i) {
    seed = hash_of(data + (size - kPiece) / (kPieces - 1) * i, kPiece, seed);
  }
  return seed;
}

uint64_t hash_of_shard(const ShardHeader& header, const std::byte* tokens, int64_t token_bytes,
                       std::span<const int64_t> ends) {
  uint64_t hash = hash_of(&header, offsetof(ShardHeader, hash));
  hash = hash_of_pieces(tokens, token_bytes, hash);
  return hash_of_pieces(reinterpret_cast<const std::byte*>(ends.data()),
                        static_cast<int64_t>(ends.size_bytes()), hash);
}

template <class T>
T number_at(const std::byte* data, int64_t i) {
  T value;
  std::memcpy(&value, data + i * static_cast<int64_t>(sizeof(T)), sizeof(T));
  return value;
}

}  // namespace

TokenShard::~TokenShard() = default;

TokenShard::TokenShard(std::vector<uint32_t> tokens, std::vector<int64_t> ends)
    : held_(std::move(tokens)),
      held_ends_(std::move(ends)),
      data_(reinterpret_cast<const std::byte*>(held_.data())),
      size_(static_cast<int64_t>(held_.size())),
      ends_(held_ends_) {
  for (const uint32_t token : held_) {
    marked_ |= (token & kNotTrained) != 0;
    largest_ = std::max<int64_t>(largest_, token & ~kNotTrained);
  }
}

TokenShard::TokenShard(const fs::path& path) : file_(std::make_unique<MappedFile>(path)) {
  const int64_t bytes = file_->size().count;
  const std::string name = path.string();
  ShardHeader header;
  if (bytes < static_cast<int64_t>(sizeof header)) {
    fail(name, ": a token shard has a header of ", sizeof header, " bytes, found ", bytes,
         " in all");
  }
  std::memcpy(&header, file_->data(), sizeof header);
  if (header.magic != kMagic) fail(name, ": this is not a token shard");
  const bool sizes = (header.bytes_per_token == 2 || header.bytes_per_token == 4) &&
                     header.tokens >= 0 && header.tokens <= kMaxTokens && header.documents >= 0 &&
                     header.documents <= header.tokens && header.chunks >= 0 &&
                     header.bad_lines >= 0 && header.marked <= 1 && header.last <= 1 &&
                     header.largest < kNotTrained;
  const int64_t token_bytes = sizes ? header.tokens * header.bytes_per_token : 0;
  const int64_t wanted = static_cast<int64_t>(sizeof header) + padded(token_bytes) +
                         8 * (sizes ? header.documents : 0);
  if (!sizes || wanted != bytes) {
    fail(name, ": its header says ", header.tokens, " tokens of ", header.bytes_per_token,
         " bytes and ", header.documents, " documents, which ", bytes, " bytes do not hold");
  }
  data_ = file_->data() + sizeof header;
  ends_ = {reinterpret_cast<const int64_t*>(data_ + padded(token_bytes)),
           static_cast<size_t>(header.documents)};
  if (header.hash != hash_of_shard(header, data_, token_bytes, ends_)) {
    fail(name, ": this token shard is damaged (its hash differs); remove it");
  }
  int64_t before = 0;
  for (const int64_t end : ends_) {
    if (end <= before || end > header.tokens) {
      fail(name, ": a document ends at token ", end, ", wanted ", before + 1, " to ",
           header.tokens);
    }
    before = end;
  }
  size_ = header.tokens;
  wide_ = header.bytes_per_token == 4;
  marked_ = header.marked;
  last_ = header.last;
  largest_ = size_ > 0 ? header.largest : -1;
  chunks_ = header.chunks;
  bad_lines_ = header.bad_lines;
  made_of_ = header.made_of;
}

TokenShard::TokenShard(const fs::path& path, std::optional<int32_t> border)
    : file_(std::make_unique<MappedFile>(path)) {
  constexpr int64_t kHeaderNumbers = 256, kHeader = 4 * kHeaderNumbers;
  const std::string name = path.string();
  const int64_t bytes = file_->size().count;
  data_ = file_->data();
  int64_t token_bytes = bytes;
  const int32_t magic = bytes >= 12 ? number_at<int32_t>(data_, 0) : 0;
  const int32_t version = bytes >= 12 ? number_at<int32_t>(data_, 1) : 0;
  const bool gpt2 = magic == 20240520, llama3 = magic == 20240801;
  wide_ = llama3;
  if (gpt2 || llama3) {
    const int32_t wanted_version = gpt2 ? 1 : 7;
    if (version != wanted_version) {
      fail(name, ": wanted version ", wanted_version, " of llm.c's tokens, found ", version);
    }
    const int64_t said = number_at<int32_t>(data_, 2);
    token_bytes = bytes - kHeader;
    if (said < 0 || token_bytes < 0 || said * (wide_ ? 4 : 2) != token_bytes) {
      fail(name, ": its header says ", said, " tokens, but behind ", kHeader,
           " bytes of header there are ", std::max<int64_t>(token_bytes, 0), " bytes");
    }
    data_ += kHeader;
  } else if (bytes % 2) {
    fail(name, ": a .bin file holds tokens of 2 bytes each, found ", bytes, " bytes");
  }
  size_ = token_bytes / (wide_ ? 4 : 2);
  if (size_ == 0) fail(name, ": this file has no tokens");
  for (int64_t i = 0; i < size_; ++i) {
    const uint32_t id = wide_ ? number_at<uint32_t>(data_, i) : number_at<uint16_t>(data_, i);
    if (id >= kNotTrained) fail(name, ": token ", i, " is ", id, ", wanted an id below 2^31");
    largest_ = std::max<int64_t>(largest_, id);
    if (border && id == static_cast<uint32_t>(*border)) held_ends_.push_back(i + 1);
  }
  if (border && (held_ends_.empty() || held_ends_.back() != size_)) held_ends_.push_back(size_);
  ends_ = held_ends_;
  tells_documents_ = border.has_value();
}

// No id above what the header says: of a large file only pieces were hashed, and whoever reads the
// ids takes rows of a table by them.
void TokenShard::copy(int64_t start, int64_t count, uint32_t* to) const noexcept {
  const auto largest = static_cast<uint32_t>(largest_);
  const auto put = [&](int64_t i, uint32_t token, uint32_t mark) {
    to[i] = std::min(token & ~mark, largest) | (token & mark ? kNotTrained : 0);
  };
  if (wide_) {
    for (int64_t i = 0; i < count; ++i) put(i, number_at<uint32_t>(data_, start + i), kNotTrained);
    return;
  }
  const uint32_t mark = marked_ ? kNarrowMark : 0;
  for (int64_t i = 0; i < count; ++i) put(i, number_at<uint16_t>(data_, start + i), mark);
}

void write_shard(const fs::path& path, std::span<const uint32_t> tokens,
                 std::span<const int64_t> ends, const ShardOrigin& origin) {
  ShardHeader header{.last = origin.last,
                     .tokens = static_cast<int64_t>(tokens.size()),
                     .documents = static_cast<int64_t>(ends.size()),
                     .chunks = origin.chunks,
                     .bad_lines = origin.bad_lines,
                     .made_of = origin.made_of};
  for (const uint32_t token : tokens) {
    header.marked |= (token & kNotTrained) != 0;
    header.largest = std::max(header.largest, token & ~kNotTrained);
  }
  const bool wide = header.largest >= (header.marked ? kNarrowMark : 2 * kNarrowMark);
  header.bytes_per_token = wide ? 4 : 2;
  std::vector<std::byte> bytes(padded(header.tokens * header.bytes_per_token));
  if (wide) {
    std::copy_n(reinterpret_cast<const std::byte*>(tokens.data()), tokens.size_bytes(),
                bytes.data());
  } else {
    auto* narrow = reinterpret_cast<uint16_t*>(bytes.data());
    for (size_t i = 0; i < tokens.size(); ++i) {
      const uint32_t mark = tokens[i] & kNotTrained ? kNarrowMark : 0;
      narrow[i] = static_cast<uint16_t>((tokens[i] & ~kNotTrained) | mark);
    }
  }
  header.hash = hash_of_shard(header, bytes.data(), header.tokens * header.bytes_per_token, ends);
  AtomicFile file(path);
  file.write(&header, {sizeof header});
  file.write(bytes.data(), {static_cast<int64_t>(bytes.size())});
  file.write(ends.data(), {static_cast<int64_t>(ends.size_bytes())});
  file.commit();
}

}  // namespace adjoint
