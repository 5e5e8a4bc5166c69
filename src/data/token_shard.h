// Tokens that lie in a mapped file or in memory, with the ends of their documents. A shard of ours:
//
//   64 bytes  header (ShardHeader): sizes, and hashes of what it was made of and of what it holds
//   tokens    uint16 or uint32; the highest bit says that the model did not write it, if any has it
//   zeros     up to a multiple of 8 bytes
//   ends      uint64 each: behind the last token of a document
//
// Also read as they are: nanoGPT's .bin files (uint16 without a header) and llm.c's (256 int32:
// 20240520, version 1, number of tokens; then uint16; or 20240801, version 7, and uint32).
#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace adjoint {

class MappedFile;

class TokenShard {
 public:
  // Holds them in memory; tokens may have kNotTrained.
  TokenShard(std::vector<uint32_t> tokens, std::vector<int64_t> ends);
  // A file of ours. Sizes and hashes that do not agree with the file are refused before anything is
  // read by them.
  explicit TokenShard(const std::filesystem::path& file);
  // A file of nanoGPT's or llm.c's, which is read once: a document ends behind `border`, if given.
  TokenShard(const std::filesystem::path& file, std::optional<int32_t> border);
  ~TokenShard();
  TokenShard(const TokenShard&) = delete;
  TokenShard& operator=(const TokenShard&) = delete;

  int64_t size() const { return size_; }  // in tokens
  std::span<const int64_t> ends() const { return ends_; }
  bool tells_documents() const { return tells_documents_; }  // it is known where they end
  bool marked() const { return marked_; }                    // some token has kNotTrained
  int64_t largest() const { return largest_; }               // of the ids; -1: there is no token
  // Ids, with kNotTrained where a token has it.
  void copy(int64_t start, int64_t count, uint32_t* to) const noexcept;

  // Of a file of ours, which is one of several that a source was written to.
  int64_t chunks() const { return chunks_; }  // how many chunks of the source came up to its end
  bool last() const { return last_; }
  uint64_t made_of() const { return made_of_; }
  int64_t bad_lines() const { return bad_lines_; }  // in the source up to its end

 private:
  std::unique_ptr<MappedFile> file_;
  std::vector<uint32_t> held_;
  std::vector<int64_t> held_ends_;
  const std::byte* data_ = nullptr;
  int64_t size_ = 0, largest_ = -1, chunks_ = 0, bad_lines_ = 0;
  std::span<const int64_t> ends_;
  bool wide_ = true, marked_ = false, last_ = true, tells_documents_ = true;
  uint64_t made_of_ = 0;
};

// What a shard's file says of itself beside its tokens.
struct ShardOrigin {
  uint64_t made_of = 0;  // hash of the source, the tokenizer and the options
  int64_t chunks = 0, bad_lines = 0;
  bool last = true;
};

// Writes a shard's file; whoever dies meanwhile leaves no half of it under that name.
void write_shard(const std::filesystem::path& file, std::span<const uint32_t> tokens,
                 std::span<const int64_t> ends, const ShardOrigin& origin);

}  // namespace adjoint
