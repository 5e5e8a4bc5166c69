// cos and sin of position * base^(-2i/dim), for shape [seq, 1, dim]; both halves of a row have the
// same angles. Where an operand says at which position every sample begins, [batch, seq, 1, dim].
// For contexts longer than those of the first training the frequencies are lowered:
//   linear  all by `factor` (Chen et al., 2023);
//   llama3  those that turn less than `low` times within `original` positions by `factor`, those
//           that turn more than `high` times not at all, between them by degrees (Llama 3.1);
//   yarn    the same by `slow` and `fast` turns, by degrees of the pair's number, and cosines and
//           sines grow by 0.1 log(factor) + 1 (Peng et al., 2023).
#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "ops/carry.h"
#include "ops/samples.h"
#include "ops/shape_attr.h"

namespace adjoint {

namespace {

constexpr double kTurn = 6.283185307179586;  // 2 pi

double positive(const OpCall& call, std::string_view name) {
  const double value = call.number(name);
  if (!(value > 0)) fail("rotary_table: '", name, "' must be above 0, found ", value);
  return value;
}

Expr between_0_and_1(Expr e) { return min(max(e, constant(*e.body, 0)), constant(*e.body, 1)); }

struct Stretch {
  Expr frequency;
  double gain = 1;
};

Stretch stretch_of(const OpCall& call, Expr pair, Expr frequency, double half, double base) {
  const std::string way = call.text("scaling");
  if (way.empty()) return {frequency};
  const double factor = positive(call, "factor");
  if (way == "linear") return {frequency / factor};
  const double original = positive(call, "original");
  // The share of a frequency that stays as it is.
  const auto mixed = [&](Expr stays) { return frequency * ((1.0 - stays) / factor + stays); };
  if (way == "llama3") {
    const double low = positive(call, "low"), high = positive(call, "high");
    if (!(low < high)) fail("rotary_table: low must be below high, found ", low, " and ", high);
    return {mixed(between_0_and_1((frequency * (original / kTurn) - low) / (high - low)))};
  }
  if (way != "yarn") {
    fail("rotary_table: scaling is linear, llama3 or yarn, found '", way, "'");
  }
  // The pair that turns so often within the original context.
  const auto pair_that_turns = [&](double turns) {
    return half * std::log(original / (turns * kTurn)) / std::log(base);
  };
  const double first = std::max(0.0, std::floor(pair_that_turns(positive(call, "fast"))));
  const double last = std::min(2 * half - 1, std::ceil(pair_that_turns(positive(call, "slow"))));
  const double width = std::max(last - first, 0.001);
  return {mixed(1.0 - between_0_and_1((pair - first) / width)), 0.1 * std::log(factor) + 1};
}

Body body(const OpCall& call) {
  const std::vector<Axis> space = shape_attr(call);
  const size_t samples = axes_before_positions(call);
  if (space.size() != samples + 3 || space.back().size % 2) {
    fail("rotary_table: wants shape [seq, 1, dim] with dim even, found ", space.size(), " axes");
  }
  const double half = static_cast<double>(space.back().size) / 2, base = call.number("base");
  if (!(base > 1)) fail("rotary_table: the base must be above 1, found ", base);
  Body body;
  const Expr column = index_along(body, 0);
  const Expr pair = select(less(column, constant(body, half)), column, column - half);
  const Stretch stretch = stretch_of(call, pair, exp(pair * (-std::log(base) / half)), half, base);
  const Expr angle = counted_position(body, call, 2) * stretch.frequency;
  const Dtype dtype = dtype_attr(call);
  const auto grown = [&](Expr e) { return stretch.gain == 1 ? e : e * stretch.gain; };
  body.outputs = {{.node = grown(cos(angle)).node, .dtype = dtype},
                  {.node = grown(sin(angle)).node, .dtype = dtype}};
  return body;
}

}  // namespace

extern const OpDef op_rotary_table = {
    .name = "rotary_table",
    .summary = "cosines and sines of rotary angles",
    .body = body,
    .space = shape_attr,
    .wide = true,  // made once a step, and angles reach thousands of radians
    .differentiable = false,
    .output_names = {"sin"},
    .says_dtype = true,
    .carry = carry_counted_positions,
    .samples =
        [] {
          const auto at = [](Attrs scaling) {
            scaling["shape"] = std::vector<int64_t>{5, 1, 8};
            scaling["base"] = 1e4;
            return Sample{.inputs = {}, .attrs = std::move(scaling)};
          };
          const auto way = [](const char* word) { return std::string(word); };
          return std::vector<Sample>{
              {.inputs = {}, .attrs = {{"shape", std::vector<int64_t>{5, 1, 6}}, {"base", 1e4}}},
              {.inputs = {of({2, 1, 1, 1}, Dtype::kI32)},
               .attrs = {{"shape", std::vector<int64_t>{2, 5, 1, 6}}, {"base", 1e4}},
               .fills = {Sample::Fill::kIds},
               .ids_below = 50},
              at({{"scaling", way("linear")}, {"factor", 4.0}}),
              at({{"scaling", way("llama3")},
                  {"factor", 8.0},
                  {"low", 1.0},
                  {"high", 4.0},
                  {"original", 64.0}}),
              at({{"scaling", way("yarn")},
                  {"factor", 4.0},
                  {"fast", 32.0},
                  {"slow", 1.0},
                  {"original", 128.0}})};
        },
    .refused =
        [] {
          return std::vector<Sample>{
              {.inputs = {}, .attrs = {{"shape", std::vector<int64_t>{5, 1, 3}}, {"base", 1e4}}},
              {.inputs = {of({3, 1, 1, 1}, Dtype::kI32)},
               .attrs = {{"shape", std::vector<int64_t>{2, 5, 1, 6}}, {"base", 1e4}}}};
        },
};

}  // namespace adjoint
