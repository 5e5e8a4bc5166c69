// Ranks of a job under mpirun are killed (SIGKILL) one after another at random moments: the job
// ends each time, soon and with one message that names the rank, its last save is whole, and it
// goes on. In the end the parameters are those of a job that nobody killed.
#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <iostream>
#include <map>
#include <random>
#include <regex>
#include <thread>

#include "base/file.h"
#include "base/temp_folder.h"
#include "train/checksum.h"
#include "train/save.h"

namespace adjoint {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;
using Words = std::vector<std::string>;
using Clock = std::chrono::steady_clock;

constexpr int kRanks = 3;

// The process that is each rank of the jobs that write to this folder.
std::map<int, pid_t> ranks_of(const fs::path& out) {
  std::map<int, pid_t> ranks;
  for (const fs::directory_entry& entry : fs::directory_iterator("/proc")) {
    const std::string name = entry.path().filename().string();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    const auto all_of = [&](const char* file) {
      std::ifstream in(entry.path() / file, std::ios::binary);
      return std::string(std::istreambuf_iterator<char>(in), {});
    };
    const std::string words = all_of("cmdline");
    if (!words.starts_with(ADJOINT_BINARY) || words.find(out.string()) == std::string::npos)
      continue;
    const std::string environment = std::string(1, '\0') + all_of("environ");
    const std::string variable = std::string(1, '\0') + "OMPI_COMM_WORLD_RANK=";
    const size_t at = environment.find(variable);
    if (at != std::string::npos) {
      ranks[std::stoi(environment.substr(at + variable.size()))] = std::stoi(name);
    }
  }
  return ranks;
}

class KilledRanks : public testing::Test {
 protected:
  void SetUp() override {
    if (std::string(MPIRUN_OPENMPI).ends_with("NOTFOUND")) GTEST_SKIP() << "there is no Open MPI";
    ::setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
    ::setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
    std::string text;
    for (int i = 0; i < 400; ++i)
      text += "the cat sat on mat " + std::to_string(i * 37 % 101) + "\n";
    write_file_atomically(folder_ / "text.txt", text);
  }
  fs::path out(const std::string& name) const { return folder_ / name; }
  Words fresh(const std::string& name, int64_t stop_after) const {
    return {"train",
            "--model",
            "char",
            "--data",
            folder_ / "text.txt",
            "--out",
            out(name),
            "--batch",
            "6",
            "--context",
            "16",
            "--steps",
            "1000000",
            "--save-every",
            "1",
            "--log-every",
            "1",
            "--eval-every",
            "7",
            "--threads",
            "1",
            "--eval-batches",
            "1",
            "--stack",
            "data_parallel | zero(3)",
            "--stop-after",
            std::to_string(stop_after),
            "--set",
            "layers=3",
            "hidden=64",
            "dropout=0.1"};
  }
  Words resumed(const std::string& name, int64_t stop_after = 0) const {
    return {"train", "--resume", "--out", out(name), "--stop-after", std::to_string(stop_after)};
  }

  pid_t start(Words words) const {
    const pid_t child = ::fork();
    if (child != 0) return child;
    ::prctl(PR_SET_PDEATHSIG, SIGTERM);  // nobody stays behind a test that fails
    const int to = ::open((folder_ / "told").c_str(), O_CREAT | O_TRUNC | O_WRONLY, 0644);
    ::dup2(to, 1);
    ::dup2(to, 2);
    std::vector<char*> argv;
    for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
    argv.push_back(nullptr);
    ::execv(argv[0], argv.data());
    ::_exit(127);
  }
  pid_t start_job(const Words& train) const {
    Words words = {MPIRUN_OPENMPI, "--oversubscribe", "-n", std::to_string(kRanks), ADJOINT_BINARY};
    words.insert(words.end(), train.begin(), train.end());
    return start(words);
  }
  static int wait_for(pid_t child) {
    int status = 0;
    ::waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  std::string told() const { return read_file(folder_ / "told"); }

  // The step of a save whose files have the numbers that they were written with.
  static int64_t whole_step(const fs::path& folder) {
    const OpenSave save = open_save(SavePaths(folder), true);
    EXPECT_TRUE(save.optimizer) << folder;
    for (const SafetensorsFile* file : {save.model.get(), save.optimizer.get()}) {
      if (!file) continue;
      EXPECT_TRUE(is_checksum_of(file->metadata().at("checksum"), file->tensors())) << folder;
      EXPECT_EQ(file->metadata().at("step"), std::to_string(save.step)) << folder;
    }
    return save.step;
  }
  bool in_a_save(const std::string& name) const {
    const SavePaths paths(out(name));
    for (const fs::directory_entry& entry : fs::directory_iterator(out(name))) {
      for (const fs::path& owner : {paths.model(), paths.optimizer(), paths.manifest()}) {
        if (AtomicFile::is_temporary_of(owner, entry.path())) return true;
      }
    }
    return false;
  }
  bool wait_for_save_after(const std::string& name, int64_t step) const {
    for (int i = 0; i < 6000; ++i) {
      if (saved_step(SavePaths(out(name))).value_or(-1) > step) return true;
      std::this_thread::sleep_for(10ms);
    }
    return false;
  }
  void expect_same_save(const std::string& a, const std::string& b) const {
    for (const char* file : {"model.safetensors", "optimizer.safetensors"}) {
      EXPECT_EQ(read_file(out(a) / file), read_file(out(b) / file)) << file;
    }
  }

  void kill_again_and_again(int kills) {
    ASSERT_EQ(wait_for(start_job(fresh("run", 2))), 0) << told();
    std::mt19937_64 random(std::random_device{}());
    std::uniform_int_distribution<int> pause(0, 300), rank_of(0, kRanks - 1);  // ms
    int64_t before = whole_step(out("run"));
    int inside = 0, clean_ends = 0, resumes = 0;
    double longest = 0;
    for (int kill = 0; kill < kills && !HasFailure(); ++kill) {
      const pid_t job = start_job(resumed("run"));
      ASSERT_TRUE(wait_for_save_after("run", before)) << "it did not go on: " << told();
      ++resumes;
      std::this_thread::sleep_for(std::chrono::milliseconds(pause(random)));
      const int rank = rank_of(random);
      const auto processes = ranks_of(out("run"));
      ASSERT_EQ(processes.size(), static_cast<size_t>(kRanks)) << told();
      const int64_t least = saved_step(SavePaths(out("run"))).value_or(-1);
      ASSERT_EQ(::kill(processes.at(rank), SIGKILL), 0);
      const auto killed_at = Clock::now();
      EXPECT_NE(wait_for(job), 0);
      const double seconds = std::chrono::duration<double>(Clock::now() - killed_at).count();
      longest = std::max(longest, seconds);
      inside += in_a_save("run");
      const std::string text = told();
      const std::regex message(
          "adjoint: the job ends: rank ([0-9]+) died at step [0-9]+ in '[^\n]+'");
      std::vector<int> named;
      for (std::sregex_iterator each(text.begin(), text.end(), message), end; each != end; ++each) {
        named.push_back(std::stoi((*each)[1]));
      }
      EXPECT_EQ(named, std::vector<int>{rank}) << text;
      EXPECT_LT(seconds, 10) << text;
      EXPECT_TRUE(ranks_of(out("run")).empty()) << "a rank stayed behind";
      const int64_t now = whole_step(out("run"));
      EXPECT_GE(now, least);
      if (!HasFailure()) ++clean_ends;
      before = now;
      if (kill % 10 == 9) std::cout << "killed " << kill + 1 << " ranks" << std::endl;
    }
    const int64_t last = before + 2;
    ASSERT_EQ(wait_for(start_job(resumed("run", last))), 0) << told();
    ASSERT_EQ(wait_for(start_job(fresh("whole", last))), 0) << told();
    expect_same_save("run", "whole");
    std::cout << fmt::format(
        "{} kills: {} clean ends, the longest after {:.1f} s; {} good resumes; {} kills were "
        "inside "
        "a save; step {}\n",
        kills, clean_ends, longest, resumes, inside, last);
    EXPECT_EQ(clean_ends, kills);
    EXPECT_EQ(resumes, kills);
  }

  TempFolder folder_;
};

TEST_F(KilledRanks, ThreeTimes) { kill_again_and_again(3); }
TEST_F(KilledRanks, OneHundredTimes) { kill_again_and_again(100); }

// The launcher watches from outside, and starts the job again from its last save.
TEST_F(KilledRanks, LaunchStartsTheJobAgain) {
  const std::string mpirun = std::string(MPIRUN_OPENMPI) + " --oversubscribe";
  Words words = {ADJOINT_BINARY, "launch", "-n", std::to_string(kRanks), "--restarts", "2",
                 "--mpirun",     mpirun,   "--"};
  const Words train = fresh("run", 25);
  words.insert(words.end(), train.begin(), train.end());
  const pid_t job = start(words);
  ASSERT_TRUE(wait_for_save_after("run", 3)) << told();
  const auto processes = ranks_of(out("run"));
  ASSERT_EQ(processes.size(), static_cast<size_t>(kRanks)) << told();
  ::kill(processes.at(1), SIGKILL);
  EXPECT_EQ(wait_for(job), 0) << told();
  const std::string text = told();
  EXPECT_TRUE(std::regex_search(
      text, std::regex("adjoint: the job ends: rank 1 died at step [0-9]+ in '.+'\n")))
      << text;
  EXPECT_TRUE(std::regex_search(
      text, std::regex("adjoint: starting again \\(1 of 2\\), from the save of step [0-9]+\n")))
      << text;
  ASSERT_EQ(wait_for(start_job(fresh("whole", 25))), 0) << told();
  expect_same_save("run", "whole");
}

// A process that is there and does nothing: SIGSTOP.
TEST_F(KilledRanks, ASilentRankEndsTheJob) {
  ::setenv("ADJOINT_SILENCE", "2", 1);
  const pid_t job = start_job(fresh("run", 0));
  ::unsetenv("ADJOINT_SILENCE");
  ASSERT_TRUE(wait_for_save_after("run", 1)) << told();
  const auto processes = ranks_of(out("run"));
  ASSERT_EQ(processes.size(), static_cast<size_t>(kRanks)) << told();
  ::kill(processes.at(2), SIGSTOP);
  EXPECT_NE(wait_for(job), 0);
  EXPECT_TRUE(std::regex_search(
      told(), std::regex("adjoint: the job ends: a rank was silent for [0-9]+ s: rank 2 at step "
                         "[0-9]+ in '.+'\n")))
      << told();
  whole_step(out("run"));
}

}  // namespace
}  // namespace adjoint
