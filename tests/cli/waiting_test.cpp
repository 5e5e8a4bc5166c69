// How the binary's threads wait: it restarts itself once if the environment does not say how.
// libgomp prints its settings each time it is loaded.
#include <gtest/gtest.h>

#include <filesystem>
#include <vector>

#include "cli/outcome.h"

namespace adjoint {
namespace {

const std::string kNobodySays = "env -u OMP_WAIT_POLICY -u GOMP_SPINCOUNT OMP_DISPLAY_ENV=verbose ";

// The value of GOMP_SPINCOUNT in each start of the program.
std::vector<std::string> starts(const std::string& text) {
  std::vector<std::string> values;
  const std::string name = "GOMP_SPINCOUNT = '";
  for (size_t at = text.find(name); at != std::string::npos; at = text.find(name, at + 1)) {
    const size_t begin = at + name.size();
    values.push_back(text.substr(begin, text.find('\'', begin) - begin));
  }
  return values;
}

const std::string kRuns = "generate --model 'no such  run'";  // is refused, but by the second start

class Waiting : public testing::Test {
 protected:
  void SetUp() override {
    if (starts(run("--version", kNobodySays).text).empty()) {
      GTEST_SKIP() << "this OpenMP does not say how it waits";
    }
  }
};

TEST_F(Waiting, IsShortWhereNobodySaysHow) {
  const Outcome o = run(kRuns, kNobodySays);
  const auto found = starts(o.text);
  ASSERT_EQ(found.size(), 2u) << "the program as it was started, and anew: " << o.text;
  EXPECT_LT(std::stoll(found[1]), std::stoll(found[0]));
  EXPECT_EQ(o.code, 1) << o.text;
  EXPECT_NE(o.text.find("no such  run"), std::string::npos) << "arguments stay: " << o.text;
}

TEST_F(Waiting, IsTheUsersWhereTheySay) {
  for (const char* say : {"OMP_WAIT_POLICY=active ", "OMP_WAIT_POLICY=passive "}) {
    EXPECT_EQ(starts(run(kRuns, kNobodySays + say).text).size(), 1u) << say;
  }
  EXPECT_EQ(starts(run(kRuns, kNobodySays + "GOMP_SPINCOUNT=77 ").text),
            (std::vector<std::string>{"77"}));
}

TEST_F(Waiting, WhatRunsNoStepStartsOnce) {
  EXPECT_EQ(starts(run("ops", kNobodySays).text).size(), 1u);
  EXPECT_EQ(starts(run("train --help", kNobodySays).text).size(), 1u);
}

// Named by hand, the loader is the program that /proc shows.
TEST_F(Waiting, TheLoaderNamedByHandStartsItOnce) {
  const std::string loader = "/lib64/ld-linux-x86-64.so.2";
  if (!std::filesystem::exists(loader)) GTEST_SKIP() << "no loader of that name";
  const Outcome o = run(kRuns, kNobodySays + loader);
  EXPECT_EQ(starts(o.text).size(), 1u) << o.text;
  EXPECT_NE(o.text.find("no such  run"), std::string::npos) << o.text;
}

}  // namespace
}  // namespace adjoint
