#include "data/text_rows.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace adjoint {

TextRows::TextRows(TokenStream stream, TextRowsOptions options, std::vector<Entry> entries)
    : stream_(std::move(stream)), options_(options), entries_(std::move(entries)) {
  if (packs_documents(options_.packing)) pack();
}

// Documents are taken in their order, so that a row is a range: this reads their ends alone.
void TextRows::pack() {
  const int64_t context = options_.context;
  rows_.push_back(options_.begin);
  for (int64_t begin = options_.begin; begin < options_.end;) {
    const int64_t end = stream_.end_behind(begin);
    const bool fits = end - rows_.back() <= context;
    if (rows_.back() < begin && (!fits || options_.packing == Packing::kPadded)) {
      rows_.push_back(begin);
    }
    while (end - rows_.back() > context) rows_.push_back(rows_.back() + context);
    begin = end;
  }
  if (rows_.back() < options_.end) rows_.push_back(options_.end);
}

int64_t TextRows::count() const {
  const int64_t tokens = options_.end - options_.begin;
  switch (options_.packing) {
    case Packing::kCrops:  // the last target must exist
      return std::max<int64_t>(tokens - options_.context, 0);
    case Packing::kWindows:
      return count_in_order();
    case Packing::kDocuments:
    case Packing::kPadded:
      break;
  }
  return static_cast<int64_t>(rows_.size()) - 1;
}

int64_t TextRows::count_in_order() const {
  if (packs_documents(options_.packing)) return count();
  return std::max<int64_t>(options_.end - options_.begin - 1, 0) / options_.context;
}

int64_t TextRows::nth_in_order(int64_t n) const {
  return options_.packing == Packing::kCrops ? n * options_.context : n;
}

Samples::Tokens TextRows::tokens_of(int64_t index) const {
  if (packs_documents(options_.packing)) {
    return {rows_[index], rows_[index + 1] - rows_[index]};
  }
  const int64_t apart = options_.packing == Packing::kWindows ? options_.context : 1;
  return {options_.begin + index * apart, options_.context};
}

void TextRows::fill(int64_t index, std::span<std::byte* const> to) const noexcept {
  const int64_t context = options_.context;
  const bool documents = packs_documents(options_.packing);
  const auto [first, size] = tokens_of(index);
  const bool ends_matter = documents || options_.apart;
  for (size_t i = 0; i < entries_.size(); ++i) {
    auto* const row = reinterpret_cast<int32_t*>(to[i]);
    auto* const tokens = reinterpret_cast<uint32_t*>(row);
    switch (entries_[i]) {
      case Entry::kTokens:
        stream_.copy(first, size, tokens);
        for (int64_t k = 0; k < size; ++k) tokens[k] &= ~kNotTrained;
        std::fill(row + size, row + context, 0);
        break;
      case Entry::kTargets: {
        // The stream's last token has none behind it; there a document ends.
        const int64_t there = std::min(size, stream_.size() - first - 1);
        stream_.copy(first + 1, there, tokens);
        for (int64_t k = 0; k < there; ++k) {
          if (tokens[k] & kNotTrained) row[k] = options_.ignored;
        }
        std::fill(row + there, row + context, options_.ignored);
        std::fill(row + size, row + context, options_.ignored);
        if (!ends_matter) break;
        for (int64_t end = stream_.end_behind(first); end <= first + size;
             end = stream_.end_behind(end)) {
          row[end - 1 - first] = options_.ignored;
          if (end == stream_.size()) break;
        }
        break;
      }
      case Entry::kSegments: {
        int32_t segment = 0;
        int64_t at = first;
        while (at < first + size) {
          const int64_t end = std::min(stream_.end_behind(at), first + size);
          std::fill(row + (at - first), row + (end - first), segment++);
          at = end;
        }
        // What pads is a document of its own.
        std::fill(row + size, row + context, segment);
        break;
      }
      case Entry::kPositions: {
        int64_t at = first;
        while (at < first + size) {
          const int64_t end = std::min(stream_.end_behind(at), first + size);
          std::iota(row + (at - first), row + (end - first), 0);
          at = end;
        }
        std::iota(row + size, row + context, 0);
        break;
      }
    }
  }
}

}  // namespace adjoint
