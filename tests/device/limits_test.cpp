// What a process may take, read from trees of files as the kernel writes them.
#include "device/limits.h"

#include <gtest/gtest.h>

#include <fstream>

#include "base/error.h"
#include "base/temp_folder.h"
#include "device/buffer.h"

namespace adjoint {
namespace {

namespace fs = std::filesystem;
constexpr int64_t kMiB = 1 << 20;

class Limits : public testing::Test {
 protected:
  void SetUp() override { put("proc/meminfo", "MemTotal: 99 kB\nMemAvailable:   1048576 kB\n"); }

  void put(const std::string& file, const std::string& text) {
    fs::create_directories((root() / file).parent_path());
    std::ofstream(root() / file) << text;
  }
  void put(const std::string& file, int64_t number) { put(file, std::to_string(number) + "\n"); }

  // One group of version 2: its limit, what it holds, and how much of that are pages of files.
  void put_group(const std::string& group, const std::string& limit, int64_t used, int64_t files) {
    put(group + "/memory.max", limit + "\n");
    put(group + "/memory.high", "max\n");
    put(group + "/memory.current", used);
    put(group + "/memory.stat", "anon 5\nfile 7\ninactive_file " + std::to_string(files - kMiB) +
                                    "\nactive_file " + std::to_string(kMiB) + "\n");
  }
  void mount_version_2(const std::string& group) {
    put("proc/self/cgroup", "0::" + group + "\n");
    put("proc/self/mountinfo",
        "23 1 254:0 / / rw - ext4 /dev/vda rw\n"
        "31 23 0:28 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n");
  }

  fs::path root() const { return folder_ / "root"; }
  int64_t available() const { return available_memory(root())->bytes.count; }
  std::string giver() const { return available_memory(root())->giver; }

 private:
  TempFolder folder_;
};

TEST_F(Limits, WithoutGroupsTheMachineDecides) {
  EXPECT_EQ(available(), 1024 * kMiB);
  EXPECT_EQ(giver(), "the machine has");
  EXPECT_FALSE(allowed_processors(root()));
}

TEST_F(Limits, NothingIsKnownWhereNothingIsSaid) {
  EXPECT_FALSE(available_memory(root() / "nowhere"));
  EXPECT_FALSE(allowed_processors(root() / "nowhere"));
}

TEST_F(Limits, AGroupsPagesOfFilesCanBeHad) {
  mount_version_2("/batch/job");
  put_group("sys/fs/cgroup/batch/job", std::to_string(200 * kMiB), 150 * kMiB, 90 * kMiB);
  EXPECT_EQ(available(), (200 - 150 + 90) * kMiB);
  EXPECT_NE(giver().find("sys/fs/cgroup/batch/job/memory.max"), std::string::npos) << giver();
}

TEST_F(Limits, AGroupThatIsFullHasNothing) {
  mount_version_2("/job");
  put_group("sys/fs/cgroup/job", std::to_string(100 * kMiB), 150 * kMiB, 20 * kMiB);
  EXPECT_EQ(available(), 0);
}

TEST_F(Limits, EveryGroupAroundCounts) {
  mount_version_2("/batch/job");
  put_group("sys/fs/cgroup/batch/job", "max", 10 * kMiB, 2 * kMiB);
  put_group("sys/fs/cgroup/batch", std::to_string(300 * kMiB), 250 * kMiB, 50 * kMiB);
  EXPECT_EQ(available(), 100 * kMiB);
  put("sys/fs/cgroup/batch/cpu.max", "150000 100000\n");
  put("sys/fs/cgroup/batch/job/cpu.max", "max 100000\n");
  EXPECT_DOUBLE_EQ(allowed_processors(root()).value(), 1.5);
  put("sys/fs/cgroup/batch/job/cpu.max", "50000 100000\n");
  EXPECT_DOUBLE_EQ(allowed_processors(root()).value(), 0.5);
}

TEST_F(Limits, WhereAGroupIsSlowedIsALimitToo) {
  mount_version_2("/job");
  put_group("sys/fs/cgroup/job", std::to_string(500 * kMiB), 50 * kMiB, 10 * kMiB);
  put("sys/fs/cgroup/job/memory.high", 240 * kMiB);
  EXPECT_EQ(available(), 200 * kMiB);
  EXPECT_NE(giver().find("memory.high"), std::string::npos) << giver();
}

TEST_F(Limits, AMachineThatHasLessThanTheGroupDecides) {
  mount_version_2("/job");
  put_group("sys/fs/cgroup/job", std::to_string(5000 * kMiB), 10 * kMiB, 5 * kMiB);
  EXPECT_EQ(available(), 1024 * kMiB);
  EXPECT_EQ(giver(), "the machine has");
}

// A container without a namespace of its own sees its group under the name from outside, mounted
// at the top.
TEST_F(Limits, AMountCanBeginAtTheGroup) {
  put("proc/self/cgroup", "4:memory:/docker/af01\n3:cpu,cpuacct:/docker/af01\n0::/docker/af01\n");
  put("proc/self/mountinfo",
      "35 31 0:32 /docker/af01 /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n"
      "36 31 0:33 /docker/af01 /sys/fs/cgroup/cpu ro - cgroup cgroup rw,cpu,cpuacct\n");
  put("sys/fs/cgroup/memory/memory.limit_in_bytes", 64 * kMiB);
  put("sys/fs/cgroup/memory/memory.usage_in_bytes", 32 * kMiB);
  put("sys/fs/cgroup/memory/memory.stat", "inactive_file 1\nactive_file 1\ntotal_inactive_file " +
                                              std::to_string(4 * kMiB) + "\ntotal_active_file " +
                                              std::to_string(4 * kMiB) + "\n");
  put("sys/fs/cgroup/cpu/cpu.cfs_quota_us", 250000);
  put("sys/fs/cgroup/cpu/cpu.cfs_period_us", 100000);
  EXPECT_EQ(available(), 40 * kMiB);
  EXPECT_DOUBLE_EQ(allowed_processors(root()).value(), 2.5);
}

TEST_F(Limits, VersionOneSaysNoLimitByAnEnormousNumber) {
  put("proc/self/cgroup", "4:memory:/\n1:cpu:/\n0::/\n");
  put("proc/self/mountinfo",
      "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n"
      "32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu\n");
  put("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  put("sys/fs/cgroup/memory/memory.usage_in_bytes", 32 * kMiB);
  put("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n");
  put("sys/fs/cgroup/cpu/cpu.cfs_period_us", 100000);
  EXPECT_EQ(giver(), "the machine has");
  EXPECT_FALSE(allowed_processors(root()));
}

// Names from outside that are not below what is mounted, and groups whose folders are not seen.
TEST_F(Limits, AGroupThatIsNotSeenIsTheMountedOne) {
  for (const std::string group : {"/../elsewhere", "/gone/long/ago", "/"}) {
    mount_version_2(group);
    put_group("sys/fs/cgroup", std::to_string(77 * kMiB), 3 * kMiB, 3 * kMiB);
    EXPECT_EQ(available(), 77 * kMiB) << group;
  }
}

TEST_F(Limits, NamesMayHaveSpaces) {
  put("proc/self/cgroup", "0::/my job\n");
  put("proc/self/mountinfo", "31 23 0:28 / /sys/c\\040g rw - cgroup2 cgroup2 rw\n");
  put_group("sys/c g/my job", std::to_string(50 * kMiB), 10 * kMiB, 2 * kMiB);
  EXPECT_EQ(available(), 42 * kMiB);
}

TEST_F(Limits, ThisMachineHasSomethingToGive) {
  ASSERT_TRUE(available_memory());
  EXPECT_GT(available_memory()->bytes.count, 0);
  EXPECT_GE(available_processors(), 1);
}

TEST_F(Limits, WhatIsTooMuchIsRefusedInOneSentence) {
  const Bytes most{int64_t{1} << 60};
  try {
    check_memory(most, "this step", ": take less");
    FAIL() << "an exbibyte is too much";
  } catch (const Error& e) {
    const std::string text = e.what();
    EXPECT_EQ(text.find("this step needs 1024 PiB (1152921504606846976 bytes) of memory, "), 0u)
        << text;
    EXPECT_NE(text.find(" available: take less"), std::string::npos) << text;
  }
  EXPECT_THROW(Buffer{most}, MachineError);
  EXPECT_NO_THROW(check_memory({1}, "this"));
}

TEST_F(Limits, AFolderThatIsNotThereYetIsOnSomeDisk) {
  const Bytes most{int64_t{1} << 60};
  try {
    check_space(root() / "runs/new", most, "a save", "; nothing was trained");
    FAIL() << "an exbibyte is too much";
  } catch (const MachineError& e) {
    const std::string text = e.what();
    EXPECT_NE(
        text.find("runs/new: a save needs 1024 PiB (1152921504606846976 bytes) of disk, and "),
        std::string::npos)
        << text;
    EXPECT_NE(text.find(" are free; nothing was trained"), std::string::npos) << text;
  }
  EXPECT_NO_THROW(check_space(root() / "runs/new", {1}, "a save"));
}

}  // namespace
}  // namespace adjoint
