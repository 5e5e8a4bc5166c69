#include "analysis/input_ranges.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <set>

#include "body/facts.h"
#include "ops/loss_count.h"

namespace adjoint {

namespace {

// Per object: the inputs that it is made from without floating-point arithmetic.
std::vector<std::set<Value>> inputs_behind(const Scheme& forward) {
  std::vector<std::set<Value>> from(forward.objects.size());
  for (const Value in : forward.inputs) {
    if (forward[in].role == Role::kInput) from[in] = {in};
  }
  for (const Morphism& m : forward.morphisms) {
    for (const Value out : m.outputs) {
      if (is_float(forward[out].type.dtype)) continue;
      for (const Value in : m.inputs) from[out].insert(from[in].begin(), from[in].end());
    }
  }
  return from;
}

// What v holds where the input holds `entry`, and all that is made without it is `other`.
double entry_where(const Scheme& forward, Value v, Value input, double entry, double other) {
  std::vector<double> holds(forward.objects.size(), other);
  std::vector<bool> follows(forward.objects.size(), false);
  holds[input] = entry;
  follows[input] = true;
  for (const Morphism& m : forward.morphisms) {
    const auto first =
        std::find_if(m.inputs.begin(), m.inputs.end(), [&](Value in) { return follows[in]; });
    if (first == m.inputs.end()) continue;
    const OpDef& op = op_named(m.op);
    std::vector<std::vector<double>> rows;
    for (const Value in : m.inputs) rows.push_back({holds[in]});
    const bool computes = op.body || says_body(m);
    if (computes) rows = results_of_row(body_of(call_of(forward, m)), rows);
    for (size_t k = 0; k < m.outputs.size(); ++k) {
      holds[m.outputs[k]] = computes ? rows[k][0] : holds[*first];  // else it moves entries
      follows[m.outputs[k]] = true;
    }
  }
  return holds[v];
}

}  // namespace

InputRanges input_ranges(const Scheme& forward) {
  const std::vector<std::set<Value>> from = inputs_behind(forward);
  std::map<Value, InputRange> ranges;
  const auto bound = [&](Value ids, int64_t below, std::optional<int64_t> ignored) {
    for (const Value in : from[ids]) {
      const auto [found, fresh] =
          ranges.emplace(in, InputRange{.below = below, .ignored = ignored});
      if (!fresh) found->second.below = std::min(found->second.below.value_or(below), below);
    }
  };
  for (const Morphism& m : forward.morphisms) {
    const OpDef& op = op_named(m.op);
    if (!op.loss) continue;
    bound(m.inputs[op.targets], forward[m.inputs[0]].type.dim(-1),
          ignored_target(call_of(forward, m)));
  }
  for (const Morphism& m : forward.morphisms) {
    const OpDef& op = op_named(m.op);
    if (op.table < 0) continue;
    const Value ids = m.inputs[0];
    const int64_t below = forward[m.inputs[op.table]].type.dim(0);
    bound(ids, below, std::nullopt);
    for (const Value in : from[ids]) {
      std::optional<int64_t>& ignored = ranges.at(in).ignored;
      const auto is_there = [&](double other) {
        const double id = entry_where(forward, ids, in, static_cast<double>(*ignored), other);
        return id >= 0 && id < static_cast<double>(below);
      };
      if (ignored && !(is_there(0) && is_there(1))) ignored.reset();
    }
  }
  InputRanges by_path;
  for (const auto& [in, range] : ranges) by_path[forward[in].source.path] = range;
  for (const auto& [path, value] : ignored_values(forward)) by_path[path].padding = value;
  return by_path;
}

std::set<std::string> inputs_computed_with(const Scheme& forward) {
  const std::vector<std::set<Value>> from = inputs_behind(forward);
  std::set<std::string> paths;
  for (const Morphism& m : forward.morphisms) {
    const OpDef& op = op_named(m.op);
    if ((!op.body || op.wide) && !says_body(m)) continue;
    for (const Value operand : m.inputs) {
      for (const Value in : from[operand]) {
        if (!is_float(forward[in].type.dtype)) paths.insert(forward[in].source.path);
      }
    }
  }
  return paths;
}

namespace {

// Whether objects may hold -inf among the numbers of a row.
class Masks {
 public:
  explicit Masks(const Scheme& scheme)
      : scheme_(scheme),
        read_by_(readers(scheme)),
        outside_(returned_or_carried(scheme)),
        known_(scheme.objects.size()) {}

  bool operator()(Value v) {
    if (!known_[v]) known_[v] = !outside_[v] && readers_take_it(v);
    return *known_[v];
  }

 private:
  bool readers_take_it(Value v) {
    return std::all_of(read_by_[v].begin(), read_by_[v].end(), [&](int reader) {
      const Morphism& m = scheme_.morphisms[reader];
      const OpDef& op = op_named(m.op);
      if (op.body || says_body(m)) return computes_with_it(m, v);
      const bool moves = op.view || op.lies != LiesWithin::kNo;
      return moves && std::all_of(m.outputs.begin(), m.outputs.end(), std::ref(*this));
    });
  }

  // By numbers: one of a row of four, or the one number that is stretched along it.
  bool computes_with_it(const Morphism& m, Value v) {
    constexpr double kMasked = -std::numeric_limits<double>::infinity();
    std::vector<std::vector<double>> rows;
    for (const Value in : m.inputs) {
      const Type& type = scheme_[in].type;
      const bool row = type.rank() > 0 && type.dim(-1) > 1;
      std::vector<double> numbers = {0.7310585786};
      if (row) numbers.insert(numbers.end(), {1.3132616875, 0.3132616875, 2.2689414214});
      if (in == v) numbers[row ? 2 : 0] = kMasked;
      rows.push_back(std::move(numbers));
    }
    const auto results = results_of_row(body_of(call_of(scheme_, m)), rows);
    for (size_t k = 0; k < results.size(); ++k) {
      bool any = false;
      for (const double result : results[k]) {
        if (!std::isfinite(result) && result != kMasked) return false;
        any = any || result == kMasked;
      }
      if (any && !(*this)(m.outputs[k])) return false;
    }
    return true;
  }

  const Scheme& scheme_;
  std::vector<std::vector<int>> read_by_;
  std::vector<bool> outside_;
  std::vector<std::optional<bool>> known_;
};

}  // namespace

std::set<std::string> inputs_that_mask(const Scheme& forward) {
  Masks may_be_masked(forward);
  std::set<std::string> paths;
  for (const Value in : forward.inputs) {
    const Object& object = forward[in];
    const bool numbers = object.role == Role::kInput && is_float(object.type.dtype);
    if (numbers && may_be_masked(in)) paths.insert(object.source.path);
  }
  return paths;
}

std::map<std::string, int64_t> ignored_values(const Scheme& forward) {
  const std::vector<std::set<Value>> from = inputs_behind(forward);
  std::map<std::string, int64_t> values;
  for (const Morphism& m : forward.morphisms) {
    const auto count = is_loss_term(m) ? loss_count(m) : std::nullopt;
    if (!count) continue;
    for (const Value in : from[count->targets]) {
      values.emplace(forward[in].source.path, ignored_target(call_of(forward, m)));
    }
  }
  return values;
}

}  // namespace adjoint
