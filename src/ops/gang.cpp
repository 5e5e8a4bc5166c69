// y0.., y1.., ... = gang(x0.., x1.., ..., s..): `calls` calls of one elementwise or row op, the
// last `shared` operands given once for all of them. Its other attributes are the op's own. What it
// saves is the start of a parallel region per call, and that small calls leave most threads idle:
// all calls together are cut by elements, so a matrix is shared out and vectors are taken along.
// Each call gives the bits that it gives alone.
// Calls of an op that adds everything up to single numbers are a gang, too. On the CPU they run one
// after another as they do alone; on a GPU all of them are two launches, which add in an order of
// their own, one that a call's size decides.
#include "ops/gang.h"

#include <algorithm>

#include "base/counts.h"
#include "base/error.h"
#include "body/facts.h"
#include "ops/builder.h"
#include "ops/optimizer_samples.h"

namespace adjoint {

namespace {

Attrs own_attrs(const Attrs& attrs) {
  Attrs own = attrs;
  for (const std::string_view key : {"op", "calls", "shared", "from"}) {
    if (const auto found = own.find(key); found != own.end()) own.erase(found);
  }
  return own;
}

}  // namespace

GangMembers gang_members(const OpCall& gang) {
  const std::string name = gang.text("op");
  GangMembers m{.op = find_op(name), .attrs = own_attrs(gang.attrs)};
  if (!m.op || !is_row_op(*m.op)) {
    fail("gang: op '", name, "' is no elementwise or row op that a body alone says");
  }
  m.calls = gang.integer("calls");
  m.shared = gang.integer("shared", 0);
  const int64_t given = static_cast<int64_t>(gang.inputs.size()) - m.shared;
  if (m.calls < 1 || m.shared < 0 || given < 0 || given % m.calls != 0) {
    fail("gang: ", gang.inputs.size(), " operands are not those of ", m.calls, " calls of ", name,
         " and ", m.shared, " that they share");
  }
  m.own = given / m.calls;
  return m;
}

bool is_gang_of_sums(const OpCall& gang, const GangMembers& m) {
  return makes_single_numbers(body_of(m.call(gang, 0)));
}

namespace {

std::vector<Type> infer(const OpCall& gang) {
  const GangMembers m = gang_members(gang);
  const bool sums = is_gang_of_sums(gang, m);
  std::vector<Type> types;
  for (int64_t i = 0; i < m.calls; ++i) {
    const OpCall call = m.call(gang, i);
    const Body body = body_of(call);
    if (sums ? !makes_single_numbers(body) : !runs_in_units(body)) {
      fail("gang: ", call.op, " sums over rows or draws random numbers, and such calls run alone");
    }
    const std::vector<Type> made = infer_types(call);
    types.insert(types.end(), made.begin(), made.end());
  }
  return types;
}

// Where all calls have one shape, an axis of one is an axis of all. Else no axis is, and none may
// be split.
IndexMap index_map(const OpCall& gang) {
  const GangMembers m = gang_members(gang);
  const OpCall first = m.call(gang, 0);
  const IndexMap one = index_map_of(first);
  bool alike = true;
  for (int64_t i = 1; i < m.calls; ++i) {
    const OpCall call = m.call(gang, i);
    alike = alike && std::equal(call.inputs.begin(), call.inputs.end(), first.inputs.begin(),
                                [](const Type& x, const Type& y) { return same_shape(x, y); });
  }
  IndexMap all;
  all.whole = alike ? one.whole : "";
  all.inputs.resize(gang.inputs.size());
  const std::vector<Type> outputs = infer(gang);
  for (int64_t i = 0; i < m.calls; ++i) {
    for (int64_t k = 0; k < m.own + m.shared; ++k) {
      const size_t at = m.operand(i, k);
      all.inputs[at] = alike ? one.inputs[k] : std::string(gang.inputs[at].rank(), '.');
    }
    for (size_t k = 0; k < one.outputs.size(); ++k) {
      const Type& made = outputs[all.outputs.size()];
      all.outputs.push_back(alike ? one.outputs[k] : std::string(made.rank(), '.'));
    }
  }
  return all;
}

int64_t flops(const OpCall& gang) {
  const GangMembers m = gang_members(gang);
  int64_t sum = 0;
  for (int64_t i = 0; i < m.calls; ++i) sum = sum_of(sum, count_flops(m.call(gang, i)));
  return sum;
}

// What one call may overwrite of its own. Not what is shared: others read it, before or after.
std::vector<std::pair<int, int>> may_overwrite(const OpCall& gang) {
  const GangMembers m = gang_members(gang);
  std::vector<std::pair<int, int>> pairs;
  int first = 0;
  for (int64_t i = 0; i < m.calls; ++i) {
    const OpCall call = m.call(gang, i);
    for (const auto& [output, operand] : overwrites(call)) {
      if (operand >= m.own) continue;
      pairs.emplace_back(first + output, static_cast<int>(m.operand(i, operand)));
    }
    first += static_cast<int>(body_of(call).outputs.size());
  }
  return pairs;
}

std::vector<Value> meaning(Builder& builder, std::span<const Value> in, const Attrs& attrs) {
  OpCall gang{.op = "gang", .inputs = {}, .attrs = attrs};
  for (const Value v : in) gang.inputs.push_back(builder.type(v));
  const GangMembers m = gang_members(gang);
  const std::vector<Value> operands(in.begin(), in.end());
  std::vector<Value> results;
  for (int64_t i = 0; i < m.calls; ++i) {
    const auto made = builder.emit_all(m.op->name, m.operands(operands, i), m.attrs);
    results.insert(results.end(), made.begin(), made.end());
  }
  return results;
}

std::vector<Sample> samples() {
  const Attrs adamw = {{"op", std::string("adamw")},
                       {"calls", int64_t{3}},
                       {"shared", int64_t{4}},
                       {"beta1", 0.9},
                       {"beta2", 0.999},
                       {"eps", 1e-8},
                       {"decay", 0.1}};
  Sample updates{.inputs = {}, .attrs = adamw};
  for (const auto& sizes :
       {std::vector<int64_t>{7}, std::vector<int64_t>{3, 5000}, std::vector<int64_t>{}}) {
    updates.inputs.insert(updates.inputs.end(), 4, of(sizes));
  }
  updates.fills.assign(12, Sample::Fill::kPositive);
  updates.inputs.resize(16, of({}));
  updates.fills.resize(16, Sample::Fill::kOne);
  // Whole rows, of different lengths, and nothing shared.
  const Sample rows{.inputs = {of({5, 3}), of({2, 70}), of({3, 2, 33})},
                    .attrs = {{"op", std::string("softmax")}, {"calls", int64_t{3}}}};
  const Sample alike{.inputs = {of({5, 6}), of({6}), of({5, 6}), of({6})},
                     .attrs = {{"op", std::string("add")}, {"calls", int64_t{2}}}};
  // Sums: less than a block of a GPU's, several, one number, and rows behind the last one.
  const Attrs sum = {{"op", std::string("square_sum")}};
  Sample sums{.inputs = {of({7}), of({5, 9001}), of({}), of({3, 2, 33}), of({40, 513}), of({2048})},
              .attrs = sum};
  sums.inputs[4].axes[0].padded = 64;
  sums.attrs["calls"] = int64_t{6};
  Sample alike_sums{.inputs = {of({4, 6}), of({4, 6})}, .attrs = sum};
  alike_sums.attrs["calls"] = int64_t{2};
  Sample casts{
      .inputs = {of({7}), of({40, 513}), of({}), of({3, 16})},
      .attrs = {
          {"op", std::string("cast")}, {"calls", int64_t{4}}, {"dtype", std::string("bf16")}}};
  casts.inputs[1].axes[0].padded = 64;
  return {updates, rows, alike, sums, alike_sums, casts};
}

std::vector<Sample> refused() {
  const auto call = [](std::vector<Type> inputs, const char* op, int64_t calls, int64_t shared) {
    return Sample{.inputs = std::move(inputs),
                  .attrs = {{"op", std::string(op)}, {"calls", calls}, {"shared", shared}}};
  };
  Sample draws = call({of({3}), random_counter_type()}, "dropout", 1, 0);
  draws.attrs["rate"] = 0.5;
  Body column_sums;
  column_sums.outputs = {{.node = input(column_sums, 0).node, .summed_axes = 1}};
  Sample columns = call({of({3, 4})}, "map", 1, 0);
  columns.attrs["body"] = print(column_sums);
  return {draws,
          columns,
          call({of({3})}, "sorcery", 1, 0),
          call({of({3, 3})}, "split", 1, 0),
          call({of({3}), of({4}), of({5})}, "gelu", 2, 0),
          call({of({3}), of({4}), of({5})}, "square_sum", 2, 0),
          call({of({3})}, "gelu", 0, 0),
          call({of({3})}, "gelu", 1, 2)};
}

}  // namespace

std::optional<std::string> op_of_gang(const Morphism& m) {
  if (m.op != "gang") return std::nullopt;
  return std::get<std::string>(m.attrs.at("op"));
}

extern const OpDef op_gang = {
    .name = "gang",
    .summary = "several calls of one elementwise or row op, run as one",
    .infer = infer,
    .index_map = index_map,
    .flops = flops,
    .differentiable = false,
    // The strongest effect that any of its calls may have. No functor that repeats calls acts after
    // gangs are made, so this keeps none from repeating one.
    .effect = Effect::kWritesState,
    .says_body = true,
    .takes_padding = true,
    .overwrites = may_overwrite,
    .meaning = meaning,
    .samples = samples,
    .refused = refused,
};

}  // namespace adjoint
