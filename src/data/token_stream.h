// The tokens of shards one behind the other, as if they were one array.
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "data/documents.h"
#include "data/source.h"
#include "data/token_shard.h"

namespace adjoint {

class TokenStream {
 public:
  void add(std::shared_ptr<const TokenShard> shard);
  void add(const TokenStream& other);

  int64_t size() const { return begins_.back(); }
  bool marked() const;           // some tokens are not trained
  bool tells_documents() const;  // it is known where they end
  int64_t num_documents() const;
  int64_t largest() const;  // of the ids
  // Ids, with kNotTrained where a token has it.
  void copy(int64_t start, int64_t count, uint32_t* to) const noexcept;
  // The first end of a document behind token `at`; size() where there is none.
  int64_t end_behind(int64_t at) const noexcept;

 private:
  size_t shard_at(int64_t token) const noexcept;

  std::vector<std::shared_ptr<const TokenShard>> shards_;
  std::vector<int64_t> begins_ = {0};  // of each shard, and the end of all
};

struct TokenizeOptions {
  DocumentOptions documents = {};
  uint64_t documents_hash = 0;  // of the tokenizer and the template: other ones give other tokens
  std::filesystem::path cache = {};    // the folder of shards; empty: tokens are held in memory
  std::optional<int32_t> border = {};  // ends a document in a .bin file
  int threads = 1;
  // Told how many bytes of the source were read.
  std::function<void(int64_t)> told = {};
  int64_t shard_tokens = int64_t{1} << 25;  // as many are held while a shard is written
  size_t chunk_bytes = ChunkReader::kUsualChunk;
};

struct TokenizedSource {
  TokenStream tokens;
  int64_t bad_lines = 0;
};

// The tokens of a source's files: from the cache, if it has them, and else made, on several threads
// and in the files' order. Whoever is killed meanwhile goes on behind the last shard that was
// complete.
TokenizedSource tokenize_source(const DataSource& source, const TokenizeOptions& options);

// Where a document is.
struct DocumentPlace {
  std::filesystem::path file;  // "": it was not looked for
  int64_t line = 0;            // of JSON lines, from 1; of other files 0
};

// The documents that hold these tokens of a source, counted as tokenize_source made them and given
// in order. Nothing remembers it, so files are read again, and tokenized from the last shard on
// that ends before a token; those too far behind (kMostLookedAt bytes) are not looked for.
constexpr int64_t kMostLookedAt = int64_t{4} << 30;
std::vector<DocumentPlace> find_documents(const DataSource& source, const TokenizeOptions& options,
                                          std::span<const int64_t> tokens);

}  // namespace adjoint
