// Rows of a batch from a stream of tokens. Every row is a range of the stream, one token behind the
// other, however documents are packed:
//
//   crops      begin anywhere
//   windows    lie one behind the other
//   documents  hold whole documents, as many as fit; the rest of the row counts for nothing
//   padded     hold one document each
//
// A document that is longer than a row is cut into several.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "data/batches.h"
#include "data/token_stream.h"

namespace adjoint {

enum class Packing : uint8_t { kCrops, kWindows, kDocuments, kPadded };

inline bool packs_documents(Packing packing) { return packing >= Packing::kDocuments; }

struct TextRowsOptions {
  Packing packing = Packing::kCrops;
  int64_t begin = 0, end = 0;  // of the stream; of whole documents, if those are packed
  int64_t context = 0;
  int32_t ignored = -1;  // the target that counts for nothing
  bool apart = false;    // no document sees another: none's last token has a target
};

class TextRows : public Samples {
 public:
  // Positions count from 0 in each document, or in what a row has of it.
  enum class Entry : uint8_t { kTokens, kTargets, kSegments, kPositions };

  // The fields of a row, in this order. Counts 0 where the range holds no sample.
  TextRows(TokenStream stream, TextRowsOptions options, std::vector<Entry> entries);

  int64_t count() const override;
  void fill(int64_t index, std::span<std::byte* const> to) const noexcept override;
  int64_t count_in_order() const override;
  int64_t nth_in_order(int64_t n) const override;
  Tokens tokens_of(int64_t index) const override;

 private:
  void pack();

  TokenStream stream_;
  TextRowsOptions options_;
  std::vector<Entry> entries_;
  std::vector<int64_t> rows_;  // where rows of documents begin, and the end of the last
};

}  // namespace adjoint
