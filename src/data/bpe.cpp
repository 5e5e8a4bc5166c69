#include "data/bpe.h"

#include <bit>
#include <functional>
#include <queue>
#include <string_view>
#include <unordered_map>

#include "base/error.h"

namespace adjoint {

namespace {

// Above this a heap is faster than looking at all pairs for every merge.
constexpr size_t kShortPiece = 64;

uint64_t scrambled(uint64_t pair) { return pair * 0x9E3779B97F4A7C15u; }

}  // namespace

Merger::Merger(std::span<const Merge> merges) {
  const size_t size = std::bit_ceil(merges.size() * 2 + 2);
  shift_ = 64 - std::countr_zero(size);
  table_.resize(size);
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    const Merge& merge = merges[rank];
    const uint64_t pair = pair_of(merge.left, merge.right);
    size_t at = scrambled(pair) >> shift_;
    while (table_[at].rank != kNoRank && table_[at].pair != pair) at = (at + 1) & (size - 1);
    table_[at] = {pair, static_cast<uint32_t>(rank), merge.to};
  }
}

const Merger::Entry& Merger::find(int32_t left, int32_t right) const {
  const uint64_t pair = pair_of(left, right);
  size_t at = scrambled(pair) >> shift_;
  while (table_[at].rank != kNoRank && table_[at].pair != pair) at = (at + 1) & (table_.size() - 1);
  return table_[at];
}

void Merger::merge(std::vector<int32_t>& tokens) const {
  if (tokens.size() < 2) return;
  tokens.size() <= kShortPiece ? merge_short(tokens) : merge_long(tokens);
}

void Merger::merge_short(std::vector<int32_t>& tokens) const {
  const Entry* pairs[kShortPiece];  // of token i and the next
  size_t num = tokens.size();
  for (size_t i = 0; i + 1 < num; ++i) pairs[i] = &find(tokens[i], tokens[i + 1]);
  while (num > 1) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < num; ++i) {
      if (pairs[i]->rank < pairs[best]->rank) best = i;
    }
    if (pairs[best]->rank == kNoRank) break;
    tokens[best] = pairs[best]->to;
    --num;
    for (size_t i = best + 1; i < num; ++i) {
      tokens[i] = tokens[i + 1];
      pairs[i - 1] = pairs[i];
    }
    if (best > 0) pairs[best - 1] = &find(tokens[best - 1], tokens[best]);
    if (best + 1 < num) pairs[best] = &find(tokens[best], tokens[best + 1]);
  }
  tokens.resize(num);
}

void Merger::merge_long(std::vector<int32_t>& tokens) const {
  CHECK(tokens.size() < UINT32_MAX, "a piece of text has more than 2^32 symbols");
  constexpr uint32_t none = UINT32_MAX;
  constexpr int32_t gone = -1;
  const auto num = static_cast<uint32_t>(tokens.size());
  std::vector<uint32_t> before(num), behind(num);
  std::priority_queue<uint64_t, std::vector<uint64_t>, std::greater<>> waiting;  // rank and place
  const auto consider = [&](uint32_t at) {
    if (at == none || behind[at] == none) return;
    const uint32_t rank = find(tokens[at], tokens[behind[at]]).rank;
    if (rank != kNoRank) waiting.push(static_cast<uint64_t>(rank) << 32 | at);
  };
  for (uint32_t i = 0; i < num; ++i) {
    before[i] = i == 0 ? none : i - 1;
    behind[i] = i + 1 == num ? none : i + 1;
  }
  for (uint32_t i = 0; i < num; ++i) consider(i);
  while (!waiting.empty()) {
    const auto at = static_cast<uint32_t>(waiting.top());
    const auto rank = static_cast<uint32_t>(waiting.top() >> 32);
    waiting.pop();
    if (tokens[at] == gone || behind[at] == none) continue;
    const uint32_t right = behind[at];
    const Entry& merge = find(tokens[at], tokens[right]);
    if (merge.rank != rank) continue;  // one of the two has grown since
    tokens[at] = merge.to;
    tokens[right] = gone;
    behind[at] = behind[right];
    if (behind[at] != none) before[behind[at]] = at;
    consider(before[at]);
    consider(at);
  }
  std::erase(tokens, gone);
}

std::vector<Merge> merges_of_ranks(const std::vector<std::string>& tokens) {
  std::unordered_map<std::string_view, uint32_t> rank_of;
  rank_of.reserve(tokens.size() * 2);
  for (size_t rank = 0; rank < tokens.size(); ++rank) {
    if (!tokens[rank].empty()) rank_of.emplace(tokens[rank], static_cast<uint32_t>(rank));
  }
  std::vector<Merge> merges;
  std::vector<size_t> ends;      // of the parts of a token; the first begins at 0
  std::vector<uint32_t> joined;  // the rank of part i with the next one
  for (size_t rank = 0; rank < tokens.size(); ++rank) {
    const std::string_view token = tokens[rank];
    if (token.size() < 2) continue;
    const auto part_rank = [&](size_t begin, size_t end) {
      const auto found = rank_of.find(token.substr(begin, end - begin));
      return found == rank_of.end() || found->second >= rank ? UINT32_MAX : found->second;
    };
    const auto begin_of = [&](size_t part) { return part == 0 ? 0 : ends[part - 1]; };
    ends.clear();
    joined.clear();
    for (size_t i = 0; i < token.size(); ++i) ends.push_back(i + 1);
    for (size_t i = 0; i + 1 < ends.size(); ++i) joined.push_back(part_rank(i, i + 2));
    while (ends.size() > 2) {
      size_t best = 0;
      for (size_t i = 1; i < joined.size(); ++i) {
        if (joined[i] < joined[best]) best = i;
      }
      if (joined[best] == UINT32_MAX) break;
      ends.erase(ends.begin() + static_cast<ptrdiff_t>(best));
      joined.erase(joined.begin() + static_cast<ptrdiff_t>(best));
      if (best > 0) joined[best - 1] = part_rank(begin_of(best - 1), ends[best]);
      if (best < joined.size()) joined[best] = part_rank(begin_of(best), ends[best + 1]);
    }
    for (size_t cut = 1; cut < token.size(); ++cut) {
      if (ends.size() == 2 && cut != ends[0]) continue;
      const auto left = rank_of.find(token.substr(0, cut));
      const auto right = rank_of.find(token.substr(cut));
      if (left == rank_of.end() || right == rank_of.end()) continue;
      merges.push_back({static_cast<int32_t>(left->second), static_cast<int32_t>(right->second),
                        static_cast<int32_t>(rank)});
    }
  }
  return merges;
}

}  // namespace adjoint
