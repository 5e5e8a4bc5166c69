// Every byte at the peak has an owner: rows of every table add up to the peak, to the byte.
#include "report/owner_table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

#include "base/error_text.h"
#include "report/planned.h"

namespace adjoint {
namespace {

int64_t sum_of(const nlohmann::json& rows) {
  int64_t sum = 0;
  for (const auto& row : rows) sum += row["bytes"].get<int64_t>();
  return sum;
}

TEST(OwnerTable, RowsAddUpToThePeakToTheByte) {
  for (const Case& c : cases()) {
    const Planned p = planned(c.preset, c.stack, c.clip);
    for (const By by : {By::kCategory, By::kBlock, By::kTensor}) {
      for (const int64_t top : {0, 1, 7}) {
        nlohmann::json out;
        add_owners(out, p.scheme, p.plan, by, top);
        EXPECT_EQ(sum_of(out["by"]), p.plan.live_peak.count) << said(c);
        if (p.plan.host.size.count > 0) {
          EXPECT_EQ(sum_of(out["host_by"]), p.plan.host.live_peak.count) << said(c);
        } else {
          EXPECT_FALSE(out.contains("host_by")) << said(c);
        }
      }
    }
  }
}

TEST(OwnerTable, TellsOfEveryLiveStorage) {
  for (const Case& c : cases()) {
    const Planned p = planned(c.preset, c.stack, c.clip);
    const std::vector<Holding> held = holdings(p.scheme, p.plan, Tier::kDevice);
    size_t alive = 0;
    for (const Storage& s : p.plan.storages) {
      alive += s.tier == Tier::kDevice && s.first <= p.plan.peak_at && p.plan.peak_at <= s.last;
    }
    EXPECT_GE(held.size(), alive) << said(c);
    EXPECT_TRUE(std::is_sorted(held.begin(), held.end(), [](const Holding& a, const Holding& b) {
      return a.bytes > b.bytes;
    })) << said(c);
    const std::string table = owner_table(p.scheme, p.plan, By::kTensor, 0);
    for (const Holding& h : held) {
      EXPECT_FALSE(h.source.empty() || h.from.empty() || h.to.empty()) << said(c);
      EXPECT_TRUE(has(table, h.source)) << said(c);
    }
    EXPECT_FALSE(has(table, " more")) << said(c);
    EXPECT_TRUE(has(table, with_commas(p.plan.live_peak.count))) << said(c);
    EXPECT_TRUE(has(table, with_commas(p.plan.arena.count))) << said(c);
  }
}

constexpr const char* kSmall = R"(scheme:
  input %0 x: f32[n=16]
  parameter %1 block[1].w: f32[n=16]
  %2 block[0].a: f32[n=16] = add(%0, %1) @block[0].add#1
  %3 b: f32[n=16] = mul(%2, %0) @mul#1
  %4 block[1].c: f32[n=16] = add(%3, %2) @block[1].add#2
  return %4
)";

// At mul, the second call, x, w, a and b are alive, of 64 bytes each, and its workspace.
TEST(OwnerTable, SaysWhatIsAliveAndFromWhereToWhere) {
  const Planned p = planned(parse_scheme(kSmall));
  EXPECT_EQ(p.plan.peak_at, 1);
  ASSERT_GE(p.plan.calls[1].workspace, 0);
  const Bytes workspace = p.plan.storages[p.plan.calls[1].workspace].size;
  EXPECT_EQ(p.plan.live_peak.count, 4 * 64 + workspace.count);
  const std::vector<Holding> held = holdings(p.scheme, p.plan, Tier::kDevice);
  ASSERT_EQ(held.size(), 5u);
  const auto of = [&](const std::string& source) {
    return *std::find_if(held.begin(), held.end(),
                         [&](const Holding& h) { return h.source == source; });
  };
  EXPECT_EQ(of("x").from, "before the step");
  EXPECT_EQ(of("x").to, "mul#1");
  EXPECT_EQ(of("block[1].w").to, "after the step");
  EXPECT_EQ(of("block[1].w").category, Category::kParameters);
  EXPECT_EQ(of("block[0].a").from, "block[0].add#1");
  EXPECT_EQ(of("block[0].a").to, "block[1].add#2");
  EXPECT_EQ(of("b").from, "mul#1");
  EXPECT_EQ(of("b").dtype + of("b").shape, "f32[n=16]");
  EXPECT_EQ(of("mul#1 workspace").bytes, workspace);
  EXPECT_EQ(of("mul#1 workspace").category, Category::kWorkspace);
  nlohmann::json out;
  add_owners(out, p.scheme, p.plan, By::kBlock, 20);
  ASSERT_EQ(out["by"].size(), 3u);
  EXPECT_EQ(out["by"][0]["block"], "");
  EXPECT_EQ(out["by"][0]["bytes"], 128 + workspace.count);  // x and b
  EXPECT_EQ(out["by"][1]["categories"]["activations"], 64);
  EXPECT_EQ(out["by"][2]["categories"]["parameters"], 64);
  EXPECT_EQ(out["peak_at"]["source"], "mul#1");
  EXPECT_EQ(out["peak_at"]["call"], 2);
  EXPECT_EQ(out["peak_at"]["calls"], 3);
  EXPECT_EQ(out["peak_at"]["phase"], "forward");
  const std::string table = owner_table(p.scheme, p.plan, By::kTensor, 3);
  EXPECT_TRUE(has(table, "2 more, each 64 B or less")) << table;
  EXPECT_TRUE(has(table, "at mul#1 (mul), forward, call 2 of 3")) << table;
}

// What a person would add up: the first column, down to the line that says "live".
TEST(OwnerTable, TheTextAddsUpToo) {
  const Planned p = planned("char", "bf16");
  std::istringstream text(owner_table(p.scheme, p.plan, By::kTensor, 5));
  std::string line;
  std::getline(text, line), std::getline(text, line);  // the moment, the heads of the columns
  int64_t sum = 0, live = -1;
  int rows = 0;
  while (live < 0 && std::getline(text, line)) {
    std::string digits = line.substr(0, 17);
    std::erase_if(digits, [](char c) { return c == ',' || c == ' '; });
    const int64_t bytes = std::stoll(digits);
    if (line.size() > 4 && line.substr(line.size() - 4) == "live") {
      live = bytes;
    } else {
      sum += bytes, ++rows;
    }
  }
  EXPECT_EQ(rows, 6);
  EXPECT_EQ(sum, live);
  EXPECT_EQ(live, p.plan.live_peak.count);
}

TEST(OwnerTable, OrdersBlocksByNumber) {
  const Planned p = planned("char", "", 1, 11);
  nlohmann::json out;
  add_owners(out, p.scheme, p.plan, By::kBlock, 20);
  std::vector<std::string> blocks;
  for (const auto& row : out["by"]) blocks.push_back(row["block"]);
  ASSERT_EQ(blocks.size(), 12u);
  EXPECT_EQ(blocks[0], "");
  for (int i = 0; i < 11; ++i) EXPECT_EQ(blocks[i + 1], "block[" + std::to_string(i) + "]");
}

TEST(OwnerTable, ComparesTwoPlans) {
  const Planned a = planned("char", ""), b = planned("char", "offload(optimizer)");
  const std::string table = comparison_table({"plain", a.plan}, {"offload", b.plan});
  EXPECT_TRUE(has(table, with_commas(a.plan.arena.count))) << table;
  EXPECT_TRUE(has(table, with_commas(b.plan.arena.count))) << table;
  EXPECT_TRUE(has(table, with_commas(b.plan.host.size.count))) << table;
  EXPECT_FALSE(has(comparison_table({"a", a.plan}, {"a", a.plan}), "host"));
}

TEST(OwnerTable, RefusesOtherWords) {
  EXPECT_EQ(by_named("block"), By::kBlock);
  const std::string error = error_text([] { by_named("tensors"); });
  EXPECT_TRUE(has(error, "--by: wanted category, block or tensor, found 'tensors'")) << error;
  EXPECT_TRUE(has(error, "did you mean 'tensor'")) << error;
}

}  // namespace
}  // namespace adjoint
