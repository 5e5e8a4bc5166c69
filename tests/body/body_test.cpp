// Bodies as values: their text, their algebra, their gradients by hand, and, on random bodies over
// random shapes, that the CPU's reading is the reference's.
#include "body/body.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "body/every_kind.h"
#include "kernels/harness.h"
#include "ops/samples.h"

namespace adjoint {
namespace {

// The body with one output for each expression, as text.
std::string text_of(Body& body, std::initializer_list<Expr> results) {
  for (const Expr& e : results) body.outputs.push_back({.node = e.node});
  return print(body);
}

// Runs a body given as text on numbers.
std::vector<Numbers> run_body(const std::string& text, const std::vector<Type>& types,
                              const std::vector<Numbers>& x, bool reference,
                              std::vector<int64_t> shape = {}) {
  Sample sample{.inputs = types, .attrs = {{"body", text}}};
  if (!shape.empty()) sample.attrs["shape"] = shape;
  return run_scheme(sample_scheme("map", sample, Dtype::kF32), x, reference);
}

// ---- text ----

TEST(BodyText, PrintsBackWhatItReads) {
  for (const char* text : {
           "x0",
           "1",
           "-2.5",
           "0.1",
           "1e+30",
           "-1e-30",
           "inf",
           "-inf",
           "index0",
           "index2",
           "random1'block[3].mlp.dropout#2'",
           "random0'a:b+c-d*e/f^g'",
           "add(x0, 0)",
           "mul(1, x0)",
           "select(1, x0, x1)",
           "max(x0, -inf)",
           "t0 = mul(x0, x0); add(t0, t0)",
           "t0 = mul(x0, x0); t1 = exp(t0); add(t0, mul(t1, t1)), t1",
           "t0 = rowsum(x0); t0/one, t0/dropped",
           "x0, x0",
           "x0/1, x1/2",
           "x0/bf16, x0/f32, x0/f16, x0/f64, x0/i32, x0/i64",
           "rowsum(x0)/1/one/bf16, rowmax(x0)/2/dropped/f32",
           "round2(x0)",
           "select(less(index1, index0), -1e+30, x0)",
       }) {
    const Body body = parse_body(text);
    EXPECT_EQ(print(body), text);
    EXPECT_EQ(parse_body(print(body)), body) << text;
  }
}

// One expression of every kind there is, with all its operands.
TEST(BodyText, EveryKindHasAText) {
  Body body;
  const Expr x = input(body, 0), y = input(body, 1), z = input(body, 2);
  for (int k = 0; k <= static_cast<int>(ExprKind::kRotate); ++k) {
    const auto kind = static_cast<ExprKind>(k);
    ExprNode node{.kind = kind};
    const int operands[] = {x.node, y.node, z.node};
    for (int a = 0; a < facts(kind).arity; ++a) node.args[a] = operands[a];
    if (kind == ExprKind::kRandom) node.index = 3, node.text = "path";
    if (kind == ExprKind::kConst) node.value = 0.25;
    if (kind == ExprKind::kRound) node.index = static_cast<int>(Dtype::kBF16);
    body.outputs.push_back({.node = body.add(node)});
  }
  const std::string text = print(body);
  EXPECT_EQ(print(parse_body(text)), text);
  EXPECT_EQ(parse_body(text).outputs.size(), body.outputs.size());
  std::vector<std::string> parts(std::begin(kEveryKind), std::end(kEveryKind));
  for (const char* part :
       {"x0", "0.25", "index0", "random3'path'", "select(x0, x1, x2)", "rotate(x0)"}) {
    parts.emplace_back(part);
  }
  for (const std::string& wanted : parts) {
    EXPECT_NE((", " + text + ", ").find(", " + wanted + ", "), std::string::npos) << wanted;
  }
}

TEST(BodyText, SharedValuesAreNamedOnceAndStayShared) {
  Body body;
  const Expr x = input(body, 0), square = x * x;
  EXPECT_EQ(text_of(body, {square + row_sum(square)}), "t0 = mul(x0, x0); add(t0, rowsum(t0))");
  EXPECT_EQ(parse_body(print(body)).nodes.size(), body.nodes.size());
}

TEST(BodyText, OpsPrintAndParse) {
  for (const OpDef* op : all_ops()) {
    if (!op->body || !op->samples) continue;
    for (const Sample& sample : op->samples()) {
      const Body body = without_dead_nodes(
          op->body({.op = op->name, .inputs = sample.inputs, .attrs = sample.attrs}));
      EXPECT_EQ(print(parse_body(print(body))), print(body)) << op->name;
    }
  }
}

TEST(BodyText, RefusesWhatIsNoBody) {
  for (const char* text : {"",
                           "sorcery(x0)",
                           "add(x0)",
                           "add(x0, x1",
                           "add(x0, x1, x2)",
                           "t0",
                           "t0 = x0",
                           "x0/f31",
                           "x0/",
                           "random0",
                           "random0'a",
                           "round(x0)",
                           "round9(x0)",
                           "x0 x1",
                           "add(x0, x1) and more",
                           "x0,",
                           "x",
                           "y0",
                           "x99999999999999999999",
                           "x0y"}) {
    EXPECT_THROW(parse_body(text), Error) << text;
  }
}

// ---- algebra ----

TEST(BodyAlgebra, FoldsWhatChangesNothing) {
  const auto folded = [](Expr (*f)(Expr)) {
    Body body;
    return text_of(body, {f(input(body, 0))});
  };
  EXPECT_EQ(folded([](Expr x) { return x + 0.0; }), "x0");
  EXPECT_EQ(folded([](Expr x) { return constant(*x.body, 0) + x; }), "x0");
  EXPECT_EQ(folded([](Expr x) { return x - 0.0; }), "x0");
  EXPECT_EQ(folded([](Expr x) { return x * 1.0; }), "x0");
  EXPECT_EQ(folded([](Expr x) { return 1.0 * x; }), "x0");
  EXPECT_EQ(folded([](Expr x) { return x / 1.0; }), "x0");
  EXPECT_EQ(folded([](Expr x) { return x * 0.0; }), "0");
  EXPECT_EQ(folded([](Expr x) { return 0.0 * x; }), "0");
  EXPECT_EQ(folded([](Expr x) { return 0.0 / x; }), "0");
  EXPECT_EQ(folded([](Expr x) { return select(constant(*x.body, 1), x, 7); }), "x0");
  EXPECT_EQ(folded([](Expr x) { return select(constant(*x.body, 0), x, 7); }), "7");
  EXPECT_EQ(folded([](Expr x) { return select(constant(*x.body, -2), x, 7); }), "x0");
}

TEST(BodyAlgebra, ComputesConstants) {
  Body body;
  const Expr two = constant(body, 2), three = constant(body, 3);
  EXPECT_EQ(text_of(body, {two + three, two - three, two * three, two / constant(body, 4), -two,
                           log(constant(body, 1))}),
            "5, -1, 6, 0.5, -2, 0");
}

TEST(BodyAlgebra, KeepsWhatWouldChangeBitsOrMeaning) {
  const auto kept = [](Expr (*f)(Expr)) {
    Body body;
    return text_of(body, {f(input(body, 0))});
  };
  EXPECT_EQ(kept([](Expr x) { return 0.0 - x; }), "sub(0, x0)");
  EXPECT_EQ(kept([](Expr x) { return x / 0.0; }), "div(x0, 0)");
  EXPECT_EQ(kept([](Expr x) { return x - x; }), "sub(x0, x0)");
  EXPECT_EQ(kept([](Expr x) { return x / x; }), "div(x0, x0)");
  EXPECT_EQ(kept([](Expr x) { return 1.0 / x; }), "div(1, x0)");
  EXPECT_EQ(kept([](Expr x) { return (x + 1.0) + 2.0; }), "add(add(x0, 1), 2)");
  EXPECT_EQ(kept([](Expr x) { return -(-x); }), "neg(neg(x0))");
}

TEST(BodyAlgebra, EqualNodesAreOneNode) {
  Body body;
  const Expr x = input(body, 0), y = input(body, 1);
  EXPECT_EQ((x * y).node, (x * y).node);
  EXPECT_NE((x * y).node, (y * x).node) << "operands keep their places";
  EXPECT_EQ(input(body, 0).node, x.node);
  EXPECT_EQ(constant(body, 0.5).node, constant(body, 0.5).node);
  EXPECT_NE(random_uniform(body, 2, "a").node, random_uniform(body, 2, "b").node);
  EXPECT_NE(round_to(x, Dtype::kBF16).node, round_to(x, Dtype::kF16).node);
}

TEST(BodyAlgebra, DropsUnusedInputs) {
  Body body = parse_body("mul(x3, x1), random5'p'");
  EXPECT_EQ(drop_unused_inputs(body), (std::vector<int>{1, 3, 5}));
  EXPECT_EQ(print(body), "mul(x1, x0), random2'p'");
  EXPECT_EQ(body.num_inputs(), 3);
  EXPECT_EQ(drop_unused_inputs(body), (std::vector<int>{0, 1, 2})) << "nothing is left to drop";
  Body none = parse_body("index0");
  EXPECT_EQ(drop_unused_inputs(none), std::vector<int>{});
}

TEST(BodyAlgebra, DropsDeadNodes) {
  Body body;
  const Expr x = input(body, 0), y = input(body, 1);
  const Expr kept = exp(x);
  sqrt(y);
  body.outputs = {{.node = kept.node, .summed_axes = 1}};
  const Body lean = without_dead_nodes(body);
  EXPECT_EQ(lean.nodes.size(), 2u);
  EXPECT_EQ(print(lean), "exp(x0)/1");
  EXPECT_EQ(without_dead_nodes(lean), lean);
}

TEST(BodyAlgebra, KnowsWhatItNeeds) {
  EXPECT_FALSE(parse_body("exp(x0)").needs_whole_rows());
  for (const char* text : {"rowsum(x0)", "rowmax(x0)", "rotate(x0)"}) {
    EXPECT_TRUE(parse_body(text).needs_whole_rows()) << text;
  }
  EXPECT_TRUE(parse_body("add(x0, index1)").uses_index());
  EXPECT_FALSE(parse_body("add(x0, x1)").uses_index());
}

// ---- shapes ----

std::string space_text(const std::vector<Type>& types) {
  return shape_string({.axes = broadcast("test", types)});
}

TEST(BodyShapes, OperandsAlignAtTheirLastAxis) {
  const Type full{Dtype::kF32, {{"b", 2}, {"s", 3}, {"h", 5}}};
  const Type bias{Dtype::kF32, {{"h", 5}}};
  const Type column{Dtype::kF32, {{"s", 3}, {"one", 1}}};
  EXPECT_EQ(space_text({full, bias}), "[b=2, s=3, h=5]");
  EXPECT_EQ(space_text({bias, full}), "[b=2, s=3, h=5]");
  EXPECT_EQ(space_text({column, bias}), "[s=3, h=5]") << "a stretched axis takes the other's name";
  EXPECT_EQ(space_text({of({}), bias}), "[h=5]");
  EXPECT_EQ(space_text({of({}), of({})}), "[]");
  EXPECT_EQ(space_text({bias, {Dtype::kI64, {{"counter", 3}}}}), "[h=5]")
      << "the random counter takes no part";
}

TEST(BodyShapes, AMisfitNamesTheOpTheAxesAndTheShapes) {
  const Type a{Dtype::kF32, {{"seq", 3}, {"hidden", 5}}};
  const Type b{Dtype::kF32, {{"seq", 3}, {"width", 4}}};
  try {
    broadcast("mul", {a, b});
    FAIL() << "5 does not fit 4";
  } catch (const Error& e) {
    const std::string text = e.what();
    for (const char* part :
         {"mul", "hidden=5", "width=4", "[seq=3, hidden=5]", "[seq=3, width=4]"}) {
      EXPECT_NE(text.find(part), std::string::npos) << part << " in: " << text;
    }
  }
  EXPECT_THROW(broadcast("add", {of({2, 1, 5}), of({3, 4, 5}), of({2, 1, 1})}), Error);
}

TEST(BodyShapes, OutputsSumKeepOrDropAxes) {
  const std::vector<Type> types = {of({2, 3, 5}, Dtype::kBF16)};
  const std::vector<Axis> space = broadcast("test", types);
  const auto texts = [&](const char* body) {
    std::vector<std::string> all;
    for (const Type& t : output_types(parse_body(body), space, types)) all.push_back(to_string(t));
    return all;
  };
  EXPECT_EQ(texts("x0, x0/1, x0/2"),
            (std::vector<std::string>{"bf16[a=2, b=3, c=5]", "bf16[b=3, c=5]", "bf16[c=5]"}));
  EXPECT_EQ(texts("rowsum(x0)/one, rowsum(x0)/1/one/f32, rowsum(x0)/2/dropped/f64"),
            (std::vector<std::string>{"bf16[a=2, b=3, one=1]", "f32[b=3, one=1]", "f64[]"}));
}

// ---- gradients ----

// The gradient of output 0 by operand `by`, evaluated by the reference: `g` is the output's.
Numbers gradient(const std::string& text, const std::vector<Type>& types,
                 const std::vector<Numbers>& x, int by, const Type& g_type, const Numbers& g) {
  std::vector<Type> all_types = {g_type};
  std::vector<Numbers> all = {g};
  all_types.insert(all_types.end(), types.begin(), types.end());
  all.insert(all.end(), x.begin(), x.end());
  const std::vector<Axis> space = broadcast("test", types);
  const Body grad = differentiate(parse_body(text), space, types, {0}, {by});
  std::vector<int64_t> sizes;
  for (const Axis& axis : space) sizes.push_back(axis.size);
  return run_body(print(grad), all_types, all, true, sizes)[0];
}

// At one point of one operand, with 2 for the output's gradient.
double slope(const std::string& text, double x) {
  return gradient(text, {of({1})}, {{x}}, 0, of({1}), {2})[0] / 2;
}

TEST(BodyGradient, OfOneOperand) {
  EXPECT_EQ(print(differentiate(parse_body("x0"), {{"a", 3}}, {of({3})}, {0}, {0})), "x0/f32");
  EXPECT_DOUBLE_EQ(slope("mul(x0, x0)", 3), 6);
  EXPECT_DOUBLE_EQ(slope("mul(mul(x0, x0), x0)", 3), 27);
  EXPECT_DOUBLE_EQ(slope("sub(5, x0)", 3), -1);
  EXPECT_DOUBLE_EQ(slope("div(1, x0)", 4), -1.0 / 16);
  EXPECT_DOUBLE_EQ(slope("neg(x0)", 3), -1);
  EXPECT_DOUBLE_EQ(slope("exp(mul(2, x0))", 0.5), 2 * std::exp(1.0));
  EXPECT_DOUBLE_EQ(slope("log(x0)", 4), 0.25);
  EXPECT_DOUBLE_EQ(slope("sqrt(x0)", 4), 0.25);
  EXPECT_DOUBLE_EQ(slope("tanh(x0)", 0), 1);
  EXPECT_DOUBLE_EQ(slope("sigmoid(x0)", 0), 0.25);
  EXPECT_DOUBLE_EQ(slope("erf(x0)", 0), 2 / std::sqrt(M_PI));
  EXPECT_DOUBLE_EQ(slope("sin(x0)", 0), 1);
  EXPECT_DOUBLE_EQ(slope("cos(x0)", 0.5), -std::sin(0.5));
  EXPECT_DOUBLE_EQ(slope("max(x0, 1)", 3), 1);
  EXPECT_DOUBLE_EQ(slope("max(x0, 1)", -3), 0);
  EXPECT_DOUBLE_EQ(slope("min(x0, 1)", 3), 0);
  EXPECT_DOUBLE_EQ(slope("min(x0, 1)", -3), 1);
  EXPECT_DOUBLE_EQ(slope("select(less(x0, 1), mul(x0, 5), neg(x0))", 0), 5);
  EXPECT_DOUBLE_EQ(slope("select(less(x0, 1), mul(x0, 5), neg(x0))", 2), -1);
  EXPECT_DOUBLE_EQ(slope("mul(x0, 7)", 2), 7);
  EXPECT_DOUBLE_EQ(slope("mul(round2(x0), 7)", 2), 7) << "straight through the rounding";
}

// Every smooth function against central differences, away from where it bends.
TEST(BodyGradient, IsTheSlope) {
  for (const char* text :
       {"exp(x0)", "log(x0)", "sqrt(x0)", "tanh(x0)", "sigmoid(x0)", "erf(x0)", "sin(x0)",
        "cos(x0)", "div(sin(x0), exp(x0))", "mul(tanh(x0), sub(x0, log(x0)))",
        "t0 = mul(x0, x0); add(mul(t0, t0), div(t0, add(1, t0)))"}) {
    const auto at = [&](double x) { return run_body(text, {of({1})}, {{x}}, true)[0][0]; };
    for (const double x : {0.3, 0.9, 1.7}) {
      const double h = 1e-5;
      EXPECT_NEAR(slope(text, x), (at(x + h) - at(x - h)) / (2 * h), 1e-8) << text << " at " << x;
    }
  }
}

TEST(BodyGradient, OfTwoOperands) {
  const std::vector<Type> types = {of({2}), of({2})};
  const std::vector<Numbers> x = {{3, 5}, {2, 8}};
  const auto by = [&](const char* text, int operand) {
    return gradient(text, types, x, operand, of({2}), {1, 10});
  };
  EXPECT_EQ(by("mul(x0, x1)", 0), (Numbers{2, 80}));
  EXPECT_EQ(by("mul(x0, x1)", 1), (Numbers{3, 50}));
  EXPECT_EQ(by("div(x0, x1)", 0), (Numbers{0.5, 1.25}));
  EXPECT_EQ(by("div(x0, x1)", 1), (Numbers{-0.75, -0.78125}));
  EXPECT_EQ(by("sub(x0, x1)", 1), (Numbers{-1, -10}));
  EXPECT_EQ(by("max(x0, x1)", 0), (Numbers{1, 0}));
  EXPECT_EQ(by("max(x0, x1)", 1), (Numbers{0, 10}));
  EXPECT_EQ(by("exp(x1)", 0), (Numbers{0, 0})) << "no influence";
}

// Of two equal operands exactly one gets the gradient, or it would count twice.
TEST(BodyGradient, TiesGoToOneSide) {
  for (const char* text : {"max(x0, x1)", "min(x0, x1)"}) {
    const auto by = [&](int operand) {
      return gradient(text, {of({1}), of({1})}, {{4}, {4}}, operand, of({1}), {1})[0];
    };
    EXPECT_EQ(by(0) + by(1), 1) << text;
  }
}

// A stretched operand was read many times: its gradient is the sum over those.
TEST(BodyGradient, OfStretchedOperandsIsSummed) {
  const Type full = of({2, 3});
  const Numbers x = {1, 2, 3, 4, 5, 6}, g = {1, 1, 1, 10, 10, 10};
  const auto of_second = [&](const Type& type, const Numbers& numbers) {
    return gradient("mul(x0, x1)", {full, type}, {x, numbers}, 1, full, g);
  };
  EXPECT_EQ(of_second(full, Numbers(6, 1)), (Numbers{1, 2, 3, 40, 50, 60}));
  EXPECT_EQ(of_second(of({3}), Numbers(3, 1)), (Numbers{41, 52, 63}));
  EXPECT_EQ(of_second(of({2, 1}), Numbers(2, 1)), (Numbers{6, 150}));
  EXPECT_EQ(of_second(of({}), {1}), (Numbers{156}));
  EXPECT_EQ(of_second(of({1}), {1}), (Numbers{156}));
}

TEST(BodyGradient, OfAnInnerStretchIsRefused) {
  const std::vector<Type> types = {of({2, 3, 5}), of({2, 1, 5})};
  EXPECT_THROW(differentiate(parse_body("mul(x0, x1)"), broadcast("test", types), types, {0}, {1}),
               Error);
}

TEST(BodyGradient, ThroughReductionsOfTheRow) {
  const Type full = of({2, 3}), one = of({2, 1});
  const Numbers x = {1, 2, 3, 4, 5, 6};
  EXPECT_EQ(gradient("rowsum(x0)/one", {full}, {x}, 0, one, {7, 9}), (Numbers{7, 7, 7, 9, 9, 9}));
  EXPECT_EQ(gradient("rowsum(x0)", {full}, {x}, 0, full, {1, 2, 3, 10, 20, 30}),
            (Numbers{6, 6, 6, 60, 60, 60}))
      << "each element of the row is in every sum of the row";
  EXPECT_EQ(gradient("rowsum(mul(x0, x0))/2/dropped", {full}, {x}, 0, of({}), {1}),
            (Numbers{2, 4, 6, 8, 10, 12}));
  EXPECT_EQ(gradient("mul(x0, rowsum(x0))", {full}, {x}, 0, full, {1, 0, 0, 0, 0, 0}),
            (Numbers{7, 1, 1, 0, 0, 0}))
      << "y0 = x0 (x0 + x1 + x2)";
  EXPECT_EQ(gradient("rowsum(2)", {full}, {x}, 0, full, Numbers(6, 1)), Numbers(6, 0));
}

TEST(BodyGradient, RotationGoesBack) {
  // (a, b) -> (-b, a), so (da, db) = (gb, -ga) where g = (ga, gb).
  EXPECT_EQ(gradient("rotate(x0)", {of({1, 4})}, {{1, 2, 3, 4}}, 0, of({1, 4}), {1, 2, 3, 4}),
            (Numbers{3, 4, -1, -2}));
  // One value a row becomes two.
  EXPECT_EQ(gradient("mul(x0, rotate(x1))", {of({1, 4}), of({1, 1})}, {{1, 2, 3, 4}, {5}}, 1,
                     of({1, 4}), {1, 1, 1, 1}),
            (Numbers{4}));
}

TEST(BodyGradient, TheRowsLargestTakesNone) {
  const Type row = of({1, 3});
  EXPECT_EQ(gradient("rowmax(x0)", {row}, {{1, 2, 3}}, 0, row, {1, 1, 1}), (Numbers{0, 0, 0}));
  // Nor does its text ask which element it was.
  const Body softmax = parse_body("t0 = exp(sub(x0, rowmax(x0))); div(t0, rowsum(t0))");
  const Body grad = differentiate(softmax, row.axes, {row}, {0}, {0});
  for (const ExprNode& n : grad.nodes) {
    EXPECT_NE(n.kind, ExprKind::kEqual);
    EXPECT_NE(n.kind, ExprKind::kLess);
  }
}

// dx = p (g - sum(g p)), the gradient of softmax, whatever the shift by the largest does.
TEST(BodyGradient, OfSoftmaxIsTheTextbooks) {
  const Type type = of({2, 4});
  const Numbers x = {0.5, -1, 2, 2, 3, 3, 3, -7}, g = {1, -2, 0.5, 3, 0, 1, 2, 4};
  const Numbers got =
      gradient("t0 = exp(sub(x0, rowmax(x0))); div(t0, rowsum(t0))", {type}, {x}, 0, type, g);
  for (int row = 0; row < 2; ++row) {
    double total = 0, mean = 0;
    for (int c = 0; c < 4; ++c) total += std::exp(x[row * 4 + c]);
    for (int c = 0; c < 4; ++c) mean += g[row * 4 + c] * std::exp(x[row * 4 + c]) / total;
    for (int c = 0; c < 4; ++c) {
      const double p = std::exp(x[row * 4 + c]) / total;
      EXPECT_NEAR(got[row * 4 + c], p * (g[row * 4 + c] - mean), 1e-14);
    }
  }
}

// ---- the CPU's reading ----

// Body and operands at random. Values stay of moderate size, so that a relative error means one;
// comparisons and roundings, which jump, see only numbers that both readings hold exactly.
class RandomBody {
 public:
  explicit RandomBody(unsigned seed) : random_(seed) {
    const int rank = static_cast<int>(below(4));
    for (int a = 0; a < rank; ++a) {
      constexpr int64_t kSmall[] = {1, 2, 3, 5}, kRows[] = {1, 2, 6, 17, 1024, 1030, 2500};
      space_.push_back({std::string(1, static_cast<char>('a' + a)),
                        a + 1 < rank ? kSmall[below(4)] : kRows[below(7)]});
    }
    const int operands = 1 + static_cast<int>(below(4));
    for (int i = 0; i < operands; ++i) add_operand(i);
    for (int k = static_cast<int>(4 + below(8)); k > 0; --k) add_node();
    for (int k = static_cast<int>(1 + below(4)); k > 0; --k) add_output();
    body = without_dead_nodes(body);
  }

  Body body;
  std::vector<Type> types;
  std::vector<Numbers> numbers;
  std::vector<int64_t> shape() const {
    std::vector<int64_t> sizes;
    for (const Axis& axis : space_) sizes.push_back(axis.size);
    return sizes;
  }

 private:
  struct Known {
    Expr e;
    bool varies;  // along the row
    bool exact;   // an operand, or made of one without rounding
  };

  size_t below(size_t n) { return random_() % n; }
  int64_t row() const { return space_.empty() ? 1 : space_.back().size; }

  void add_operand(int i) {
    Type type{Dtype::kF32, {}};
    const size_t rank = i == 0 ? space_.size() : below(space_.size() + 1);
    type.axes.assign(space_.end() - static_cast<int64_t>(rank), space_.end());
    if (i > 0 && rank > 0 && below(3) == 0) type.axes.back() = {"one", 1};
    if (rank > 0 && below(4) == 0) type.axes.back().padded = type.axes.back().size + 3;
    std::normal_distribution<double> normal;
    Numbers x(type.num_elements());
    for (double& value : x) value = static_cast<float>(normal(random_));
    const bool varies = rank > 0 && type.axes.back().size > 1;
    known_.push_back({input(body, i), varies, true});
    types.push_back(std::move(type));
    numbers.push_back(std::move(x));
  }

  const Known& any() { return known_[below(known_.size())]; }
  const Known& exact() {
    while (true) {
      const Known& k = any();
      if (k.exact) return k;
    }
  }

  void add_node() {
    const Known a = any(), b = any();
    const bool both = a.varies || b.varies;
    switch (below(15)) {
      case 0:
        return know(a.e + b.e, both);
      case 1:
        return know(a.e - b.e, both);
      case 2:
        return know(tanh(a.e) * b.e, both);
      case 3:
        return know(a.e / (b.e * b.e + 1.0), both);
      case 4:
        return know(exp(tanh(a.e)), a.varies);
      case 5:
        return know(sqrt(a.e * a.e + 1.0), a.varies);
      case 6:
        return know(min(a.e, b.e), both);
      case 7:
        return know(max(-a.e, sin(b.e)), both);
      case 8:
        return know(row_sum(a.e) / static_cast<double>(row()), false);
      case 9:
        return know(row_max(a.e), false);
      case 10: {
        if (row() % 2) return know(cos(a.e), a.varies);
        return know(rotate(a.e), true);
      }
      case 11: {
        const Known x = exact(), y = exact();
        return know(select(less(x.e, y.e), a.e, b.e), both || x.varies || y.varies);
      }
      case 12:
        return know(round_to(exact().e, Dtype::kBF16) + a.e, true);
      case 13: {
        if (space_.empty()) return know(erf(a.e), a.varies);
        const int axis = static_cast<int>(below(space_.size()));
        return know(sin(index_along(body, axis)) + a.e, a.varies || axis == 0);
      }
      default:
        return know(select(is_finite(a.e), a.e, b.e), both);
    }
  }
  // Said to vary where it may: then only its whole row is ever asked for.
  void know(Expr e, bool varies) { known_.push_back({e, varies, false}); }

  void add_output() {
    const Known& k = any();
    BodyOutput out{.node = k.e.node};
    if (!space_.empty()) out.summed_axes = static_cast<int>(below(space_.size()));
    if (below(2)) out.summed_axes = 0;
    if (!k.varies && !space_.empty()) {
      if (below(3) == 0) out.row = BodyOutput::Row::kOne;
      if (below(3) == 0) {
        out.row = BodyOutput::Row::kDropped;
        out.summed_axes = static_cast<int>(space_.size()) - 1;
      }
    }
    body.outputs.push_back(out);
  }

  std::mt19937 random_;
  std::vector<Axis> space_;
  std::vector<Known> known_;
};

TEST(BodyCpu, RandomBodiesGiveWhatTheReferenceGives) {
  for (unsigned seed = 0; seed < 400; ++seed) {
    const RandomBody r(seed);
    const std::string text = print(r.body);
    const auto want = run_body(text, r.types, r.numbers, true, r.shape());
    const auto got = run_body(text, r.types, r.numbers, false, r.shape());
    ASSERT_EQ(got.size(), want.size());
    for (size_t k = 0; k < want.size(); ++k) {
      // Sums cancel: hold them to the size of what is summed, which is near 1 an element.
      double difference = 0, size = 1;
      for (size_t i = 0; i < want[k].size(); ++i) {
        difference = std::max(difference, std::abs(got[k][i] - want[k][i]));
        if (!std::isfinite(got[k][i])) difference = INFINITY;
        size = std::max(size, std::abs(want[k][i]));
      }
      std::string types;
      for (const Type& t : r.types) types += " " + to_string(t);
      ASSERT_LT(difference, 2e-5 * size)
          << "seed " << seed << ", output " << k << " of " << text << " on" << types;
    }
  }
}

TEST(BodyCpu, OutputsMaySumDifferentNumbersOfAxes) {
  const std::vector<Type> types = {of({2, 3, 4})};
  Numbers x(24);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<double>(i);
  const auto got = run_body("x0/1, x0/2, rowsum(x0)/2/dropped, x0", types, {x}, false);
  Numbers by_one(12, 0), by_two(4, 0);
  for (size_t i = 0; i < x.size(); ++i) by_one[i % 12] += x[i], by_two[i % 4] += x[i];
  EXPECT_EQ(got[0], by_one);
  EXPECT_EQ(got[1], by_two);
  EXPECT_EQ(got[2], Numbers{276});
  EXPECT_EQ(got[3], x);
}

// Rows of several pieces, and rows so long that sums go by column.
TEST(BodyCpu, AValueOfALongRowCountsOnce) {
  for (const int64_t width : {2500, 17000}) {
    const std::vector<Type> types = {of({3, width}), of({3, 1})};
    const std::vector<Numbers> x = {Numbers(3 * width, 1), {1, 10, 100}};
    const auto got =
        run_body("mul(x0, x1), x1/1/one, x1/1/dropped, mul(x0, x1)/1", types, x, false);
    EXPECT_EQ(got[1], Numbers{111});
    EXPECT_EQ(got[2], Numbers{111});
    EXPECT_EQ(got[3], Numbers(width, 111));
  }
}

TEST(BodyCpu, SumsIntoPaddedRows) {
  Type padded = of({2, 3, 5});
  padded.axes.back().padded = 8;
  Numbers x(30);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<double>(i);
  Numbers want(15, 0);
  for (size_t i = 0; i < x.size(); ++i) want[i % 15] += x[i];
  EXPECT_EQ(run_body("x0/1", {padded}, {x}, false)[0], want);
  EXPECT_EQ(run_body("x0/1", {padded}, {x}, true)[0], want);
}

}  // namespace
}  // namespace adjoint
