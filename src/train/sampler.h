// From logits to a token, and from tokens to text that may be shown.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "data/tokenizer.h"
#include "ops/choose_token.h"

namespace adjoint {

struct SampleOptions {
  int64_t tokens = 200;
  double temperature = 0.8;  // 0: always the most likely token
  int64_t top_k = 0;         // only the k most likely tokens; 0: all
  double top_p = 1;          // only the fewest most likely tokens that have this share together
  double min_p = 0;          // only tokens with this share of the likeliest one's probability
  double repetition = 1;     // above 1: tokens that stand in the text already become less likely
  std::vector<std::string> stops = {};  // the text ends before any of these
  uint64_t seed = 1;
};

// Refuses numbers that make no sense, by the flag that says them.
void check(const SampleOptions& options);

// How the token at a place of a text is drawn (ops/choose_token.h). The same seed, sample and place
// give the same random number, whatever else runs beside.
TokenChoice choice_of(const SampleOptions& options, int64_t sample, int64_t place);

// The token that follows `text`, by logits that are first weighed against repetition.
int32_t sample_token(std::vector<float> logits, std::span<const int32_t> text,
                     const SampleOptions& options, int64_t sample, int64_t place);

// Text as its tokens come, up to a stop string. What may become one is held back.
class StoppedText {
 public:
  // `first`: whether the first token begins the text, or goes on where another text ended.
  StoppedText(const Tokenizer& tokenizer, std::span<const std::string> stops, bool first = true)
      : stream_(tokenizer, first), stops_(stops) {}

  // What may be shown of it by now.
  std::string add(int32_t token);
  std::string finish();  // what was held back
  bool stopped() const { return stopped_; }
  const std::string& text() const { return shown_; }  // all that was shown

 private:
  std::string release(size_t held_back);

  TextStream stream_;
  std::span<const std::string> stops_;
  std::string waiting_, shown_;
  bool stopped_ = false;
};

}  // namespace adjoint
