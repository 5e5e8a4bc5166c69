// A run is killed (SIGKILL) at random moments, most of them inside a save, and goes on each time.
// Every save that was there before is there and whole, nothing that is half a save can be taken for
// one, readers in other processes never fail meanwhile, and in the end the parameters are those of
// a run that nobody killed.
#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <iostream>
#include <random>
#include <thread>

#include "base/file.h"
#include "base/temp_folder.h"
#include "train/checksum.h"
#include "train/save.h"

namespace adjoint {
namespace {

namespace fs = std::filesystem;
using Words = std::vector<std::string>;

pid_t start(const Words& words, const fs::path& told) {
  const pid_t child = ::fork();
  if (child != 0) return child;
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // nobody stays behind a test that fails
  const int to = ::open(told.c_str(), O_CREAT | O_TRUNC | O_WRONLY, 0644);
  ::dup2(to, 1);
  ::dup2(to, 2);
  std::vector<char*> argv = {const_cast<char*>(ADJOINT_BINARY)};
  for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  ::execv(argv[0], argv.data());
  ::_exit(127);
}

// -1: it was killed.
int wait_for(pid_t child) {
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

// Processes that read again and again, a thread for each of these commands.
class Readers {
 public:
  Readers(const std::vector<Words>& commands, const fs::path& told) {
    for (size_t i = 0; i < commands.size(); ++i) {
      const fs::path own = told.string() + std::to_string(i);
      threads_.emplace_back([this, words = commands[i], own] {
        while (!done_) {
          ++reads_;
          if (wait_for(start(words, own)) == 0) continue;
          if (failures_++ == 0) std::cout << read_file(own);
        }
      });
    }
  }
  ~Readers() { end(); }
  void end() {
    done_ = true;
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
  }
  int reads() const { return reads_; }
  int failures() const { return failures_; }

 private:
  std::atomic<bool> done_ = false;
  std::atomic<int> reads_ = 0, failures_ = 0;
  std::vector<std::thread> threads_;
};

class KilledRun : public testing::Test {
 protected:
  void SetUp() override {
    std::string text;
    for (int i = 0; i < 400; ++i)
      text += "the cat sat on mat " + std::to_string(i * 37 % 101) + "\n";
    write_file_atomically(folder_ / "text.txt", text);
  }
  fs::path out(const std::string& name) const { return folder_ / name; }
  Words fresh(const std::string& name, int64_t stop_after = 0) const {
    return {"train",
            "--model",
            "char",
            "--data",
            folder_ / "text.txt",
            "--out",
            out(name),
            "--batch",
            "2",
            "--context",
            "16",
            "--steps",
            "1000000",
            "--save-every",
            "1",
            "--keep",
            "2",
            "--keep-best",
            "--eval-every",
            "3",
            "--log-every",
            "1",
            "--stop-after",
            std::to_string(stop_after),
            "--threads",
            "1",
            "--eval-batches",
            "1",
            "--set",
            "layers=4",
            "hidden=96"};
  }
  Words resumed(const std::string& name, int64_t stop_after = 0) const {
    return {"train", "--resume", "--out", out(name), "--stop-after", std::to_string(stop_after)};
  }
  int run(const Words& words) {
    const int code = wait_for(start(words, folder_ / "told"));
    if (code != 0) std::cout << read_file(folder_ / "told");
    return code;
  }

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
  // What the folder of a run holds beside its own save. A folder without run.json is none.
  void check_side_saves(const std::string& name) {
    for (const fs::directory_entry& entry : fs::directory_iterator(out(name))) {
      if (!entry.is_directory() || !fs::exists(SavePaths(entry.path()).run())) continue;
      const int64_t step = whole_step(entry.path());
      const std::string own = entry.path().filename().string();
      EXPECT_TRUE(own == "best" || own == "step-" + std::to_string(step)) << own << " " << step;
      ++side_saves_;
    }
  }
  bool in_a_save(const std::string& name) const {
    const SavePaths paths(out(name));
    for (const fs::directory_entry& entry : fs::recursive_directory_iterator(out(name))) {
      for (const fs::path& owner : {paths.model(), paths.optimizer(), paths.manifest()}) {
        if (AtomicFile::is_temporary_of(entry.path().parent_path() / owner.filename(),
                                        entry.path()))
          return true;
      }
    }
    return false;
  }

  void kill_again_and_again(int kills) {
    using namespace std::chrono_literals;
    ASSERT_EQ(run(fresh("run", 3)), 0);
    Readers readers(
        {{"eval", "--model", out("run"), "--threads", "1", "--json"},
         {"generate", "--model", out("run"), "--threads", "1", "--prompt", "the", "--tokens", "2"}},
        folder_ / "read");
    std::mt19937_64 random(std::random_device{}());
    std::uniform_int_distribution<int> from_start(0, 1500), from_save(0, 300);  // ms
    int64_t before = whole_step(out("run"));
    int inside = 0, went_on = 0;
    for (int kill = 0; kill < kills && !HasFailure(); ++kill) {
      const pid_t child = start(resumed("run"), folder_ / "told");
      // One in four while it starts; the others once it saves, however slow the machine is.
      const bool starts = kill % 4 == 0;
      for (int i = 0; !starts && i < 3000 && saved_step(SavePaths(out("run"))) == before; ++i) {
        std::this_thread::sleep_for(10ms);
      }
      std::this_thread::sleep_for(
          std::chrono::milliseconds(starts ? from_start(random) : from_save(random)));
      // Whatever is there now must be there, or something later, when the run is dead.
      const int64_t least = saved_step(SavePaths(out("run"))).value_or(-1);
      EXPECT_EQ(::kill(child, SIGKILL), 0);
      EXPECT_EQ(wait_for(child), -1) << "it ended by itself: " << read_file(folder_ / "told");
      inside += in_a_save("run");
      const int64_t now = whole_step(out("run"));
      EXPECT_GE(now, std::max(before, least));
      went_on += now > before;
      before = now;
      check_side_saves("run");
      if (kill % 50 == 49) std::cout << "killed " << kill + 1 << " times" << std::endl;
    }
    readers.end();
    EXPECT_EQ(readers.failures(), 0) << "of " << readers.reads() << " reads";
    const int64_t last = before + 2;
    ASSERT_EQ(run(resumed("run", last)), 0) << "goes on";
    ASSERT_EQ(run(fresh("whole", last)), 0);
    for (const char* file : {"model.safetensors", "optimizer.safetensors"}) {
      EXPECT_EQ(read_file(out("run") / file), read_file(out("whole") / file)) << file;
    }
    std::cout << fmt::format(
        "killed {} times, {} of them inside a save; {} times it had gone on, to step {}; {} kept "
        "saves were whole; {} reads meanwhile\n",
        kills, inside, went_on, before, side_saves_, readers.reads());
    EXPECT_GT(inside, 0) << "no kill was inside a save";
    EXPECT_GT(went_on, 0) << "no run came to save anything";
  }

  TempFolder folder_;
  int side_saves_ = 0;
};

TEST_F(KilledRun, TenTimes) { kill_again_and_again(10); }
TEST_F(KilledRun, TwoHundredTimes) { kill_again_and_again(200); }

}  // namespace
}  // namespace adjoint
