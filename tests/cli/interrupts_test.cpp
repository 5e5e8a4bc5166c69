// Ctrl-C and progress, as somebody at a terminal and somebody who reads a log meet them. Steps take
// far longer than any answer may, so no test asks how fast the machine is.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <pty.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <optional>

#include "base/file.h"
#include "base/temp_folder.h"
#include "cli/outcome.h"

namespace adjoint {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kLong{120};  // for whatever comes before
// An answer, on a machine that runs many tests. Nothing in the program waits for the step.
constexpr std::chrono::seconds kAnswer{10};

// The binary with standard input, output and error on a terminal of its own, or on a pipe.
class Started {
 public:
  // `before` is put in front of the binary: a launcher.
  Started(const std::string& arguments, bool terminal, const std::string& before = "") {
    int ends[2] = {-1, -1};
    if (terminal) {
      winsize size{.ws_row = 24, .ws_col = 200, .ws_xpixel = 0, .ws_ypixel = 0};
      child_ = ::forkpty(&from_, nullptr, nullptr, &size);
    } else {
      EXPECT_EQ(::pipe(ends), 0);
      child_ = ::fork();
    }
    if (child_ == 0) {
      if (!terminal) ::dup2(ends[1], 1), ::dup2(ends[1], 2), ::close(ends[0]), ::close(ends[1]);
      ::setenv("TERM", "xterm", 1);
      const std::string command = "exec " + before + " " ADJOINT_BINARY " " + arguments;
      ::execl("/bin/sh", "sh", "-c", command.c_str(), nullptr);
      ::_exit(127);
    }
    if (!terminal) ::close(ends[1]), from_ = ends[0];
  }
  ~Started() {
    if (!ended_) ::kill(child_, SIGKILL), ::waitpid(child_, nullptr, 0);
    ::close(from_);
  }
  void interrupt() const { ::kill(child_, SIGINT); }
  void hang_up() const { ::kill(child_, SIGHUP); }
  void press_ctrl_c() const { EXPECT_EQ(::write(from_, "\x03", 1), 1); }

  // Reads until this is there; false: it did not come in time, or the program ended.
  bool says(const std::string& part, std::chrono::seconds within, size_t from = 0) {
    const auto end = Clock::now() + within;
    while (text_.find(part, from) == std::string::npos) {
      pollfd ready{.fd = from_, .events = POLLIN, .revents = 0};
      if (Clock::now() > end || ::poll(&ready, 1, 100) < 0) return false;
      if (ready.revents == 0) continue;
      char buffer[4096];
      const ssize_t n = ::read(from_, buffer, sizeof buffer);
      if (n <= 0) return text_.find(part, from) != std::string::npos;
      text_.append(buffer, n);
    }
    return true;
  }
  // Once more than by now.
  bool says_again(const std::string& part, std::chrono::seconds within) {
    return says(part, within, text_.size());
  }
  const std::string& text() const { return text_; }
  // It is killed if it does not end by itself.
  int exit_code() {
    int status = 0;
    const auto end = Clock::now() + kLong;
    while (::waitpid(child_, &status, WNOHANG) == 0) {
      if (Clock::now() > end) ::kill(child_, SIGKILL);
      ::usleep(10'000);
    }
    ended_ = true;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

 private:
  pid_t child_ = -1;
  int from_ = -1;
  bool ended_ = false;
  std::string text_;
};

const std::string kTiny = "--batch 2 --context 8 --set layers=1 hidden=16 heads=2 ";

class Interrupts : public testing::Test {
 protected:
  void SetUp() override {
    std::string text;
    for (int i = 0; i < 300; ++i) text += "a line of text " + std::to_string(i * 7 % 90) + "\n";
    write_file_atomically(folder_ / "text.txt", text);
  }
  std::string train(const std::string& more) const {
    return "train --model char --data " + (folder_ / "text.txt").string() +
           " --eval-batches 1 --out " + (folder_ / "run").string() + " " + more;
  }
  // A step takes minutes, in little memory.
  std::string slow() const { return train("--steps 3 --batch 40000 --stack 'accumulate(4000)'"); }
  TempFolder folder_;
};

TEST_F(Interrupts, AreAnsweredWhileAStepRuns) {
  Started run(slow(), true);
  ASSERT_TRUE(run.says("step 1 of 3 is under way", kLong)) << run.text();
  run.press_ctrl_c();
  EXPECT_TRUE(
      run.says("adjoint: stopping after this step, then saving; Ctrl-C again ends without "
               "a save\r\n",
               kAnswer))
      << run.text();
  EXPECT_EQ(run.text().find("saved step"), std::string::npos) << "the step is still running";
  ::sleep(2);  // two within a second are one key press
  // Whoever started it has gone, and is not in a hurry.
  run.hang_up();
  EXPECT_FALSE(run.says("ended at once", std::chrono::seconds(1))) << run.text();
  run.press_ctrl_c();
  EXPECT_TRUE(run.says("adjoint: ended at once, without a save\r\n", kAnswer)) << run.text();
  EXPECT_EQ(run.exit_code(), 130);
  EXPECT_FALSE(std::filesystem::exists(folder_ / "run/model.safetensors"));
}

TEST_F(Interrupts, SaveAfterTheStep) {
  // Without other saves, which would get another answer.
  Started run(train(kTiny + "--steps 1000000 --save-every 0 --eval-every 0"), true);
  ASSERT_TRUE(run.says("tokens/s", kLong)) << run.text();
  run.press_ctrl_c();
  // A step of microseconds may be over, and its save begun, before the answer is given.
  EXPECT_TRUE(run.says("adjoint: stopping ", kLong)) << run.text();
  EXPECT_TRUE(run.says("go on with: adjoint train --resume", kLong)) << run.text();
  EXPECT_EQ(run.exit_code(), 130);
  EXPECT_TRUE(std::filesystem::exists(folder_ / "run/model.safetensors"));
}

TEST_F(Interrupts, EndOtherLongWorkAtOnce) {
  Started run("verify --matrix", true);
  ASSERT_TRUE(run.says("composing functors", kLong)) << run.text();
  run.press_ctrl_c();
  EXPECT_TRUE(run.says("adjoint: interrupted while composing functors\r\n", kAnswer)) << run.text();
  EXPECT_EQ(run.exit_code(), 130);
}

TEST_F(Interrupts, BeforeTheFirstStepNothingIsSaved) {
  // Data that never come.
  const std::string data = folder_ / "data";
  ASSERT_EQ(::mkfifo(data.c_str(), 0600), 0);
  Started run("train --model char --data " + data + " --out " + (folder_ / "run").string(), true);
  ASSERT_TRUE(run.says("reading the data", kLong)) << run.text();
  run.press_ctrl_c();
  EXPECT_TRUE(run.says("adjoint: interrupted while reading the data\r\n", kAnswer)) << run.text();
  EXPECT_EQ(run.exit_code(), 130);
  EXPECT_FALSE(std::filesystem::exists(folder_ / "run/model.safetensors"));
}

// Whoever prints into a pipe that nobody reads waits for ever, and Ctrl-C does not wait for him.
TEST_F(Interrupts, AreAnsweredWhileSomebodyWaitsToWrite) {
  const std::string pipe = folder_ / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  const int reader = ::open(pipe.c_str(), O_RDONLY | O_NONBLOCK);
  ASSERT_GE(reader, 0);
  ::fcntl(reader, F_SETPIPE_SZ, 4096);
  Started run(train(kTiny + "--steps 1000000 --save-every 0 --eval-every 1") + " >" + pipe, true);
  int waiting = 0;
  for (const auto end = Clock::now() + kLong; waiting < 3900 && Clock::now() < end;) {
    ::usleep(100'000);
    ASSERT_EQ(::ioctl(reader, FIONREAD, &waiting), 0);
  }
  ASSERT_GE(waiting, 3900) << run.text();
  ::sleep(1);  // for the line that does not fit
  run.press_ctrl_c();
  ASSERT_TRUE(run.says("stopping after this step, then saving", kAnswer)) << run.text();
  ::sleep(2);
  run.press_ctrl_c();
  ASSERT_TRUE(run.says("adjoint: ended at once, without a save\r\n", kAnswer)) << run.text();
  EXPECT_EQ(run.exit_code(), 130);
  ::close(reader);
}

TEST_F(Interrupts, AreAnsweredWhileAConversationReadsItsModel) {
  // So many blocks that reading takes many times as long as the first line on it.
  const std::filesystem::path model = folder_ / "model";
  std::filesystem::copy(SOURCE_DIR "/tests/huggingface/gpt2", model);
  std::string config = read_file(model / "config.json");
  for (const auto& [was, is] : {std::pair{"\"n_layer\": 2,", "\"n_layer\": 15000,"},
                                {"\"vocab_size\": 41", "\"vocab_size\": 300"}}) {
    ASSERT_NE(config.find(was), std::string::npos);
    config.replace(config.find(was), std::string_view(was).size(), is);
  }
  write_file_atomically(model / "config.json", config);
  ASSERT_EQ(adjoint::run("tokenizer train --data " + (folder_ / "text.txt").string() +
                         " --vocab 300 --out " + (model / "tokenizer.json").string())
                .code,
            0);
  Started run("--tell-every 0.05 chat --template chatml --model " + model.string(), false);
  ASSERT_TRUE(run.says("adjoint: reading the model", kLong)) << run.text();
  run.interrupt();
  ASSERT_TRUE(run.says("adjoint: interrupted while reading the model\n", kAnswer)) << run.text();
  EXPECT_EQ(run.exit_code(), 130);
}

TEST_F(Interrupts, ALogGetsLinesWithoutCarriageReturns) {
  Started run("--tell-every 0.3 " + slow(), false);
  ASSERT_TRUE(run.says("adjoint: step 1 of 3 is under way, ", kLong)) << run.text();
  ASSERT_TRUE(run.says("s\n", kLong)) << run.text();
  EXPECT_EQ(run.text().find('\r'), std::string::npos) << run.text();
  EXPECT_EQ(run.text().find('\x1b'), std::string::npos) << run.text();
}

// Of ranks that are processes the first one tells. The others do not know how far it is, so their
// lines would be without a number.
TEST_F(Interrupts, OneOfSeveralRanksTells) {
  if (std::string(MPIRUN_OPENMPI).ends_with("NOTFOUND")) GTEST_SKIP() << "there is no Open MPI";
  Started run("--tell-every 0.5 profile --steps 10000 --out " + (folder_ / "profile").string() +
                  " --model char --batch 8 --threads 1 --stack 'data_parallel(2)'",
              false,
              "env ASAN_OPTIONS=detect_leaks=0 OMPI_ALLOW_RUN_AS_ROOT=1 "
              "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 " MPIRUN_OPENMPI " --oversubscribe -n 2");
  ASSERT_TRUE(run.says("adjoint: measuring: ", kLong)) << run.text();
  const size_t counted = run.text().find("adjoint: measuring: ");
  for (int lines = 1; lines <= 4; ++lines) {  // others would have told twice by now
    ASSERT_TRUE(run.says_again("adjoint: measuring: ", kLong)) << run.text();
  }
  EXPECT_EQ(run.text().find("adjoint: measuring, ", counted), std::string::npos) << run.text();
  run.interrupt();
  run.says("nothing like this", kAnswer);
  EXPECT_NE(run.exit_code(), 0);
}

}  // namespace
}  // namespace adjoint
