#include "train/cached_model.h"

#include <algorithm>

#include "base/error.h"
#include "functors/carry_positions.h"
#include "functors/choose.h"
#include "functors/pipeline.h"
#include "scheme/elements.h"
#include "train/fed_inputs.h"

namespace adjoint {

namespace {

// Codes are multiplied as they are by linear maps alone, so maps are neither joined nor ended with
// functions where matrices are codes.
std::string stack_for(const Scheme& logits, const StepOptions& options, bool all_frozen) {
  const Scheme some = generation_scheme(logits, parse_stack(options.stack), options,
                                        {.positions = 2, .all_frozen = all_frozen});
  const bool codes = std::any_of(some.morphisms.begin(), some.morphisms.end(),
                                 [](const Morphism& m) { return op_named(m.op).decodes; });
  std::string stack = options.stack;
  for (const std::string off : {"-join_projections", "-fuse_epilogue"}) {
    if (!codes || stack.find(off) != std::string::npos) continue;
    stack += (stack.empty() ? "" : " | ") + off;
  }
  return stack;
}

}  // namespace

CachedModel::CachedModel(const Scheme& logits, const StepOptions& options, const PlanOptions& plan,
                         std::vector<int64_t> counts, bool all_frozen, int64_t usable) {
  const Value tokens = input_named(logits, "tokens");
  CHECK(tokens >= 0 && logits.outputs.size() == 1, "a model to sample from has tokens and logits");
  batch_ = logits[tokens].type.dim(0);
  context_ = logits[tokens].type.dim(1);
  vocab_ = logits[logits.outputs[0]].type.dim(-1);
  // A step of several tokens has every parameter as it is held, so there always is one.
  counts.push_back(std::max<int64_t>(2, counts.empty() ? 2 : counts[0]));
  most_ = *std::max_element(counts.begin(), counts.end());
  const bool draws = logits[logits.outputs[0]].type.rank() == 3;
  if (usable == 0 || usable > vocab_) usable = vocab_;
  const Stack stack = parse_stack(stack_for(logits, options, all_frozen));
  const auto scheme_for = [&](int64_t count) {
    return generation_scheme(logits, stack, options,
                             {.positions = count,
                              .most = most_,
                              .usable = draws ? usable : 0,
                              .all_frozen = all_frozen});
  };
  const Scheme one = scheme_for(1);
  forgets_ = std::any_of(one.inputs.begin(), one.inputs.end(), [&](Value in) {
    return one[in].role == Role::kState && one[in].type.rank() > 1 &&
           one[in].type.axes[1].name == kRing;
  });
  Plan of_one = make_plan(one, plan);
  std::map<int64_t, std::pair<Scheme, Plan>> guests;
  for (const int64_t count : counts) {
    if (count == 1 || guests.count(count)) continue;
    Scheme more = scheme_for(count);
    Plan of_more = make_plan(more, beside(one, of_one, plan.threads));
    of_one.make_room_for(of_more);
    guests.emplace(count, std::pair(std::move(more), std::move(of_more)));
  }
  one_ = std::make_unique<Run>(one, std::move(of_one));
  if (draws) {
    drawn_ = std::make_unique<LateNumbers>(*one_, std::vector<Value>{one_->scheme().outputs[1]});
  }
  for (auto& [count, guest] : guests) {
    more_[count] = std::make_unique<Run>(std::move(guest.first), std::move(guest.second), *one_);
  }
}

bool CachedModel::may_go_back(int64_t to, int64_t reached) const {
  return to == 0 || !forgets_ || to + most_ >= reached;
}

Run& CachedModel::run() { return *more_.begin()->second; }

void CachedModel::step(std::span<const int32_t> tokens, std::span<const int32_t> origins,
                       std::span<const int32_t> rows, std::span<const TokenChoice> choices) {
  const int64_t count = static_cast<int64_t>(tokens.size()) / batch_;
  CHECK(count > 0 && count * batch_ == static_cast<int64_t>(tokens.size()),
        "each sample has as many tokens");
  CHECK(count == 1 || more_.count(count), "a step for so many tokens was prepared");
  feed(count == 1 ? *one_ : *more_.at(count), tokens, origins, rows, choices);
}

void CachedModel::step_on(std::span<const int32_t> origins, std::span<const TokenChoice> choices) {
  CHECK(last_, "a step has drawn tokens");
  feed(*one_, {}, origins, {}, choices);
}

void CachedModel::feed(Run& run, std::span<const int32_t> tokens, std::span<const int32_t> origins,
                       std::span<const int32_t> rows, std::span<const TokenChoice> choices) {
  static_assert(sizeof(TokenChoice) == kChoiceNumbers * sizeof(float));
  CHECK(choices.empty() || static_cast<int64_t>(choices.size()) == batch_,
        "each sample has a choice of its own");
  for (const Value in : run.scheme().inputs) {
    const Object& object = run.scheme()[in];
    const std::string& path = object.source.path;
    if (object.role == Role::kState && path == "tokens" && object.source.facet == kNextToken) {
      // A step of several tokens only leaves one there.
      if (!tokens.empty() && &run == one_.get()) run.write(in, tokens.data());
    } else if (object.role != Role::kInput) {
      continue;
    } else if (path == "tokens") {
      run.write(in, tokens.data());
    } else if (path == kOrigin) {
      run.write(in, origins.data());
    } else if (path == kRow) {
      run.write(in, rows.data());
    } else if (path == kChoice && !choices.empty()) {
      run.write(in, choices.data());
    } else {
      // What else a model is fed is the data's, and nothing here: no segment but the first. A
      // choice of zeros is the likeliest token.
      run.clear(in);
    }
  }
  run.step();
  last_ = &run;
}

std::vector<int32_t> CachedModel::take_drawn() {
  const std::vector<double> numbers = drawn_->take();
  return {numbers.begin(), numbers.end()};
}

std::vector<float> CachedModel::logits(int64_t sample, int64_t count) const {
  CHECK(last_, "a step has run");
  return row_values(*last_, last_->scheme().outputs[0], sample, count);
}

std::vector<float> row_values(const Run& run, Value object, int64_t row, int64_t count) {
  const Type& type = run.scheme()[object].type;
  const Strides& strides = run.plan().places[object].strides;
  CHECK(strides.back() == 1, "the numbers of a row lie side by side");
  const Bytes size = size_of(type.dtype);
  int64_t offset = 0;
  for (int a = type.rank() - 1; a-- > 0; row /= type.dim(a)) {
    offset += row % type.dim(a) * strides[a];
  }
  const auto* at = static_cast<const std::byte*>(run.data(object)) + offset * size.count;
  std::vector<std::byte> copy(run.on_gpu() ? count * size.count : 0);
  if (run.on_gpu()) {
    run.stream()->copy(copy.data(), at, count * size);
    run.synchronize();
    at = copy.data();
  }
  std::vector<float> numbers(count);
  for (int64_t i = 0; i < count; ++i) {
    numbers[i] = static_cast<float>(load_element(at, type.dtype, i));
  }
  return numbers;
}

}  // namespace adjoint
