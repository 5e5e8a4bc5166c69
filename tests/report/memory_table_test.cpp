// Both tiers of a plan, for people and for machines; the host's only where it is used.
#include "report/memory_table.h"

#include <gtest/gtest.h>

#include "base/error_text.h"
#include "device/parallel.h"
#include "ops/op_def.h"

namespace adjoint {
namespace {

Plan plan_of(const char* text) {
  const Scheme s = parse_scheme(text);
  verify(s);
  return make_plan(s, {.threads = num_threads()});
}

TEST(MemoryTable, TellsOfTheHostWhereItIsUsed) {
  const Plan plan = plan_of(R"(scheme:
  input %0 x: f32[n=40]
  state %1 m: f32[n=1000] host
  %2 here: f32[n=1000] = move(%1) {tier="device"} @here
  %3 away: f32[n=40] host = move(%0) {tier="host"} @away
  %4 back: f32[n=40] = move(%3) {tier="device"} @back
  return %2, %4
)");
  const auto json = memory_json(plan);
  // 4000 bytes of state, padded to 4032, then 160 of x.
  EXPECT_EQ(json["host_peak_bytes"], 4032 + 160);
  EXPECT_EQ(json["host_live_bytes"], 4000 + 160);
  EXPECT_EQ(json["host_categories"]["optimizer_state"], 4000);
  EXPECT_EQ(json["host_categories"]["activations"], 160);
  EXPECT_EQ(json["host_categories"]["gaps"], 32);
  EXPECT_EQ(json["categories"]["optimizer_state"], 0);
  const std::string table = memory_table(plan, Measured{.touched = {64}, .host_touched = {4192}});
  EXPECT_TRUE(has(table, "host memory")) << table;
  EXPECT_TRUE(has(table, "4,192")) << table;
}

TEST(MemoryTable, IsSilentAboutAHostThatIsNot) {
  const Plan plan = plan_of(R"(scheme:
  input %0 x: f32[n=40]
  %1 y: f32[n=40] = gelu(%0) @y
  return %1
)");
  const auto json = memory_json(plan);
  EXPECT_EQ(json["host_peak_bytes"], 0);
  EXPECT_FALSE(json.contains("host_categories"));
  EXPECT_FALSE(has(memory_table(plan, std::nullopt), "host"));
}

}  // namespace
}  // namespace adjoint
