// Small collectives that travel together: which are joined, where they stand, and how large a
// bucket is.
#include <gtest/gtest.h>

#include <map>

#include "functors/pipeline.h"
#include "models/small_models.h"
#include "ops/collective.h"

namespace adjoint {
namespace {

Scheme bucketed(const std::string& stack) {
  const Scheme forward =
      elaborate_preset("char", {{"batch", 6}, {"seq", 8}, {"layers", 3}, {"hidden", 32}});
  return build_step(forward, parse_stack(stack), {.on_mesh = true}).scheme;
}

// How many collectives of each op there are, and how many objects they carry.
std::map<std::string, std::pair<int, int>> collectives(const Scheme& step) {
  std::map<std::string, std::pair<int, int>> found;
  for (const Morphism& m : step.morphisms) {
    if (!op_named(m.op).collective) continue;
    auto& [calls, objects] = found[m.op];
    ++calls;
    objects += static_cast<int>(m.inputs.size());
    EXPECT_EQ(m.inputs.size(), m.outputs.size());
  }
  return found;
}

TEST(Bucket, LossAndCountAreOneSum) {
  const auto plain = collectives(bucketed("data_parallel(2)"));
  const auto joined = collectives(bucketed("data_parallel(2) | bucket"));
  ASSERT_GE(plain.at("all_reduce").first, 2);
  EXPECT_LT(joined.at("all_reduce").first, plain.at("all_reduce").first);
  for (const auto& [op, count] : plain) {
    EXPECT_EQ(joined.at(op).second, count.second) << op << ": nothing is lost";
    EXPECT_LT(joined.at(op).first, count.first) << op;
  }
}

TEST(Bucket, NoneIsLargerThanSaid) {
  for (const int64_t size : {512, 4096, 65536}) {
    const Scheme step =
        bucketed("data_parallel(2) | zero(3) | bucket(size=" + std::to_string(size) + ")");
    int joined = 0;
    for (const Morphism& m : step.morphisms) {
      if (!op_named(m.op).collective || m.inputs.size() == 1) continue;
      int64_t bytes = 0;
      for (size_t i = 0; i < m.inputs.size(); ++i) {
        bytes +=
            std::max(step[m.inputs[i]].type.bytes().count, step[m.outputs[i]].type.bytes().count);
      }
      EXPECT_LE(bytes, size);
      ++joined;
    }
    EXPECT_GT(joined, 0) << size;
  }
}

// The phases and sections of what is joined are one.
TEST(Bucket, JoinsNothingAcrossPhasesAndParts) {
  const Scheme plain = bucketed("data_parallel(2) | zero(3) | accumulate(3)");
  const Scheme joined = bucketed("data_parallel(2) | zero(3) | accumulate(3) | bucket");
  std::map<std::string, std::pair<Phase, Section>> where;
  for (const Morphism& m : plain.morphisms) {
    if (op_named(m.op).collective) {
      where[to_string(plain[m.outputs[0]].source)] = {m.phase, m.section};
    }
  }
  for (const Morphism& m : joined.morphisms) {
    if (!op_named(m.op).collective) continue;
    for (const Value out : m.outputs) {
      EXPECT_EQ(where.at(to_string(joined[out].source)), std::pair(m.phase, m.section));
    }
  }
}

TEST(Bucket, HasNothingToDoOnOneRank) {
  EXPECT_EQ(bucketed("bucket").morphisms.size(), bucketed("").morphisms.size());
}

}  // namespace
}  // namespace adjoint
