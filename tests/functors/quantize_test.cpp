// quantize: which parameters become codes, which never do, and what it refuses.
#include <gtest/gtest.h>

#include "analysis/totals.h"
#include "base/error_text.h"
#include "functors/functor_named.h"

namespace adjoint {
namespace {

std::string model(const std::string& w, const std::string& table = "", int width = 4) {
  const std::string h = "h=" + std::to_string(width);
  return "scheme model:\n  input %0 ids: i32[n=3]\n  parameter %1 table: f32[v=6, " + h + "]" +
         table + "\n  parameter %2 gain: f32[" + h + "] frozen\n  parameter %3 w: f32[o=2, " + h +
         "]" + w + "\n  parameter %4 b: f32[o=2]\n  %5 x: f32[n=3, " + h +
         "] = embed(%0, %1) @x\n  %6 n: f32[n=3, " + h +
         "] = rms_norm(%5, %2) {eps=1e-05} @n\n  %7 y: f32[n=3, o=2] = linear(%6, %3, %4) @y\n"
         "  return %7\n";
}

// Frozen matrices only: a table that is looked up, a gain and what is trained stay.
TEST(Quantize, SaysThePrecisionOfFrozenMatrices) {
  EXPECT_EQ(applied("quantize(nf4, group=2)", model(" frozen", " frozen")),
            model(" frozen precision=\"nf4/2\"", " frozen"));
  EXPECT_EQ(applied("quantize(int8, per=channel)", model(" frozen")),
            model(" frozen precision=\"int8/channel\""));
  EXPECT_EQ(applied("quantize(int8, tensor)", model(" frozen")),
            model(" frozen precision=\"int8/tensor\""));
  EXPECT_EQ(applied("quantize(int4, group=2)", model(" frozen")),
            model(" frozen precision=\"int4/2\""));
  EXPECT_EQ(applied("quantize(int8)", model(" frozen", "", 64)),
            model(" frozen precision=\"int8/64\"", "", 64));
}

TEST(Quantize, RefusesWhatItCannotDo) {
  const auto complaint = [](const std::string& item, const std::string& text) {
    return error_text([&] { applied(item, text); });
  };
  EXPECT_EQ(complaint("quantize(int8)", model("", " frozen")),
            "quantize: nothing is frozen; add lora or freeze");
  EXPECT_EQ(complaint("quantize(nf4)", model(" frozen", "", 96)),
            "quantize: groups of 64 do not divide the rows of 'w', which are 96 long; the nearest "
            "group that fits every matrix is 48");
  EXPECT_EQ(complaint("quantize(nf4, per=tensor)", model(" frozen", "", 5)),
            "quantize: 'w' has rows of 5, and nf4 packs two codes a byte; use int8");
  EXPECT_EQ(complaint("quantize(int4, per=tensor)", model(" frozen", "", 5)),
            "quantize: 'w' has rows of 5, and int4 packs two codes a byte; use int8");
  EXPECT_TRUE(has(complaint("quantize(int3)", model(" frozen")), "int3"));
}

TEST(Quantize, CountsWhatTheCodesStandFor) {
  const Scheme before = parse_scheme(model(" frozen", "", 64));
  const Scheme after = realize_precision(apply_functor("quantize(nf4)", before));
  EXPECT_EQ(num_parameters(before), 6 * 64 + 64 + 2 * 64 + 2);
  EXPECT_EQ(num_parameters(after), num_parameters(before));
}

}  // namespace
}  // namespace adjoint
