// Device sheets: those that come with the program, a user's own, and what is wrong with one.
#include "cost/sheet.h"

#include <gtest/gtest.h>

#include "base/error_text.h"

namespace adjoint {
namespace {

constexpr const char* kText = R"(summary = "mine"
arithmetic = 1e9
bandwidth = 2e9
[products]
f32 = 3e9
)";

TEST(DeviceSheet, EveryOneThatComesWithTheProgramIsReadAndPrintsWhatItReads) {
  EXPECT_GE(device_names().size(), 5u);
  for (const std::string& name : device_names()) {
    const DeviceSheet sheet = find_device(name);
    EXPECT_EQ(sheet.name, name);
    EXPECT_FALSE(sheet.summary.empty()) << name;
    EXPECT_GT(sheet.workspace.count, 0) << name;
    const DeviceSheet again = parse_device(print(sheet), name + ".device");
    EXPECT_EQ(print(again), print(sheet)) << name;
    EXPECT_EQ(again.products, sheet.products) << name;
  }
}

TEST(DeviceSheet, DefaultsAreThoseOfADeviceWithOneMemory) {
  const DeviceSheet sheet = parse_device(kText, "some/where/mine.device");
  EXPECT_EQ(sheet.name, "mine");
  EXPECT_EQ(sheet.link, 0);
  EXPECT_FALSE(sheet.overlaps);
  EXPECT_EQ(sheet.most_bandwidth, 2e9);
}

TEST(DeviceSheet, AFabricIsThatBetweenRanks) {
  const std::string more = "[fabric]\nlatency = 2e-6\nbandwidth = 4e9\n";
  const DeviceSheet sheet = parse_device(kText + more, "mine.device");
  EXPECT_EQ(sheet.fabric.latency, 2e-6);
  EXPECT_EQ(sheet.fabric.seconds_per_byte, 1 / 4e9);
  EXPECT_EQ(sheet.fabric.seconds_per_term, Fabric{}.seconds_per_term);
  EXPECT_EQ(error_text([&] { parse_device(kText + more + "bandwith = 3\n", "mine.device"); }),
            "mine.device: a fabric has no 'bandwith'; did you mean 'bandwidth'?");
}

TEST(DeviceSheet, AnUnknownNameListsTheKnown) {
  const std::string text = error_text([] { find_device("h20"); });
  EXPECT_TRUE(has(text, "there is no device 'h20'")) << text;
  for (const std::string& name : device_names()) EXPECT_TRUE(has(text, name)) << text;
  EXPECT_TRUE(has(text, "did you mean 'h200'?")) << text;
}

TEST(DeviceSheet, MistakesNameTheFileAndTheKey) {
  const auto refused = [](const std::string& more) {
    return error_text([&] { parse_device(more + kText, "mine.device"); });
  };
  EXPECT_EQ(refused("bandwith = 1\n"),
            "mine.device: a device has no 'bandwith'; did you mean 'bandwidth'?");
  EXPECT_EQ(refused("launch = -1\n"), "mine.device: launch: wanted a number above 0");
  EXPECT_EQ(refused("memory = \"much\"\n"),
            "mine.device: memory: wanted a size such as \"24GB\", found 'much'");
  EXPECT_EQ(refused("overlaps = true\n"), "mine.device: wanted link, found none");
  EXPECT_TRUE(has(refused("memory = [\n"), "mine.device:")) << refused("memory = [\n");
  EXPECT_EQ(error_text([] { parse_device("arithmetic = 1\n", "mine.device"); }),
            "mine.device: wanted [products], found none");
}

}  // namespace
}  // namespace adjoint
