// A model that goes on from where it was: a step takes a few tokens of each sample, gives the
// logits of one of them and draws the token that follows it. What tokens leave for later ones stays
// in the arena, and so does the token that was drawn.
#pragma once
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "functors/step_options.h"
#include "ops/choose_token.h"
#include "run/late_numbers.h"
#include "run/run.h"

namespace adjoint {

class CachedModel {
 public:
  // `logits` is a forward scheme over the longest sequence that there may be, without its loss
  // (evaluation.h). A step takes 1 token of each sample, or any number that `counts` says. Refuses
  // a model that needs all positions at once.
  // A stack that the model was not trained with may treat all parameters as frozen ones. Only the
  // first `usable` logits, if there are so many, are of tokens; 0: all.
  CachedModel(const Scheme& logits, const StepOptions& options, const PlanOptions& plan,
              std::vector<int64_t> counts, bool all_frozen = false, int64_t usable = 0);

  Run& run();                               // whose parameters and state are those of all steps
  const Run& one() const { return *one_; }  // the step of one token
  int64_t batch() const { return batch_; }
  int64_t context() const { return context_; }
  int64_t vocab() const { return vocab_; }

  // Tokens [batch, count] at positions origins[b], origins[b] + 1, ...; `rows` says of which of the
  // count tokens the logits are. Tokens that do not count may stand anywhere where the sequence has
  // not been yet, or at its next position: whatever they leave is written over before it is read.
  // `choices` say how the token that follows is drawn; none: the likeliest.
  void step(std::span<const int32_t> tokens, std::span<const int32_t> origins,
            std::span<const int32_t> rows, std::span<const TokenChoice> choices = {});
  // The same with the tokens that the last step drew, one of each sample. Nobody need know them.
  void step_on(std::span<const int32_t> origins, std::span<const TokenChoice> choices = {});

  // Asks for the tokens that the step that was begun last draws, and takes those that were asked
  // for first. So the next step may be begun before they are known: `ahead` steps on a GPU, none
  // on a CPU, whose steps are done when they return.
  void ask_drawn() { drawn_->note(); }
  std::vector<int32_t> take_drawn();
  size_t asked() const { return drawn_ ? drawn_->waiting() : 0; }
  size_t ahead() const { return drawn_ ? drawn_->lag() : 0; }
  bool draws() const { return drawn_ != nullptr; }  // one row of logits for each position

  // Whether a sample whose steps have reached up to `reached` positions, those that did not count
  // among them, may go on from position `to`. A ring forgets what is further back than its window
  // and the longest step.
  bool may_go_back(int64_t to, int64_t reached) const;
  // After a step: the logits of a sample, the first `count` of them.
  std::vector<float> logits(int64_t sample, int64_t count) const;

 private:
  void feed(Run& run, std::span<const int32_t> tokens, std::span<const int32_t> origins,
            std::span<const int32_t> rows, std::span<const TokenChoice> choices);

  int64_t batch_ = 0, context_ = 0, vocab_ = 0, most_ = 1;
  bool forgets_ = false;  // some of what it keeps is a ring
  std::unique_ptr<Run> one_;
  std::map<int64_t, std::unique_ptr<Run>> more_;  // by the number of tokens, in the arenas of one_
  std::unique_ptr<LateNumbers> drawn_;
  Run* last_ = nullptr;
};

// The numbers of one row of an object, whose last axis they lie along; on a GPU only these travel.
std::vector<float> row_values(const Run& run, Value object, int64_t row, int64_t count);

}  // namespace adjoint
