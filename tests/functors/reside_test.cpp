// reside: residences by name, as --fit writes them.
#include <gtest/gtest.h>

#include "base/error_text.h"
#include "functors/pipeline.h"
#include "models/small_models.h"

namespace adjoint {
namespace {

Scheme said(const std::string& stack) {
  StepOptions options;
  const Scheme forward = elaborate_preset(
      "char",
      {{"batch", 2}, {"seq", 8}, {"layers", 2}, {"hidden", 16}, {"heads", 2}, {"vocab", 11}});
  return said_step(forward, parse_stack(stack), options);
}

const Object& object_of(const Scheme& s, const std::string& path) {
  const auto found = s.find({path});
  EXPECT_TRUE(found) << path;
  return s[*found];
}

TEST(Reside, NamesWhatIsKeptAndRecomputesTheRestOfTheBlocks) {
  const Scheme s = said("reside(kept=[\"block[0..1].qkv\"])");
  EXPECT_EQ(object_of(s, "block[0].qkv").attributes.residence, Residence::kKept);
  EXPECT_EQ(object_of(s, "block[1].qkv").attributes.residence, Residence::kKept);
  EXPECT_EQ(object_of(s, "block[0].up").attributes.residence, Residence::kRecomputed);
  EXPECT_EQ(object_of(s, "block[1].layer_norm#1").attributes.residence, Residence::kRecomputed);
}

TEST(Reside, SendsWhatItIsToldToTheNextTier) {
  const Scheme s = said("reside(host=[\"block[1].up\"])");
  EXPECT_EQ(object_of(s, "block[1].up").attributes.tier, Tier::kHost);
  EXPECT_EQ(object_of(s, "block[1].up").attributes.residence, Residence::kKept);
  EXPECT_EQ(object_of(s, "block[0].up").attributes.tier, Tier::kDevice);
}

TEST(Reside, ARangeIsOfIndicesAndNotOfCharacters) {
  EXPECT_NE(error_text([] { said("reside(kept=[\"block[2..9].up\"])"); }).find("block[2..9].up"),
            std::string::npos);
  EXPECT_NE(error_text([] { said("reside(kept=[\"block[0..1].u\"])"); }).find("no 'block[0..1].u'"),
            std::string::npos);
}

TEST(Reside, RefusesWhatAnotherFunctorHasSaid) {
  const std::string text = error_text([] { said("checkpoint(every=1) | reside()"); });
  EXPECT_NE(text.find("checkpoint"), std::string::npos) << text;
  EXPECT_NE(text.find("reside"), std::string::npos) << text;
}

TEST(Reside, WantsNamesInQuotes) {
  const std::string text = error_text([] { said("reside(kept=[3])"); });
  EXPECT_NE(text.find("'kept' must be in quotes, found 3"), std::string::npos) << text;
}

}  // namespace
}  // namespace adjoint
