#include "kernels/token_choice.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace adjoint {

namespace {

struct Candidate {
  int32_t token;
  float logit;
  uint64_t share;
};

bool comes_before(const Candidate& a, const Candidate& b) {
  return a.logit != b.logit ? a.logit > b.logit : a.token < b.token;
}

uint64_t sum_of(const std::vector<Candidate>& all) {
  uint64_t sum = 0;
  for (const Candidate& c : all) sum += c.share;
  return sum;
}

}  // namespace

int32_t drawn_token(std::span<const float> logits, const TokenChoice& choice) {
  int32_t best = -1;
  for (size_t i = 0; i < logits.size(); ++i) {
    const bool first = best < 0 && !std::isnan(logits[i]);
    if (first || (best >= 0 && logits[i] > logits[best])) best = static_cast<int32_t>(i);
  }
  if (best < 0) return 0;  // nothing is a number
  if (!(choice.temperature > 0)) return best;
  const double largest = logits[best], temperature = choice.temperature;
  // A token without a share is never drawn, and all that have one come before it in the order.
  std::vector<Candidate> all;
  for (size_t i = 0; i < logits.size(); ++i) {
    const double below = logits[i] == logits[best] ? 0 : (logits[i] - largest) / temperature;
    if (!(below >= kLeastLogit)) continue;
    const auto share = static_cast<uint64_t>(std::llrint(std::exp(below) * kWholeShare));
    if (share > 0) all.push_back({static_cast<int32_t>(i), logits[i], share});
  }
  const bool some_k = choice.top_k >= 1 && choice.top_k < static_cast<float>(all.size());
  const bool some_p = choice.top_p < 1;
  if (some_k) {
    const auto end = all.begin() + static_cast<ptrdiff_t>(choice.top_k);
    std::nth_element(all.begin(), end - 1, all.end(), comes_before);
    all.erase(end, all.end());
  }
  if (some_p) {
    const double wanted = static_cast<double>(choice.top_p) * static_cast<double>(sum_of(all));
    std::sort(all.begin(), all.end(), comes_before);
    uint64_t sum = 0;
    size_t kept = 0;
    while (kept < all.size() && (kept == 0 || static_cast<double>(sum) < wanted)) {
      sum += all[kept++].share;
    }
    all.resize(kept);
  }
  const double least = std::min(1.0, static_cast<double>(choice.min_p)) * kWholeShare;
  std::erase_if(all, [&](const Candidate& c) { return static_cast<double>(c.share) < least; });
  if (some_k || some_p) {
    std::sort(all.begin(), all.end(),
              [](const Candidate& a, const Candidate& b) { return a.token < b.token; });
  }
  const double number = std::clamp(static_cast<double>(choice.number), 0.0, 1 - 0x1p-24);
  const auto wanted = static_cast<uint64_t>(number * static_cast<double>(sum_of(all)));
  uint64_t sum = 0;
  for (const Candidate& c : all) {
    sum += c.share;
    if (sum > wanted) return c.token;
  }
  return best;
}

}  // namespace adjoint
