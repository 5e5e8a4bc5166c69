// The models of tests/models are what their texts say.
#include "models/test_models.h"

#include "models/small_models.h"

namespace adjoint {
namespace {

// Worked out by hand from the texts: tables, then a block's parts in order, then what follows.
TEST(TestModels, HaveTheirParameters) {
  const int64_t tables = 37 * 32 + 16 * 32;
  const int64_t hybrid = 32 + (96 * 32 + 96) + (32 * 32 + 32) + 32 + 3 * 88 * 32;
  EXPECT_EQ(num_parameters(test_model("hybrid")), tables + 2 * hybrid + 32);
  const int64_t moe =
      64 + (96 * 32 + 96) + (32 * 32 + 32) + 64 + 4 * 32 + 4 * (48 * 32 + 48) + 4 * 48 * 32;
  EXPECT_EQ(num_parameters(test_model("moe")), tables + 2 * moe + 64);
  const int64_t mixtral = 32 + 2 * 32 * 32 + 2 * 16 * 32 + 32 + 8 * 32 + 3 * 8 * 40 * 32;
  EXPECT_EQ(num_parameters(test_model("mixtral")), 37 * 32 + 2 * mixtral + 32 + 37 * 32);
  const int64_t zwirn = 64 + 96 * 32 + (32 * 32 + 32) + (80 * 32 + 80) + 80 * 32;
  EXPECT_EQ(num_parameters(test_model("odd")),
            tables + 2 * (2 * zwirn + 32 * 32) + 32 + (37 * 32 + 37));
  const int64_t qwen = 32 + (32 * 32 + 32) + 2 * (16 * 32 + 16) + 32 * 32 + 32 + 3 * 88 * 32;
  EXPECT_EQ(num_parameters(test_model("qwen")), 37 * 32 + 2 * qwen + 32);
}

TEST(TestModels, ChoicesAreTheRoutersAndNothingElses) {
  const Scheme moe = test_model("moe");
  const std::vector<Value> choices = choices_of(moe);
  ASSERT_EQ(choices.size(), 2u);
  EXPECT_EQ(to_string(moe[choices[1]].source), "block[1].top_k#1");
  EXPECT_EQ(to_string(moe[choices[1]].type), "i32[batch=3, seq=16, chosen=2]");
  EXPECT_EQ(object_at(moe, "block[1].route#1").type.dim(-1), 4);
  const Scheme mixtral = test_model("mixtral");
  ASSERT_EQ(choices_of(mixtral).size(), 2u);
  EXPECT_EQ(to_string(mixtral[choices_of(mixtral)[1]].source), "block[1].top_k#1");
  for (const char* name : {"hybrid", "odd", "qwen"}) {
    EXPECT_TRUE(choices_of(test_model(name)).empty()) << name;
  }
}

TEST(TestModels, BoxesInsideBoxesKeepTheirPaths) {
  const Scheme odd = test_model("odd");
  EXPECT_EQ(call_at(odd, "stage[1].zwirn[0].qux").op, "linear");
  EXPECT_EQ(call_at(odd, "stage[0].fnord").op, "linear");
  EXPECT_EQ(object_at(odd, "utter.bias").type.dim(0), 37);
  EXPECT_FALSE(odd.find({"stage[1].zwirn[0].qux.bias"}));
}

TEST(TestModels, AModelIsPrintedAndParsedBack) {
  for (const char* name : kTestModels) {
    const Scheme s = test_model(name);
    EXPECT_EQ(parse_scheme(print(s)), s) << name;
  }
}

}  // namespace
}  // namespace adjoint
