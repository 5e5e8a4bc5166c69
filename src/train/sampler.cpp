#include "train/sampler.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/philox.h"
#include "kernels/token_choice.h"

namespace adjoint {

void check(const SampleOptions& o) {
  if (o.tokens < 1 || o.tokens > 1'000'000) {
    fail("--tokens: wanted 1 to 1000000, found ", o.tokens);
  }
  if (!(o.temperature >= 0)) fail("--temperature: wanted 0 or more, found ", o.temperature);
  if (o.top_k < 0) fail("--top-k: wanted 0 or more, found ", o.top_k);
  if (!(o.top_p > 0 && o.top_p <= 1)) fail("--top-p: wanted above 0, at most 1, found ", o.top_p);
  if (!(o.min_p >= 0 && o.min_p <= 1)) fail("--min-p: wanted 0 to 1, found ", o.min_p);
  if (!(o.repetition > 0 && std::isfinite(o.repetition))) {
    fail("--repetition-penalty: wanted above 0, found ", o.repetition);
  }
  for (const std::string& stop : o.stops) {
    if (stop.empty()) fail("--stop: wanted a text, found none");
  }
}

namespace {

// Keskar et al., "CTRL", 2019: a likely token's logit is divided, an unlikely one's multiplied.
void weigh_repetition(std::vector<float>& logits, std::span<const int32_t> text, double penalty) {
  if (penalty == 1) return;
  std::vector<bool> seen(logits.size(), false);
  for (const int32_t token : text) {
    if (token < 0 || token >= static_cast<int32_t>(logits.size()) || seen[token]) continue;
    seen[token] = true;
    float& logit = logits[token];
    logit = static_cast<float>(logit > 0 ? logit / penalty : logit * penalty);
  }
}

}  // namespace

TokenChoice choice_of(const SampleOptions& options, int64_t sample, int64_t place) {
  // The first sample's stream has the name that it had when there was no other.
  const std::string stream = sample == 0 ? "generate" : "generate." + std::to_string(sample);
  const RandomStream random{random_key(options.seed, stream), 0};
  return {.temperature = static_cast<float>(options.temperature),
          .top_k = static_cast<float>(options.top_k),
          .top_p = static_cast<float>(options.top_p),
          .min_p = static_cast<float>(options.min_p),
          .number = static_cast<float>(random.uniform(place))};
}

int32_t sample_token(std::vector<float> logits, std::span<const int32_t> text,
                     const SampleOptions& options, int64_t sample, int64_t place) {
  CHECK(!logits.empty(), "there is a token to choose");
  weigh_repetition(logits, text, options.repetition);
  return drawn_token(logits, choice_of(options, sample, place));
}

namespace {

// How many bytes at the end may be the beginning of this.
size_t begun_bytes(std::string_view text, std::string_view stop) {
  for (size_t n = std::min(text.size(), stop.size() - 1); n > 0; --n) {
    if (text.ends_with(stop.substr(0, n))) return n;
  }
  return 0;
}

}  // namespace

std::string StoppedText::add(int32_t token) {
  waiting_ += stream_.next(token);
  for (const std::string& stop : stops_) {
    if (const size_t at = waiting_.find(stop); at != std::string::npos) {
      waiting_.resize(at);
      stopped_ = true;
    }
  }
  size_t held_back = 0;
  if (!stopped_) {
    for (const std::string& stop : stops_) {
      held_back = std::max(held_back, begun_bytes(waiting_, stop));
    }
  }
  return release(held_back);
}

std::string StoppedText::finish() {
  if (!stopped_) waiting_ += stream_.finish();
  return release(0);
}

std::string StoppedText::release(size_t held_back) {
  std::string out = waiting_.substr(0, waiting_.size() - held_back);
  waiting_.erase(0, out.size());
  shown_ += out;
  return out;
}

}  // namespace adjoint
