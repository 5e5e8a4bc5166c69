// Functions of elements that a model's text may call, each a body of one line. Operands are objects
// or numbers; a number is an attribute with the operand's name.
#include <cmath>

#include "base/counts.h"
#include "base/error.h"
#include "ops/samples.h"
#include "ops/surface.h"

namespace adjoint {

namespace {

constexpr int64_t kMostExact = 1 << 24;  // bodies compute whole numbers in float32, too

// The operands of a call by their names: an object that is not given as a number is the next one.
class Operands {
 public:
  Operands(Body& body, const OpCall& call) : body_(body), call_(call) {}

  Expr operator()(std::string_view name) {
    if (call_.attrs.count(name)) return constant(body_, call_.number(name));
    if (next_ >= static_cast<int>(call_.inputs.size())) {
      fail(call_.op, ": '", name, "' is missing");
    }
    return input(body_, next_++);
  }
  void done() const {
    if (next_ != static_cast<int>(call_.inputs.size())) {
      fail(call_.op, ": wants ", counted(next_, "object"), ", found ", call_.inputs.size());
    }
    if (next_ == 0) fail(call_.op, ": wants an object among its operands, found numbers alone");
  }

 private:
  Body& body_;
  const OpCall& call_;
  int next_ = 0;
};

Body body_with(Body body, Expr result) {
  body.outputs = {{.node = result.node}};
  return body;
}

template <class F>
Body body_of_one(const OpCall& call, const F& f) {
  Body body;
  Operands operand(body, call);
  const Expr result = f(operand("x"));
  operand.done();
  return body_with(body, result);
}

template <class F>
Body body_of_two(const OpCall& call, const F& f) {
  Body body;
  Operands operand(body, call);
  const Expr a = operand("a"), b = operand("b");
  operand.done();
  const Expr result = f(a, b);  // a line of its own: it adds to the body that is copied next
  return body_with(body, result);
}

// x^n: by multiplication where n is a small whole number, so that negative x are welcome.
Expr power(Expr x, double n) {
  if (n < 0) return 1.0 / power(x, -n);
  if (n == 0.5) return sqrt(x);
  if (n != std::floor(n) || n > 16) return exp(log(x) * n);
  if (n == 0) return constant(*x.body, 1);
  Expr product = x;
  for (int i = 1; i < static_cast<int>(n); ++i) product = product * x;
  return product;
}

const std::vector<Param> kOfOne = {{"x"}};
const std::vector<Param> kOfTwo = {{"a", Param::Kind::kOperand}, {"b", Param::Kind::kOperand}};

std::vector<Sample> positive_samples() {
  std::vector<Sample> samples = one_operand_samples();
  for (Sample& sample : samples) sample.fills = {Sample::Fill::kPositive};
  return samples;
}

std::vector<Sample> samples_of_two() {
  std::vector<Sample> samples = two_operand_samples();
  samples.push_back({.inputs = {of({3, 5})}, .attrs = {{"b", 0.25}}});
  samples.push_back({.inputs = {of({3, 5})}, .attrs = {{"a", -0.25}}});
  return samples;
}

std::vector<Sample> refusals_of_two() {
  std::vector<Sample> samples = two_operand_refusals();
  samples.push_back({.inputs = {}, .attrs = {{"a", 1.0}, {"b", 2.0}}});
  samples.push_back({.inputs = {of({3}), of({3})}, .attrs = {{"b", 2.0}}});
  return samples;
}

// Positions and ids are compared, too.
std::vector<Sample> comparison_samples() {
  std::vector<Sample> samples = samples_of_two();
  samples.push_back({.inputs = {of({2, 5, 1}, Dtype::kI32), of({2, 1, 5}, Dtype::kI32)},
                     .fills = {Sample::Fill::kIds, Sample::Fill::kIds}});
  return samples;
}

}  // namespace

namespace {

// pow(x, 3), or pow(0.9, step): a number to the power of an object is exp of a multiple of it.
std::vector<Value> raised(SurfaceCall& call) {
  const auto *x = std::get_if<Value>(&call.arguments.at("x")),
             *power = std::get_if<Value>(&call.arguments.at("power"));
  if (x && power) fail("pow: wants a number beside an object, found two objects");
  if (x) return {call.builder.emit("pow", {*x}, {{"power", call.number("power")}})};
  if (!power) fail("pow: wants an object and a number, found two numbers");
  const double base = call.number("x");
  if (!(base > 0)) fail("pow: a number to the power of an object is more than 0, found ", base);
  Builder& b = call.builder;
  b.at({call.path + ".log"}, b.phase(), b.role());
  const Value log = b.emit("scale", {*power}, {{"by", std::log(base)}, {"plus", 0.0}});
  b.at({call.path}, b.phase(), b.role());
  return {b.emit("exp", {log})};
}

}  // namespace

#define FUNCTION(NAME, SUMMARY, EXPRESSION, SAMPLES)                                               \
  extern const OpDef op_##NAME = {                                                                 \
      .name = #NAME,                                                                               \
      .summary = (SUMMARY),                                                                        \
      .params = kOfOne,                                                                            \
      .body =                                                                                      \
          [](const OpCall& call) { return body_of_one(call, [](Expr x) { return EXPRESSION; }); }, \
      .samples = (SAMPLES),                                                                        \
      .refused = no_operand_refusal,                                                               \
  }
FUNCTION(sqrt, "the square root", sqrt(x), positive_samples);
FUNCTION(log, "the natural logarithm", log(x), positive_samples);
FUNCTION(cos, "the cosine", cos(x), one_operand_samples);
FUNCTION(sin, "the sine", sin(x), one_operand_samples);
FUNCTION(abs, "the absolute value", max(x, -x), one_operand_samples);
#undef FUNCTION

extern const OpDef op_sign = {
    .name = "sign",
    .summary = "1 where x > 0, -1 where x < 0, else 0",
    .params = kOfOne,
    .body =
        [](const OpCall& call) {
          return body_of_one(call, [](Expr x) {
            const Expr zero = constant(*x.body, 0);
            return less(zero, x) - less(x, zero);
          });
        },
    .differentiable = false,
    .samples = one_operand_samples,
    .refused = no_operand_refusal,
};

extern const OpDef op_pow = {
    .name = "pow",
    .summary =
        "x to the power of a number, or a number to the power of an object; of negative x, "
        "whole powers up to 16",
    .params = {{"x", Param::Kind::kOperand}, {"power", Param::Kind::kOperand}},
    .surface = raised,
    .body =
        [](const OpCall& call) {
          const double n = call.number("power");
          return body_of_one(call, [n](Expr x) { return power(x, n); });
        },
    .samples =
        [] {
          const auto at = [](double n, Sample::Fill fill) {
            return Sample{.inputs = {of({3, 5})}, .attrs = {{"power", n}}, .fills = {fill}};
          };
          return std::vector<Sample>{
              at(2, Sample::Fill::kNormal),      at(3, Sample::Fill::kNormal),
              at(0.5, Sample::Fill::kPositive),  at(-1, Sample::Fill::kPositive),
              at(-0.5, Sample::Fill::kPositive), at(1.7, Sample::Fill::kPositive),
              at(1, Sample::Fill::kNormal)};
        },
    .refused =
        [] {
          return std::vector<Sample>{{.inputs = {}, .attrs = {{"power", 2.0}}},
                                     {.inputs = {of({3})}}};
        },
};

extern const OpDef op_maximum = {
    .name = "maximum",
    .summary = "the larger of two, element by element",
    .params = kOfTwo,
    .body =
        [](const OpCall& call) {
          return body_of_two(call, [](Expr a, Expr b) { return max(a, b); });
        },
    .samples = samples_of_two,
    .refused = refusals_of_two,
};

extern const OpDef op_minimum = {
    .name = "minimum",
    .summary = "the smaller of two, element by element",
    .params = kOfTwo,
    .body =
        [](const OpCall& call) {
          return body_of_two(call, [](Expr a, Expr b) { return min(a, b); });
        },
    .samples = samples_of_two,
    .refused = refusals_of_two,
};

extern const OpDef op_less = {
    .name = "less",
    .summary = "1 where a < b, else 0",
    .params = kOfTwo,
    .body =
        [](const OpCall& call) {
          return body_of_two(call, [](Expr a, Expr b) { return less(a, b); });
        },
    .differentiable = false,
    .samples = comparison_samples,
    .refused = refusals_of_two,
};

extern const OpDef op_equal = {
    .name = "equal",
    .summary = "1 where a == b, else 0",
    .params = kOfTwo,
    .body =
        [](const OpCall& call) {
          return body_of_two(call, [](Expr a, Expr b) { return equal(a, b); });
        },
    .differentiable = false,
    .samples = comparison_samples,
    .refused = refusals_of_two,
};

extern const OpDef op_where = {
    .name = "where",
    .summary = "`yes` where the condition is not 0, `no` where it is",
    .params = {{"condition"}, {"yes", Param::Kind::kOperand}, {"no", Param::Kind::kOperand}},
    .body =
        [](const OpCall& call) {
          Body body;
          Operands operand(body, call);
          const Expr condition = operand("condition"), yes = operand("yes"), no = operand("no");
          operand.done();
          // A choice among ids is an id.
          bool floating = call.attrs.count("yes") && call.attrs.count("no");
          for (size_t i = 1; i < call.inputs.size(); ++i) {
            floating = floating || is_float(call.inputs[i].dtype);
          }
          body.outputs = {{.node = select(condition, yes, no).node}};
          if (!floating) body.outputs[0].dtype = Dtype::kI32;
          for (const char* name : {"yes", "no"}) {
            const double number = call.number(name, 0);
            if (floating || (std::floor(number) == number &&
                             std::abs(number) <= static_cast<double>(kMostExact))) {
              continue;
            }
            fail("where: '", name, "' stands beside whole numbers, so it must be one of at most ",
                 kMostExact, ", found ", number);
          }
          for (size_t i = 1; floating && i < call.inputs.size(); ++i) {
            if (is_float(call.inputs[i].dtype)) body.outputs[0].dtype = call.inputs[i].dtype;
          }
          return body;
        },
    .constants = {0},
    .samples =
        [] {
          const auto ids = Sample::Fill::kIds, normal = Sample::Fill::kNormal;
          const Type mask = of({3, 5}, Dtype::kI32);
          return std::vector<Sample>{
              {.inputs = {mask, of({3, 5}), of({3, 5})},
               .fills = {ids, normal, normal},
               .ids_below = 2},
              {.inputs = {mask, of({3, 5})},
               .attrs = {{"no", -3.0}},
               .fills = {ids},
               .ids_below = 2},
              {.inputs = {mask, of({5})}, .attrs = {{"yes", 2.0}}, .fills = {ids}, .ids_below = 2},
              {.inputs = {mask, of({3, 5}, Dtype::kI32)},
               .attrs = {{"no", -1.0}},
               .fills = {ids, ids},
               .ids_below = 2}};
        },
    .refused =
        [] {
          return std::vector<Sample>{
              {.inputs = {}},
              {.inputs = {of({3}), of({3})}},
              {.inputs = {of({3}), of({3}, Dtype::kI32)}, .attrs = {{"no", 0.5}}},
              {.inputs = {of({3}), of({3}, Dtype::kI32)}, .attrs = {{"yes", 1e10}}},
              {.inputs = {of({3}), of({4}), of({3})}}};
        },
};

}  // namespace adjoint
