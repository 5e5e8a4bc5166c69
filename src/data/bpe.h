// Byte-pair merges, the core of every such tokenizer: of all neighbours that are a pair of the
// table the one of lowest rank becomes one token, the leftmost first, until no pair is left. A
// short piece looks for the lowest rank each time, which is fastest; a long one keeps a heap, so
// that a megabyte without a blank takes n log n and not n^2.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace adjoint {

struct Merge {
  int32_t left, right;
  int32_t to;
  bool operator==(const Merge&) const = default;
};

class Merger {
 public:
  // In order of rank. Of a pair that is there twice the last one counts.
  explicit Merger(std::span<const Merge> merges);

  // Merges the tokens in place.
  void merge(std::vector<int32_t>& tokens) const;

 private:
  static constexpr uint32_t kNoRank = UINT32_MAX;
  struct Entry {
    uint64_t pair = UINT64_MAX;
    uint32_t rank = kNoRank;
    int32_t to = -1;
  };

  static uint64_t pair_of(int32_t left, int32_t right) {
    return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
  }
  // The entry of a pair, or one without a rank.
  const Entry& find(int32_t left, int32_t right) const;
  void merge_short(std::vector<int32_t>& tokens) const;
  void merge_long(std::vector<int32_t>& tokens) const;

  std::vector<Entry> table_;  // by hash, the next free place where one is taken
  int shift_ = 0;
};

// The merges of ranked byte strings (`tokens` in order of rank, all bytes among them; an empty
// entry is no token). Rank files mean that any two neighbours are merged that become a token, the
// lowest rank first. If a token's own bytes become two tokens by lower ranks alone, then it only
// ever comes of these two: what lies inside it is merged as it would be by itself, and then its own
// rank is the next. So it has one merge. A token whose bytes become more than two (ranks that were
// edited) has a merge for every two tokens that it could come of.
std::vector<Merge> merges_of_ranks(const std::vector<std::string>& tokens);

}  // namespace adjoint
