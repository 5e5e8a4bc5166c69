#include "laws/compare.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "body/body.h"

namespace adjoint {

namespace {

// The error of a gradient below this share of all gradients is taken relative to this share of
// them.
constexpr double kNegligible = 0x1p-12;

// The sum of term(i) for i below n, in several partial sums, so that no addition waits for the one
// before it.
template <class Term>
double sum_of(size_t n, const Term& term) {
  constexpr size_t kSums = 8;
  double sums[kSums] = {};
  size_t i = 0;
  for (; i + kSums <= n; i += kSums) {
    for (size_t k = 0; k < kSums; ++k) sums[k] += term(i + k);
  }
  double all = 0;
  for (const double sum : sums) all += sum;
  for (; i < n; ++i) all += term(i);
  return all;
}

double squares_of(const Numbers& numbers) {
  return sum_of(numbers.size(), [&](size_t i) { return numbers[i] * numbers[i]; });
}

double squares_between(const Numbers& a, const Numbers& b) {
  return sum_of(a.size(), [&](size_t i) { return (a[i] - b[i]) * (a[i] - b[i]); });
}

// The path and the facet of a source's text.
std::pair<std::string, std::string> parts_of(const std::string& source) {
  const size_t colon = source.find(':');
  if (colon == std::string::npos) return {source, ""};
  return {source.substr(0, colon), source.substr(colon)};
}

// The smallest magnitude that the error of a tensor is taken relative to.
class Scales {
 public:
  explicit Scales(const Trace& reference) : reference_(reference) {
    std::map<TensorKey, double> squares;
    for (const auto& [key, numbers] : reference.tensors) {
      if (key.kind != TensorKey::Kind::kGradient) continue;
      gradients_[key.step] += squares[key] = squares_of(numbers);
    }
    for (const auto& [key, square] : squares) {
      const bool noise = std::sqrt(square) <= kNegligible * std::sqrt(gradients_[key.step]);
      const auto [found, fresh] = noise_.emplace(key.source, noise);
      found->second = found->second && noise;
    }
  }

  double least(const TensorKey& key) {
    if (key.kind == TensorKey::Kind::kGradient) {
      return kNegligible * std::sqrt(gradients_.at(key.step));
    }
    if (key.kind != TensorKey::Kind::kState) return 0;
    const auto [path, facet] = parts_of(key.source);
    const auto found = noise_.find(path);
    if (found == noise_.end() || !found->second) return 0;
    return kNegligible * std::sqrt(changes_of(facet));
  }

 private:
  // The sum of squares of all changes, since the start, of state with this facet.
  double changes_of(const std::string& facet) {
    const auto [found, fresh] = changes_.emplace(facet, 0);
    if (!fresh) return found->second;
    for (const auto& [key, numbers] : reference_.tensors) {
      if (key.kind != TensorKey::Kind::kState || parts_of(key.source).second != facet) continue;
      const auto began = reference_.begin.find(key.source);
      const bool known = began != reference_.begin.end() && began->second.size() == numbers.size();
      found->second += known ? squares_between(numbers, began->second) : squares_of(numbers);
    }
    return found->second;
  }

  const Trace& reference_;
  std::map<int, double> gradients_;        // squares, of all in a step
  std::map<std::string, double> changes_;  // by facet
  std::map<std::string, bool>
      noise_;  // by path: whether its gradients are always below kNegligible
};

}  // namespace

bool has_narrow(const Scheme& scheme) {
  return std::any_of(scheme.objects.begin(), scheme.objects.end(), [](const Object& o) {
    return o.type.dtype == Dtype::kBF16 || o.type.dtype == Dtype::kF16;
  });
}

Scheme without_narrow(const Scheme& scheme) {
  const auto narrow = [](Dtype d) { return d == Dtype::kBF16 || d == Dtype::kF16; };
  Scheme result = scheme;
  for (Object& object : result.objects) {
    if (narrow(object.type.dtype)) object.type.dtype = Dtype::kF32;
  }
  for (Morphism& m : result.morphisms) {
    if (const auto found = m.attrs.find("dtype"); found != m.attrs.end()) {
      auto& word = std::get<std::string>(found->second);
      if (const auto dtype = dtype_named(word); dtype && narrow(*dtype)) word = "f32";
    }
    if (!says_body(m)) continue;
    auto& text = std::get<std::string>(m.attrs["body"]);
    Body body = parse_body(text);
    for (BodyOutput& out : body.outputs) {
      if (out.dtype && narrow(*out.dtype)) out.dtype = Dtype::kF32;
    }
    for (ExprNode& node : body.nodes) {
      const bool rounds = node.kind == ExprKind::kRound && narrow(static_cast<Dtype>(node.index));
      if (rounds) node.index = static_cast<int>(Dtype::kF64);  // which does not round
    }
    text = print(body);
  }
  verify(result);
  return result;
}

bool same_bits(const Numbers& a, const Numbers& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(double)) == 0);
}

double relative_error(const Numbers& a, const Numbers& b, double least) {
  if (a.size() != b.size()) return INFINITY;
  double difference = squares_between(a, b), size = squares_of(b);
  if (!std::isfinite(difference) || !std::isfinite(size)) {
    difference = size = 0;
    for (size_t i = 0; i < b.size(); ++i) {
      if (!std::isfinite(a[i]) && !std::isfinite(b[i])) continue;
      difference += (a[i] - b[i]) * (a[i] - b[i]);
      size += b[i] * b[i];
    }
  }
  if (difference == 0) return 0;
  if (!std::isfinite(difference)) return INFINITY;
  return std::sqrt(difference) / std::max({std::sqrt(size), least, 1e-30});
}

Errors errors_against(const Trace& run, const Trace& reference) {
  Scales scales(reference);
  Errors errors;
  for (const auto& [key, numbers] : run.tensors) {
    const auto found = reference.tensors.find(key);
    if (found == reference.tensors.end()) continue;
    errors[key] = relative_error(numbers, found->second, scales.least(key));
  }
  return errors;
}

Moved moved_from(const Trace& run, const Trace& other) {
  Moved moved;
  Numbers mine, theirs;
  for (const auto& [key, numbers] : run.tensors) {
    const auto found = other.tensors.find(key);
    if (key.step != 0 || found == other.tensors.end()) continue;
    if (key.source == "loss") moved.loss = relative_error(numbers, found->second);
    if (key.kind != TensorKey::Kind::kGradient || numbers.size() != found->second.size()) continue;
    mine.insert(mine.end(), numbers.begin(), numbers.end());
    theirs.insert(theirs.end(), found->second.begin(), found->second.end());
  }
  if (!mine.empty()) moved.gradients = relative_error(mine, theirs);
  return moved;
}

void raise(Moved& moved, const Moved& other) {
  moved.loss = std::max(moved.loss, other.loss);
  if (!other.gradients) return;
  moved.gradients = std::max(moved.gradients.value_or(0), *other.gradients);
}

Errors bit_differences(const Trace& a, const Trace& b) {
  Errors errors;
  for (const auto& [key, numbers] : a.tensors) {
    const auto found = b.tensors.find(key);
    if (found == b.tensors.end() || same_bits(numbers, found->second)) continue;
    errors[key] = relative_error(numbers, found->second);
  }
  return errors;
}

bool is_finite_somewhere(const Trace& trace) {
  const bool trained = trace.tensors.count({TensorKey::Kind::kMetric, "norm", 0});
  return std::any_of(trace.tensors.begin(), trace.tensors.end(), [&](const auto& entry) {
    const auto& [key, numbers] = entry;
    return key.kind == TensorKey::Kind::kMetric && key.source == (trained ? "norm" : "loss") &&
           std::isfinite(numbers[0]);
  });
}

void raise(Errors& errors, const Errors& others) {
  for (const auto& [key, error] : others) {
    double& mine = errors[key];
    mine = std::max(mine, error);
  }
}

}  // namespace adjoint
