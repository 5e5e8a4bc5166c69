#include "plan/occupied.h"

#include <algorithm>

#include "base/error.h"

namespace adjoint {

Occupied::Occupied(int places) {
  while ((1 << height_) < places) ++height_;
  nodes_.resize(size_t{2} << height_);
}

template <class Whole, class Part>
void Occupied::visit(int first, int last, const Whole& whole, const Part& part) {
  const int leaves = 1 << height_;
  CHECK(first >= 0 && first <= last && last < leaves, "a time inside the order");
  const int begin = first + leaves, end = last + 1 + leaves;
  for (int l = begin, r = end; l < r; l >>= 1, r >>= 1) {
    if (l & 1) whole(l++);
    if (r & 1) whole(--r);
  }
  for (int up = 1; up <= height_; ++up) {
    const int left = begin >> up, right = (end - 1) >> up;
    // A node is cut by a border that is not a border of the node itself.
    const bool cut_left = (left << up) != begin, cut_right = ((end >> up) << up) != end;
    if (cut_left) part(left);
    if (cut_right && !(cut_left && left == right)) part(right);
  }
}

void Occupied::add(Ranges& ranges, Range range) {
  // All that overlaps or touches the new range becomes one with it.
  const auto from = std::lower_bound(ranges.begin(), ranges.end(), range.begin,
                                     [](const Range& r, int64_t begin) { return r.end < begin; });
  auto to = from;
  ++looks_;
  while (to != ranges.end() && to->begin <= range.end) {
    ++looks_;
    range.begin = std::min(range.begin, to->begin);
    range.end = std::max(range.end, to->end);
    ++to;
  }
  if (from == to) {
    ranges.insert(from, range);
  } else {
    *from = range;
    ranges.erase(from + 1, to);
  }
}

void Occupied::take(int64_t begin, int64_t end, int first, int last) {
  if (begin == end) return;
  visit(
      first, last,
      [&](int n) {
        add(nodes_[n].ever, {begin, end});
        add(nodes_[n].throughout, {begin, end});
      },
      [&](int n) {
        add(nodes_[n].ever, {begin, end});
      });
}

int64_t Occupied::next_free(const Ranges& ranges, int64_t at, int64_t size) {
  auto range = std::upper_bound(ranges.begin(), ranges.end(), at,
                                [](int64_t at, const Range& r) { return at < r.end; });
  ++looks_;
  for (; range != ranges.end() && range->begin < at + size; ++range, ++looks_) at = range->end;
  return at;
}

int64_t Occupied::lowest_free(int64_t floor, int64_t size, int first, int last) {
  asked_.clear();
  const auto ask = [&](const Ranges& ranges) {
    if (!ranges.empty()) asked_.push_back(&ranges);
  };
  visit(
      first, last, [&](int n) { ask(nodes_[n].ever); }, [&](int n) { ask(nodes_[n].throughout); });
  // Whichever list is in the way raises the offset, and no offset below that one is free. The
  // answer is there when all lists in a row have let it pass.
  int64_t at = floor;
  size_t passed = 0;
  for (size_t i = 0; passed < asked_.size(); i = i + 1 < asked_.size() ? i + 1 : 0) {
    const int64_t next = next_free(*asked_[i], at, size);
    passed = next == at ? passed + 1 : 1;
    at = next;
  }
  return at;
}

}  // namespace adjoint
