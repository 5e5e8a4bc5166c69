// Packing buffers with lifetimes into an arena is NP-hard. In training steps lifetimes are mostly
// nested, and placing the largest buffer first at the lowest free offset comes within a percent or
// two of the largest sum of live bytes. Where it does not, the buffers that end above the goal move
// to the front of the order and all are placed anew ("squeaky wheel"), a few times; the best
// packing is taken. Written by hand: an exact solver takes minutes where --fit packs hundreds of
// plans.
#include "plan/pack.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "plan/occupied.h"

namespace adjoint {

namespace {

constexpr int kStale = 3;                // tries in a row that gain nothing
constexpr int kTriesInFront = 20;        // of moving what sticks out to the front, per start
constexpr int64_t kPairs = 100'000'000;  // of storages looked at, per start: a tenth of a second

constexpr size_t kFew = 2000;  // storages: looking at all of them is faster than a tree below that

struct Placed {
  int64_t begin, end;
  int first, last;
};

// Lowest offset at or above `floor` where `size` bytes are free during [first, last]. `placed` is
// sorted by begin.
int64_t lowest_free(const std::vector<Placed>& placed, int64_t floor, int64_t size, int first,
                    int last) {
  int64_t at = floor;
  for (const Placed& p : placed) {
    if (p.last < first || p.first > last || p.end <= at) continue;
    if (p.begin >= at + size) break;
    at = p.end;
  }
  return at;
}

// Looks at all that was placed before, for each storage.
int64_t place_few(const std::vector<Storage>& storages, const std::vector<int>& order,
                  std::vector<Placed> placed, int64_t floor, std::vector<int64_t>& offsets) {
  int64_t top = floor;
  for (const int i : order) {
    const Storage& s = storages[i];
    const int64_t size = round_up(s.size, {64}).count;
    const int64_t at = lowest_free(placed, floor, size, s.first, s.last);
    offsets[i] = at;
    top = std::max(top, at + size);
    const Placed mine{at, at + size, s.first, s.last};
    placed.insert(
        std::upper_bound(placed.begin(), placed.end(), mine,
                         [](const Placed& a, const Placed& b) { return a.begin < b.begin; }),
        mine);
  }
  return top;
}

// The same offsets, in time that grows little faster than the number of storages.
int64_t place_many(const std::vector<Storage>& storages, const std::vector<int>& order,
                   const std::vector<Placed>& fixed, int64_t floor, int places,
                   std::vector<int64_t>& offsets) {
  Occupied occupied(places);
  for (const Placed& p : fixed) occupied.take(p.begin, p.end, p.first, p.last);
  int64_t top = floor;
  for (const int i : order) {
    const Storage& s = storages[i];
    const int64_t size = round_up(s.size, {64}).count;
    const int64_t at = occupied.lowest_free(floor, size, s.first, s.last);
    occupied.take(at, at + size, s.first, s.last);
    offsets[i] = at;
    top = std::max(top, at + size);
  }
  return top;
}

// The place in the order where the tier's live bytes are most.
int fullest(const std::vector<Storage>& storages, Tier tier) {
  std::map<int, int64_t> change;
  for (const Storage& s : storages) {
    if (s.tier != tier) continue;
    change[s.first] += s.size.count;
    change[s.last + 1] -= s.size.count;
  }
  int64_t live = 0, most = -1;
  int at = 0;
  for (const auto& [place, bytes] : change) {
    live += bytes;
    if (live > most) most = live, at = place;
  }
  return at;
}

}  // namespace

void pack(std::vector<Storage>& storages, Bytes floor, Bytes least, Tier tier) {
  const Bytes goal{least.count + least.count / 200};  // half a percent is good enough
  std::vector<int> order;
  std::vector<Placed> fixed;
  int places = 1;  // in the order
  for (size_t i = 0; i < storages.size(); ++i) {
    const Storage& s = storages[i];
    if (s.tier != tier) continue;
    places = std::max(places, s.last + 1);
    if (s.offset.count < 0) {
      order.push_back(static_cast<int>(i));
    } else if (s.offset >= floor) {
      fixed.push_back(
          {s.offset.count, s.offset.count + round_up(s.size, {64}).count, s.first, s.last});
    }
  }
  std::sort(fixed.begin(), fixed.end(),
            [](const Placed& a, const Placed& b) { return a.begin < b.begin; });

  std::vector<int64_t> offsets(storages.size(), 0), best_offsets;
  int64_t best = INT64_MAX;
  const auto attempt = [&](const std::vector<int>& by) {
    const int64_t top = order.size() < kFew
                            ? place_few(storages, by, fixed, floor.count, offsets)
                            : place_many(storages, by, fixed, floor.count, places, offsets);
    if (top < best) best = top, best_offsets = offsets;
    return top;
  };
  const auto length = [&](int i) { return int64_t{storages[i].last} - storages[i].first + 1; };
  const auto size = [&](int i) { return storages[i].size.count; };
  const auto by = [&](auto key) {
    std::vector<int> sorted = order;
    std::stable_sort(sorted.begin(), sorted.end(), [&](int a, int b) { return key(a) > key(b); });
    return sorted;
  };
  const int peak = fullest(storages, tier);
  const auto at_peak = [&](int i) { return storages[i].first <= peak && peak <= storages[i].last; };
  const auto area = [&](int i) { return double(size(i)) * double(length(i)); };
  // What is alive at the peak fills the arena to the last byte there, if it goes in first.
  std::vector<int> starts[] = {
      by(size),
      by(length),
      by(area),
      by([&](int i) { return std::tuple(at_peak(i), length(i)); }),
      by([&](int i) { return std::tuple(at_peak(i), at_peak(i) ? length(i) : size(i)); }),
      by([&](int i) { return std::tuple(at_peak(i), area(i)); }),
      by([&](int i) { return std::tuple(at_peak(i), size(i)); }),
  };
  std::vector<std::vector<int64_t>> found;  // by start: its offsets
  for (const std::vector<int>& start : starts) {
    if (best <= goal.count) break;
    attempt(start);
    found.push_back(offsets);
  }
  // Whatever ends above the goal goes first the next time; from every start in turn.
  const int64_t pairs = std::max<int64_t>(1, int64_t(order.size()) * int64_t(order.size()));
  const int tries = static_cast<int>(std::clamp<int64_t>(kPairs / pairs, 1, kTriesInFront));
  for (size_t s = 0; s < std::size(starts); ++s) {
    if (best <= goal.count) break;
    std::vector<int>& current = starts[s];
    offsets = found[s];
    int64_t before = best;
    for (int t = 0, stale = 0; t < tries && stale < kStale && best > goal.count; ++t) {
      std::stable_partition(current.begin(), current.end(),
                            [&](int i) { return offsets[i] + size(i) > goal.count; });
      attempt(current);
      stale = best < before ? 0 : stale + 1;
      before = best;
    }
  }
  for (const int i : order) storages[i].offset = {best_offsets[i]};
}

}  // namespace adjoint
