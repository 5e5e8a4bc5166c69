// The matrix of functors, for machines, is what docs/json.md says. Making it takes a minute, so
// this one is made by hand.
#include "report/composition_json.h"

#include <gtest/gtest.h>

#include "cli/json_tables.h"

namespace adjoint {
namespace {

TEST(CompositionJson, SaysWhatTheVocabularySays) {
  Composition composition{
      .items = {"bf16", "zero"},
      .pairs = {{{.stack = "bf16", .law = Law::kApproximating, .checked = 2}},
                {{.stack = "bf16 | zero", .refused = {"char: there is no mesh"}},
                 {.stack = "zero", .refused = {"char: there is no mesh"}}}},
      .stacks = {{.stack = "a | b | c", .checked = 1, .broken = {"char: exact, and differs"}}}};
  nlohmann::json said = composition_json(composition);
  EXPECT_EQ(said["ok"], false);
  EXPECT_EQ(said["pairs"].size(), 3u);
  EXPECT_EQ(said["pairs"][0]["law"], "approximating");
  EXPECT_EQ(said["pairs"][1]["refused"].size(), 1u);
  EXPECT_EQ(said["stacks"][0]["models"], 1);
  said["command"] = "verify";
  EXPECT_EQ(JsonJudge().judge(said, "the-matrix-of-functors", "verify"), "");
}

}  // namespace
}  // namespace adjoint
