#include "plan/region.h"

#include <algorithm>
#include <span>

#include "ops/layout.h"

namespace adjoint {

namespace {

// A region without its tier, for the recursion below.
struct Runs {
  int64_t begin;
  std::span<const Region::Step> steps;
  int64_t run;

  int64_t end() const {
    int64_t last = begin;
    for (const Region::Step& step : steps) last += step.stride * (step.count - 1);
    return last + run;
  }
  Runs inner(int64_t i) const { return {begin + i * steps[0].stride, steps.subspan(1), run}; }
};

int64_t floor_div(int64_t a, int64_t b) { return a / b - (a % b < 0); }

bool overlap(Runs a, Runs b) {
  if (a.end() <= b.begin || b.end() <= a.begin) return false;
  if (a.steps.empty() && b.steps.empty()) return true;
  const auto longest = [](const Runs& r) { return r.steps.empty() ? 0 : r.steps[0].stride; };
  if (longest(a) < longest(b)) std::swap(a, b);
  const int64_t stride = longest(a);
  // Only those steps of a are tried at which it can reach b. Where both have the same stride, only
  // the difference of their steps matters.
  const bool alike = longest(b) == stride;
  const Runs first = a.inner(0), other = alike ? b.inner(0) : b;
  const int64_t least = alike ? 1 - b.steps[0].count : 0;
  const int64_t from = std::max(least, floor_div(other.begin - first.end(), stride) + 1);
  const int64_t to =
      std::min(a.steps[0].count - 1, floor_div(other.end() - first.begin - 1, stride));
  for (int64_t i = from; i <= to; ++i) {
    if (overlap(a.inner(i), other)) return true;
  }
  return false;
}

}  // namespace

int64_t Region::end() const { return Runs{begin, steps, run}.end(); }

Region region_of(const Type& type, const Strides& strides, Tier tier, Bytes begin) {
  const int64_t element = size_of(type.dtype).count;
  Region region{.tier = tier, .begin = begin.count, .run = element};
  if (lies_densely(type, strides)) {
    region.run = type.bytes().count;
    return region;
  }
  for (int a = 0; a < type.rank(); ++a) {
    if (type.dim(a) > 1 && strides[a] != 0) {
      region.steps.push_back({strides[a] * element, type.dim(a)});
    }
  }
  std::sort(region.steps.begin(), region.steps.end(),
            [](const Region::Step& x, const Region::Step& y) { return x.stride > y.stride; });
  while (!region.steps.empty() && region.steps.back().stride == region.run) {
    region.run *= region.steps.back().count;
    region.steps.pop_back();
  }
  return region;
}

Region region_of(const Scheme& scheme, const Plan& plan, Value v) {
  return region_of(scheme[v].type, plan.places[v].strides, plan.tier_of(v), plan.offset_of(v));
}

Region region_of(const Storage& storage) {
  return {.tier = storage.tier, .begin = storage.offset.count, .run = storage.size.count};
}

bool overlap(const Region& a, const Region& b) {
  return a.tier == b.tier && overlap(Runs{a.begin, a.steps, a.run}, Runs{b.begin, b.steps, b.run});
}

}  // namespace adjoint
