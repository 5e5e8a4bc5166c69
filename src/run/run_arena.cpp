// The bytes of a run's arenas, whatever objects lie there: filling them with a pattern, poisoning
// what the plan frees, and finding the highest byte that a step has touched.
#include <algorithm>
#include <cstring>

#include "device/parallel.h"
#include "run/run.h"

namespace adjoint {

namespace {

// Kernels may leave alone what lies behind the last element of an object with padding, which is the
// object's all the same: it is touched with that element.
Bytes with_padding(const Scheme& scheme, const Plan& plan, Bytes end, Tier tier) {
  Bytes most = end;
  for (size_t i = 0; i < plan.places.size(); ++i) {
    const auto v = static_cast<Value>(i);
    const Type& type = scheme[v].type;
    const Strides& strides = plan.places[v].strides;
    if (plan.places[v].storage < 0 || type.num_physical() == type.num_elements() ||
        plan.tier_of(v) != tier || strides != dense_strides(type)) {
      continue;
    }
    int64_t last = 0;  // element
    for (int a = 0; a < type.rank(); ++a) last += (type.dim(a) - 1) * strides[a];
    const Bytes begin = plan.offset_of(v), whole = begin + type.bytes();
    if (begin + last * size_of(type.dtype) < end && end < whole) most = std::max(most, whole);
  }
  return most;
}

}  // namespace

void Run::fill_arena(std::byte pattern) {
  filled_with_ = pattern;
  touched_ = {};
  for (int t = 0; t < kNumTiers; ++t) {
    const Bytes size = plan_.arena_of(static_cast<Tier>(t)).size;
    if (on_gpu()) {
      if (size.count > 0) stream_->fill(base_[t], pattern, size);
      continue;
    }
    parallel_for(size.count, 1 << 20, [&](int64_t begin, int64_t end, int) {
      std::memset(base_[t] + begin, static_cast<int>(pattern), end - begin);
    });
  }
  synchronize();
}

void Run::reset() {
  fill_arena(std::byte{0});
  set_controls();
}

void Run::set_poison(std::optional<std::byte> with) { poison_ = with; }

// What the next iteration reads is freed by the last one.
void Run::bury(int at, bool for_good) {
  for (const int i : dies_after_[at]) {
    if (crosses_[i] && !for_good) continue;
    const Storage& s = plan_.storages[i];
    if (on_gpu()) {
      stream_->fill(this->at(s), *poison_, s.size);
      continue;
    }
    note_touched(s);
    std::memset(this->at(s), static_cast<int>(*poison_), s.size.count);
  }
}

void Run::note_touched(const Storage& s) noexcept {
  int64_t& highest = touched_[static_cast<size_t>(s.tier)];
  const bool workspace = s.objects.empty();
  const std::byte* bytes = this->at(s);
  // From the top down to what is known; of a workspace any byte will do.
  const int64_t least = workspace ? 0 : std::max<int64_t>(0, highest - s.offset.count);
  if (s.offset.count + s.size.count <= highest) return;
  for (int64_t end = s.size.count; end > least; --end) {
    if (bytes[end - 1] == filled_with_) continue;
    highest = s.offset.count + (workspace ? s.size.count : end);
    return;
  }
}

Bytes Run::touched(std::byte pattern, Tier tier) const {
  int64_t end = plan_.arena_of(tier).size.count;
  const int64_t known = touched_[static_cast<size_t>(tier)];
  if (!on_gpu()) {
    while (end > known && arena(tier)[end - 1] == pattern) --end;
    return with_padding(scheme_, plan_, {end}, tier);
  }
  std::vector<std::byte> copy(std::min<int64_t>(end, 16 << 20));
  while (end > 0) {
    const int64_t begin = std::max<int64_t>(0, end - static_cast<int64_t>(copy.size()));
    stream_->copy(copy.data(), arena(tier) + begin, {end - begin});
    synchronize();
    while (end > begin && copy[end - 1 - begin] == pattern) --end;
    if (end > begin) break;
  }
  return with_padding(scheme_, plan_, {end}, tier);
}

}  // namespace adjoint
