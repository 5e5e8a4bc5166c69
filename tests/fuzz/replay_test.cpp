// Every seed of the fuzz targets, among them those of past findings, under the plain build: each is
// refused with an Error or taken. Beside it come its pieces and a few hundred inputs with a byte or
// two changed, always the same ones, so that a machine without clang looks a little beyond the
// seeds.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "base/file.h"
#include "fuzz/fuzz_target.h"

namespace adjoint {
namespace {

namespace fs = std::filesystem;

std::vector<fs::path> seeds_of(const std::string& target) {
  std::vector<fs::path> seeds;
  for (const auto& entry :
       fs::directory_iterator(fs::path(SOURCE_DIR) / "tests/fuzz/seeds" / target)) {
    seeds.push_back(entry.path());
  }
  std::sort(seeds.begin(), seeds.end());
  return seeds;
}

std::vector<std::string> names_of_targets() {
  std::vector<std::string> names;
  for (const auto& [name, target] : fuzz_targets()) names.push_back(name);
  return names;
}

class Replay : public testing::TestWithParam<std::string> {
 protected:
  // Whether it was taken; false: refused.
  bool takes(const std::string& input) const {
    try {
      fuzz_targets().at(GetParam())(input);
      return true;
    } catch (const Error& error) {
      EXPECT_FALSE(std::string(error.what()).empty());
      return false;
    }
  }
};

TEST_P(Replay, SeedsAreTakenOrRefused) {
  int taken = 0;
  for (const fs::path& seed : seeds_of(GetParam())) {
    SCOPED_TRACE(seed.string());
    taken += takes(read_file(seed));
  }
  // Seeds that are all refused would test the first line of a parser alone.
  EXPECT_GT(taken, 0);
}

TEST_P(Replay, ChangedSeedsAreTakenOrRefused) {
  std::mt19937 random(1);
  constexpr int kEach = 40;
  for (const fs::path& seed : seeds_of(GetParam())) {
    SCOPED_TRACE(seed.string());
    const std::string whole = read_file(seed);
    for (int i = 0; i < kEach && !whole.empty(); ++i) {
      std::string input = whole;
      if (i % 4 == 0) input.resize(random() % input.size());
      for (unsigned k = random() % 3; k > 0 && !input.empty(); --k) {
        input[random() % input.size()] = static_cast<char>(random());
      }
      takes(input);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, Replay, testing::ValuesIn(names_of_targets()),
                         [](const auto& info) { return info.param; });

TEST(Replay, EveryFolderOfSeedsHasATarget) {
  for (const auto& entry : fs::directory_iterator(fs::path(SOURCE_DIR) / "tests/fuzz/seeds")) {
    EXPECT_TRUE(fuzz_targets().count(entry.path().filename().string())) << entry.path();
  }
}

}  // namespace
}  // namespace adjoint
