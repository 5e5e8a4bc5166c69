#include "ops/words.h"

#include <cmath>

#include "base/error.h"
#include "base/text.h"
#include "ops/axes.h"
#include "ops/surface.h"

namespace adjoint {

namespace {

// Emits the pieces of one word under its path: conv#1.padded, conv#1.tap2, and the last one as
// conv#1 itself.
class Pieces {
 public:
  explicit Pieces(Builder& builder) : builder_(builder), whole_(builder.source()) {}

  Value part(std::string_view name, std::string_view op, std::vector<Value> inputs,
             Attrs attrs = {}) {
    builder_.at({whole_.path + "." + std::string(name)}, builder_.phase(), builder_.role());
    return builder_.emit(op, std::move(inputs), std::move(attrs));
  }
  Value last(std::string_view op, std::vector<Value> inputs, Attrs attrs = {}) {
    builder_.at(whole_, builder_.phase(), builder_.role());
    return builder_.emit(op, std::move(inputs), std::move(attrs));
  }

 private:
  Builder& builder_;
  Source whole_;
};

int64_t whole(const SurfaceCall& call, std::string_view op, std::string_view name, int64_t most) {
  const double value = call.number(name);
  if (std::floor(value) != value || std::abs(value) > static_cast<double>(most)) {
    fail(op, ": '", name, "' must be a whole number from -", most, " to ", most, ", found ", value);
  }
  return static_cast<int64_t>(value);
}

// y[t] = x[t - by] along an axis; `fill` where there is no such t.
std::vector<Value> shift(SurfaceCall& call) {
  Builder& b = call.builder;
  const Value x = call.tensor("x");
  const Type type = b.type(x);
  const int axis = static_cast<int>(call.size("axis")), rank = type.rank();
  const int64_t size = type.dim(axis), by = whole(call, "shift", "by", size);
  const double fill = call.number("fill");
  if (by == 0) return {x};
  Pieces pieces(b);
  const int64_t start = std::max<int64_t>(by, 0), from = std::max<int64_t>(-by, 0);
  const Value padded =
      pieces.part("padded", "pad", {x}, slice_attrs(rank, axis, start, size + std::abs(by)));
  const Attrs window = slice_attrs(rank, axis, from, size);
  if (fill == 0) return {pieces.last("slice", {padded}, window)};
  const Value moved = pieces.part("moved", "slice", {padded}, window);
  std::vector<int64_t> shape(rank - axis, 1);
  shape[0] = size;
  const Value at = pieces.part("index", "index", {}, {{"shape", shape}});
  const double border = static_cast<double>(by > 0 ? by : size + by);
  const Value early = pieces.part("before", "less", {at}, {{"b", border}});
  if (by > 0) return {pieces.last("where", {early, moved}, {{"yes", fill}})};
  return {pieces.last("where", {early, moved}, {{"no", fill}})};
}

// y[t] = sum over j < width of weight[j] * x[t - j], channel by channel: a causal depthwise
// convolution. One padded copy of x, and a sum of views of it.
std::vector<Value> conv(SurfaceCall& call) {
  Builder& b = call.builder;
  const Value x = call.tensor("x");
  const Type type = b.type(x);
  if (type.rank() != 3) fail("conv: wants x[batch, seq, channels], found ", shape_string(type));
  const int64_t width = call.size("width"), seq = type.dim(1), channels = type.dim(2);
  if (width < 1 || width > 64) fail("conv: width must be from 1 to 64, found ", width);
  const Value weight =
      call.parameter("weight", {call.axis("width"), type.axes[2]}, call.init("init"));
  std::optional<Value> bias;
  if (call.flag("bias")) {
    bias = call.parameter("bias", {type.axes[2]}, {.kind = Init::Kind::kZeros});
  }
  Pieces pieces(b);
  const Value padded =
      width == 1 ? x
                 : pieces.part("padded", "pad", {x}, slice_attrs(3, 1, width - 1, seq + width - 1));
  std::optional<Value> sum = bias;
  for (int64_t j = 0; j < width; ++j) {
    const std::string tap = "tap" + std::to_string(j);
    const Value moved =
        pieces.part(tap + ".x", "slice", {padded}, slice_attrs(3, 1, width - 1 - j, seq));
    const Value gain = pieces.part(tap + ".weight", "slice", {weight}, slice_attrs(2, 0, j, 1));
    const bool last = j + 1 == width;
    const std::vector<Value> factors = {moved, gain};
    if (!sum && last) return {pieces.last("mul", factors)};
    const Value product = pieces.part(tap, "mul", factors);
    if (!sum) {
      sum = product;
    } else {
      const std::vector<Value> terms = {product, *sum};
      sum = last ? pieces.last("add", terms) : pieces.part(tap + ".sum", "add", terms);
    }
  }
  CHECK(channels > 0 && sum, "a convolution has a tap");
  return {*sum};
}

// An axis of size 1 repeated: what has one value for all heads, say, as each head's own.
std::vector<Value> stretch(SurfaceCall& call) {
  const Type& type = call.type("x");
  const int axis = static_cast<int>(call.size("axis"));
  if (type.dim(axis) != 1) {
    fail("stretch: the axis must have size 1, found ", type.axes[axis].name, "=", type.dim(axis));
  }
  std::vector<int64_t> shape;
  for (const Axis& each : type.axes) shape.push_back(each.size);
  shape[axis] = call.size("size");
  const Value made =
      call.builder.emit("map", {call.tensor("x")}, {{"body", std::string("x0")}, {"shape", shape}});
  call.builder.scheme()[made].type.axes = call.type("x").axes;
  call.builder.scheme()[made].type.axes[axis] = call.axis("size");
  return {made};
}

}  // namespace

std::span<const OpDef> notation_words() {
  static const OpDef words[] = {
      {.name = "shift",
       .summary = "y[t] = x[t - by] along an axis (the second, unless said), `fill` at the border",
       .params = {{"x"},
                  {"by", Param::Kind::kNumber},
                  {"axis", Param::Kind::kAxis, "1"},
                  {"fill", Param::Kind::kNumber, "0"}},
       .surface = shift},
      {.name = "conv",
       .summary = "a causal depthwise convolution along the sequence",
       .params = {{"x"},
                  {"width", Param::Kind::kSize},
                  {"init", Param::Kind::kInit, "uniform(0.5)"},
                  {"bias", Param::Kind::kFlag, "no"}},
       .surface = conv},
      {.name = "stretch",
       .summary = "an axis of size 1 repeated `size` times",
       .params = {{"x"}, {"size", Param::Kind::kSize}, {"axis", Param::Kind::kAxis}},
       .surface = stretch},
      {.name = "param",
       .summary = "a learned object that no op owns, of these sizes",
       .params = {{"size", Param::Kind::kSize},
                  {"...", Param::Kind::kSize},
                  {"init", Param::Kind::kInit, "zeros"}}},
      {.name = "reverse",
       .summary = "a list, as a repeated box gathers it, from its end",
       .params = {{"list", Param::Kind::kTensors}}},
      {.name = "item",
       .summary = "one object of a list, by its number from 0",
       .params = {{"list", Param::Kind::kTensors}, {"number", Param::Kind::kNumber}}},
  };
  return words;
}

const OpDef* find_word(std::string_view name) {
  for (const OpDef& word : notation_words()) {
    if (word.name == name) return &word;
  }
  return nullptr;
}

std::string params_text(const OpDef& op) {
  std::vector<std::string> params;
  for (const Param& p : op.params) {
    params.emplace_back(p.name);
    if (!p.otherwise.empty()) params.back() += "=" + std::string(p.otherwise);
  }
  return join(params, ", ");
}

std::string signature(const OpDef& op) {
  const std::string name(op.name);
  return op.params.empty() ? name : name + "(" + params_text(op) + ")";
}

}  // namespace adjoint
