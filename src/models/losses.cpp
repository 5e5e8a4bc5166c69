// Losses: pairs of a sum and a count. They are added to each other and multiplied by numbers, and
// those of the model become one pair at its end.
#include <algorithm>

#include "models/elaborator.h"
#include "ops/loss_count.h"

namespace adjoint {

// Losses are added to each other and multiplied by numbers.
Elaborator::Meaning Elaborator::combine_losses(const Term& binary, const Meaning& left,
                                               const Meaning& right) {
  const auto *a = std::get_if<Loss>(&left), *b = std::get_if<Loss>(&right);
  const auto *m = std::get_if<double>(&left), *n = std::get_if<double>(&right);
  const auto weighted = [](Loss loss, double by) {
    for (LossTerm& term : loss) term.weight *= by;
    return loss;
  };
  if (a && b && (binary.word == "+" || binary.word == "-")) {
    Loss sum = *a;
    for (const LossTerm& term : weighted(*b, binary.word == "+" ? 1 : -1)) sum.push_back(term);
    return sum;
  }
  if (binary.word == "*" && (m || n)) return weighted(a ? *a : *b, m ? *m : *n);
  if (binary.word == "/" && n && *n != 0) return weighted(*a, 1 / *n);
  fail_here(binary.at, binary.word, ": a loss is added to a loss or multiplied by a number, found ",
            describe(left), " ", binary.word, " ", describe(right));
}

// The model's value. A loss of several terms becomes one pair: every term's sum is weighted by
// largest count / its own count, and the largest count divides once. Counts are taken of targets
// alone, so that they are known before the backward pass begins and a batch in parts has them
// whole.
Elaborator::Objects Elaborator::finish(const Meaning& value, Position at) {
  if (const auto* objects = std::get_if<Objects>(&value)) return *objects;
  const auto* loss = std::get_if<Loss>(&value);
  if (!loss) fail_here(at, "model: its value must be objects or a loss, found ", describe(value));
  if (loss->size() == 1 && loss->front().weight == 1) {
    return {loss->front().sum, loss->front().count};
  }
  const std::vector<int> made_by = producers(scheme_);
  std::vector<LossCount> counted;
  for (const LossTerm& term : *loss) {
    const Morphism& m = scheme_.morphisms[made_by[term.sum]];
    auto count = loss_count(m);
    if (!count) {
      fail_here(at, m.op, ": a term of a sum of losses wants targets, which say what counts");
    }
    counted.push_back(*std::move(count));
  }
  const bool alike = std::all_of(counted.begin(), counted.end(),
                                 [&](const LossCount& c) { return c == counted[0]; });
  builder_.at({"loss"}, Phase::kForward, Role::kActivation);
  const Value first = static_cast<Value>(scheme_.objects.size());
  std::vector<Value> counts, factors;
  Value largest = loss->front().count;
  if (!alike) {
    for (size_t i = 0; i < counted.size(); ++i) {
      const LossCount& c = counted[i];
      const size_t same = std::find(counted.begin(), counted.end(), c) - counted.begin();
      counts.push_back(same < i ? counts[same] : builder_.emit(c.op, {c.targets}, c.attrs));
    }
    largest = counts[0];
    for (size_t i = 1; i < counts.size(); ++i) {
      const bool seen =
          std::count(counts.begin(), counts.begin() + static_cast<int64_t>(i), counts[i]) > 0;
      if (!seen) largest = builder_.emit("maximum", {largest, counts[i]});
    }
    std::map<Value, Value> factor_of;
    for (const Value count : counts) {
      const auto [found, fresh] = factor_of.emplace(count, count);
      if (fresh) {
        const Value some = builder_.emit("maximum", {count}, {{"b", 1.0}});
        found->second = builder_.emit("div", {largest, some});
      }
      factors.push_back(found->second);
    }
  }
  const Value sum = weighted_sum(*loss, factors);
  accept_objects(first, "loss", at);
  return {sum, largest};
}

Value Elaborator::weighted_sum(const Loss& loss, const std::vector<Value>& factors) {
  std::optional<Value> total;
  for (size_t i = 0; i < loss.size(); ++i) {
    Value term = loss[i].sum;
    if (loss[i].weight != 1) term = builder_.emit("scale", {term}, {{"by", loss[i].weight}});
    if (!factors.empty()) term = builder_.emit("mul", {term, factors[i]});
    total = total ? builder_.emit("add", {*total, term}) : term;
  }
  return *total;
}

}  // namespace adjoint
