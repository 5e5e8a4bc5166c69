// Joining and folding as text: what changes, what must not, and what is rounded on the way.
#include <gtest/gtest.h>

#include "body/join.h"
#include "kernels/harness.h"
#include "ops/samples.h"

namespace adjoint {
namespace {

std::string joined(const char* first, const char* second, std::vector<JoinOperand> operands) {
  return print(join(parse_body(first), parse_body(second), operands));
}

TEST(BodyJoin, ReadsFromARegister) {
  EXPECT_EQ(joined("exp(x0)", "add(x0, x1)", {{.made = true, .dtype = Dtype::kF32}, {.number = 1}}),
            "t0 = exp(x0); t0, add(t0, x1)");
  EXPECT_EQ(joined("exp(x0), neg(x1)", "mul(x1, x0)",
                   {{.made = true, .number = 1, .dtype = Dtype::kF32},
                    {.made = true, .number = 0, .dtype = Dtype::kF32}}),
            "t0 = exp(x0); t1 = neg(x1); t0, t1, mul(t0, t1)");
}

TEST(BodyJoin, RoundsWhatLayIn16Bits) {
  EXPECT_EQ(joined("exp(x0)", "mul(x0, x0)", {{.made = true, .dtype = Dtype::kBF16}}),
            "t0 = exp(x0); t1 = round2(t0); t0, mul(t1, t1)");
  EXPECT_EQ(joined("round3(x0)", "neg(x0)", {{.made = true, .dtype = Dtype::kF16}}),
            "t0 = round3(x0); t0, neg(t0)")
      << "rounded once";
}

TEST(BodyJoin, FindsEqualNodesAndFoldsNone) {
  EXPECT_EQ(joined("mul(x0, 1)", "sub(x0, mul(x1, 1))",
                   {{.made = true, .dtype = Dtype::kF32}, {.number = 0}}),
            "t0 = mul(x0, 1); t0, sub(t0, t0)");
  EXPECT_EQ(joined("add(x0, 0)", "add(x0, -0)", {{.made = true, .dtype = Dtype::kF32}}),
            "t0 = add(x0, 0); t0, add(t0, -0)")
      << "0 and -0 are two numbers";
}

TEST(BodyJoin, KeepsSumsRowsAndCounters) {
  EXPECT_EQ(joined("rowsum(x0)/one, x0/1", "mul(x1, random2'p')/2, x0/dropped",
                   {{.made = true, .dtype = Dtype::kF32}, {.number = 0}, {.number = 3}}),
            "t0 = rowsum(x0); t0/one, x0/1, mul(x0, random3'p')/2, t0/dropped");
}

std::string folded(const char* text) { return print(fold_exactly(parse_body(text))); }

TEST(BodyFold, FoldsWhatKeepsBits) {
  EXPECT_EQ(folded("mul(x0, 1)"), "x0");
  EXPECT_EQ(folded("mul(1, x0)"), "x0");
  EXPECT_EQ(folded("div(x0, 1)"), "x0");
  EXPECT_EQ(folded("sub(x0, 0)"), "x0");
  EXPECT_EQ(folded("add(x0, -0)"), "x0");
  EXPECT_EQ(folded("neg(neg(x0))"), "x0");
  EXPECT_EQ(folded("round2(round2(x0))"), "round2(x0)");
  EXPECT_EQ(folded("select(2, x0, x1)"), "x0");
  EXPECT_EQ(folded("select(x1, x0, x0)"), "x0");
  EXPECT_EQ(folded("mul(x0, add(div(1, 4), max(2, sqrt(16))))"), "mul(x0, 4.25)");
  EXPECT_EQ(folded("mul(x0, sub(less(1, 2), equal(3, 3)))"), "mul(x0, 0)");
}

TEST(BodyFold, LeavesWhatWouldNot) {
  for (const char* text :
       {"add(x0, 0)", "add(0, x0)", "sub(x0, -0)", "mul(x0, 0)", "sub(0, x0)", "div(1, x0)",
        "add(0.1, 0.2)", "div(1, 3)", "div(1, 0)", "sqrt(2)", "sqrt(-1)", "exp(0)",
        "round2(round3(x0))", "add(16777216, 1)", "sub(x0, x0)", "select(0.1, x0, x1)"}) {
    EXPECT_EQ(folded(text), text);
  }
}

// The numbers behind the last lines: float32 has them otherwise.
TEST(BodyFold, TheFloat32ReadingIsKept) {
  for (const char* text : {"mul(x0, add(0.1, 0.2))", "mul(x0, add(add(16777216, 1), 1))",
                           "mul(x0, div(div(1, 4), div(3, 1)))", "add(x0, sub(0, 0))"}) {
    for (const bool reference : {false, true}) {
      const auto run = [&](const std::string& body) {
        const Sample sample{.inputs = {of({4})}, .attrs = {{"body", body}}};
        return run_scheme(sample_scheme("map", sample, Dtype::kF32), {{1, -3, 0.7, -0.0}},
                          reference)[0];
      };
      const Numbers plain = run(text), now = run(folded(text));
      for (size_t i = 0; i < plain.size(); ++i) {
        EXPECT_EQ(plain[i], now[i]) << text;
        EXPECT_EQ(std::signbit(plain[i]), std::signbit(now[i])) << text;
      }
    }
  }
}

// A sum has the same bits alone and beside others, though the CPU shares the work out otherwise: by
// column where it is wide and rows need not be whole, else by blocks of rows.
TEST(BodySums, DoNotDependOnWhatElseIsComputed) {
  const Type type = of({70, 2, 8200});
  Sample sample{.inputs = {type}, .attrs = {{"body", std::string("x0/1")}}};
  const std::vector<Numbers> x = sample_numbers(sample, Dtype::kF32, 5);
  const auto run = [&](const char* body) {
    sample.attrs["body"] = std::string(body);
    return run_scheme(sample_scheme("map", sample, Dtype::kF32), x, false);
  };
  const Numbers alone = run("x0/1")[0];
  EXPECT_EQ(run("x0/1, exp(x0)")[0], alone);
  EXPECT_EQ(run("x0/1, rowsum(x0)/one")[0], alone) << "whole rows";
  EXPECT_EQ(run("x0/1, x0/2")[0], alone) << "sums over more axes";
}

TEST(BodyFold, KnowsWhatIsTheSameAlongTheRow) {
  const std::vector<Type> types = {of({2, 3}), of({2, 1}), of({3}), of({})};
  const std::vector<Axis> space = broadcast("test", types);
  const auto same = [&](const char* text) {
    const Body body = parse_body(text);
    return static_cast<bool>(same_along_row(body, space, types)[body.outputs[0].node]);
  };
  for (const char* text : {"x1", "x3", "1", "index1", "rowsum(x0)", "mul(rowmax(x2), x1)"}) {
    EXPECT_TRUE(same(text)) << text;
  }
  for (const char* text : {"x0", "x2", "index0", "rotate(x1)", "add(x0, rowsum(x0))"}) {
    EXPECT_FALSE(same(text)) << text;
  }
}

}  // namespace
}  // namespace adjoint
