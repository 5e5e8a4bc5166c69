// Every op on the ranks of a mesh: sharded along every letter that its index map allows, on two and
// three ranks, its gradient's calls as well, against the call on one rank. What the map says is all
// that placement knows of an op.
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>

#include "analysis/spread.h"
#include "comm/threads.h"
#include "functors/phases.h"
#include "kernels/harness.h"
#include "kernels/kernel_contract.h"

namespace adjoint {

namespace {

// One call and its operands.
struct ShardedCall {
  std::string op;
  std::vector<Type> types;
  Attrs attrs;
  std::vector<Numbers> x;

  Scheme scheme() const {
    Scheme s = sample_scheme(op, {.inputs = types, .attrs = attrs}, Dtype::kF64);
    for (const Value in : s.inputs) {
      if (s[in].type == random_counter_type()) s[in].role = Role::kControl;
    }
    return s;
  }
};

// The calls of a scheme, each on the operands that it has there.
std::vector<ShardedCall> calls_in(Scheme scheme, const std::vector<Numbers>& inputs) {
  std::map<Value, Numbers> values;
  for (size_t i = 0; i < inputs.size(); ++i) values[scheme.inputs[i]] = inputs[i];
  scheme.outputs.clear();
  for (const Morphism& m : scheme.morphisms) {
    scheme.outputs.insert(scheme.outputs.end(), m.outputs.begin(), m.outputs.end());
  }
  const std::vector<Numbers> made = run_scheme(scheme, inputs, true);
  for (size_t k = 0; k < made.size(); ++k) values[scheme.outputs[k]] = made[k];
  std::vector<ShardedCall> calls;
  for (const Morphism& m : scheme.morphisms) {
    ShardedCall call{m.op, {}, m.attrs, {}};
    for (const Value in : m.inputs) {
      call.types.push_back(scheme[in].type);
      call.x.push_back(values[in]);
      // As they are stored: the reference rounds what is made in a narrow type, and no input.
      if (!is_float(scheme[in].type.dtype)) continue;
      for (double& x : call.x.back()) x = round_element(x, scheme[in].type.dtype);
    }
    calls.push_back(std::move(call));
  }
  return calls;
}

// The outputs of a scheme with a mesh, run by a thread per rank. Operands are whole.
std::vector<Numbers> run_on_ranks(const Scheme& scheme, const std::vector<Numbers>& whole,
                                  const std::vector<double>& padding) {
  const Scheme s = to_reference(scheme);
  const Plan plan = make_plan(s, {.threads = num_threads(), .deterministic = true});
  std::vector<Numbers> outputs;
  run_ranks(num_ranks(s.mesh), [&](const Communicator& world) {
    Seat seat(world, s.mesh);
    Run run(s, plan, {.reference = true, .poison = true, .seat = &seat});
    for (size_t i = 0; i < whole.size(); ++i) {
      Numbers piece(s[s.inputs[i]].type.num_elements(), padding[i]);
      for (const ShardRun& r : run.runs_of(s.inputs[i])) {
        std::copy_n(whole[i].begin() + r.whole, r.count, piece.begin() + r.local);
      }
      run.set_values(s.inputs[i], piece);
    }
    run.step();
    if (seat.rank() > 0) return;
    for (const Value out : s.outputs) outputs.push_back(run.values(out));
  });
  return outputs;
}

// Shards the call along a cut on so many ranks: all operands that have it, or the one alone that
// `first` names, so that each rank takes its pieces of the others. Where the ranks do not divide
// the letter, a call that sums over it may refuse, because what pads a piece would count.
void expect_same_on_ranks(const ShardedCall& call, const CallShares& shares, bool even, int ranks,
                          std::optional<size_t> first) {
  Scheme scheme = call.scheme();
  const std::vector<Numbers> want = run_scheme(scheme, call.x, true);
  scheme.mesh = {{"data", ranks}};
  std::vector<double> padding(call.x.size(), 0);
  const OpDef& op = op_named(call.op);
  if (op.targets >= 0 && op.targets < static_cast<int>(padding.size())) {
    padding[op.targets] = static_cast<double>(ignored_target(call_of(scheme, scheme.morphisms[0])));
  }
  for (size_t i = 0; i < shares.wants.size(); ++i) {
    const Share& share = shares.wants[i];
    if (!share.is_piece() || (first && i != *first)) continue;
    scheme[scheme.inputs[i]].attributes.placement = {
        {"data", Spread::kSharded, share.axis, 0, share.segments}};
  }
  Scheme sharded;
  try {
    sharded = realize_placement(scheme, {.axis = [](std::string_view) { return "a test"; }});
  } catch (const Error& e) {
    EXPECT_FALSE(even) << e.what();
    return;
  }
  verify(sharded);
  const std::vector<Numbers> have = run_on_ranks(sharded, call.x, padding);
  ASSERT_EQ(have.size(), want.size());
  for (size_t k = 0; k < want.size(); ++k) {
    ASSERT_EQ(have[k].size(), want[k].size());
    double difference = 0, most = 1;
    for (size_t i = 0; i < want[k].size(); ++i) {
      if (!std::isfinite(want[k][i]) && !std::isfinite(have[k][i])) continue;
      difference = std::max(difference, std::abs(have[k][i] - want[k][i]));
      most = std::max(most, std::abs(want[k][i]));
    }
    EXPECT_LE(difference, 1e-12 * most) << "result " << k << "\n" << print(sharded);
  }
}

// The pieces that an axis of an operand can come in: of all of it, and of what it consists of.
std::vector<Share> pieces_of(const OpCall& call, const IndexMap& map, size_t operand, int axis) {
  std::vector<Share> pieces = {piece_along(axis)};
  const char letter = map.inputs[operand][axis];
  std::vector<int64_t> segments;
  if (const MergedAxis* merged = map.merged_axis(letter)) {
    for (const std::string& segment : merged->segments) {
      int64_t size = 1;
      for (const char c : segment) size *= size_along(call, c);
      segments.push_back(size);
    }
  } else if (letter == '.' && operand < map.beside.inputs.size()) {
    for (const int number : map.beside.inputs[operand]) {
      segments.push_back(map.beside.sizes[number]);
    }
  }
  if (segments.size() > 1) pieces.push_back(piece_along(axis, segments));
  return pieces;
}

// Returns in how many ways it was sharded.
int expect_sharded(const ShardedCall& sample) {
  const Scheme scheme = sample.scheme();
  const OpCall call = call_of(scheme, scheme.morphisms[0]);
  const IndexMap map = index_map_of(call);
  int sharded = 0;
  for (const int ranks : {2, 3}) {
    std::vector<Cut> seen;
    for (size_t i = 0; i < map.inputs.size(); ++i) {
      for (int axis = 0; axis < call.inputs[i].rank(); ++axis) {
        if (call.inputs[i].dim(axis) < ranks) continue;
        for (const Share& share : pieces_of(call, map, i, axis)) {
          std::vector<Share> comes(call.inputs.size(), kWhole);
          comes[i] = share;
          const std::vector<Cut> cuts = cuts_of(call, comes, ranks);
          if (cuts.empty() || std::count(seen.begin(), seen.end(), cuts[0])) continue;
          seen.push_back(cuts[0]);
          SCOPED_TRACE(to_string(map) + ": operand " + std::to_string(i) + " along axis " +
                       std::to_string(axis) + " (" + cuts[0].letter + ") over " +
                       std::to_string(ranks) + " ranks");
          const CallShares shares =
              shares_along(call, comes, scheme.morphisms[0].outputs.size(), cuts[0]);
          const bool even = call.inputs[i].dim(axis) % ranks == 0;
          expect_same_on_ranks(sample, shares, even, ranks, std::nullopt);
          expect_same_on_ranks(sample, shares, even, ranks, i);
          ++sharded;
        }
      }
    }
  }
  return sharded;
}

class ShardedOps : public testing::TestWithParam<const OpDef*> {};

TEST_P(ShardedOps, AreWhatTheyAreOnOneRank) {
  const OpDef& op = *GetParam();
  int sharded = 0;
  bool has_matrix = false;
  for (const Sample& sample : op.samples ? op.samples() : std::vector<Sample>{}) {
    for (const Type& type : sample.inputs) {
      has_matrix = has_matrix || (type.rank() > 1 && type.num_elements() > 1);
    }
    std::vector<Numbers> x = sample_numbers(sample, Dtype::kF64, 6);
    std::vector<ShardedCall> calls = calls_in(sample_scheme(op.name, sample, Dtype::kF64), x);
    if (op.differentiable) {
      const GradientScheme g = gradient_scheme(op, sample, Dtype::kF64);
      for (const Numbers& w : weights_for(g, x.size(), Dtype::kF64)) x.push_back(w);
      for (ShardedCall& call : calls_in(g.scheme, x)) calls.push_back(std::move(call));
    }
    for (const ShardedCall& call : calls) sharded += expect_sharded(call);
  }
  EXPECT_TRUE(sharded > 0 || !has_matrix);
}

INSTANTIATE_TEST_SUITE_P(All, ShardedOps, testing::ValuesIn(all_ops().begin(), all_ops().end()),
                         [](const auto& info) { return std::string(info.param->name); });

}  // namespace
}  // namespace adjoint
