// What whoever waits is told, by a clock that the test sets.
#include "base/activity.h"

#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <optional>
#include <thread>

namespace adjoint {
namespace {

class Telling : public testing::Test {
 protected:
  explicit Telling(bool terminal)
      : teller({.terminal = terminal,
                .every = 9,
                .write = [this](std::string_view text) { written += text; },
                .now = [this] { return now; },
                .columns = [this] { return columns; }}) {}
  // Looks as often as the program does.
  void wait(double seconds) {
    for (int i = 0; i < static_cast<int>(seconds * 10); ++i) {
      now += std::chrono::milliseconds(100);
      teller.look();
    }
  }
  std::string taken() { return std::exchange(written, {}); }

  Teller::Clock::time_point now = {};
  std::string written;
  int columns = 200;
  Teller teller;
};

struct InALog : Telling {
  InALog() : Telling(false) {}
};
struct OnATerminal : Telling {
  OnATerminal() : Telling(true) {}
};

Progress steps(int64_t done, int64_t of) {
  return {.what = "training",
          .unit = "step",
          .one_by_one = true,
          .at_once = true,
          .done = done,
          .of = of};
}

TEST_F(InALog, ALineComesAtLeastEveryTenSeconds) {
  const Activity planning(Progress{.what = "planning"}, true, teller);
  wait(8);
  EXPECT_EQ(taken(), "") << "what is over soon is not told";
  wait(2);
  EXPECT_EQ(taken(), "adjoint: planning, 9s\n");
  wait(18);
  EXPECT_EQ(taken(), "adjoint: planning, 18s\nadjoint: planning, 27s\n");
}

// Somebody writes into a pipe that nobody reads: he has the teller for ever.
TEST_F(OnATerminal, ASignalsAnswerWaitsForNobody) {
  const Activity planning(Progress{.what = "planning"}, true, teller);
  wait(3);
  EXPECT_EQ(teller.doing(), "planning");
  EXPECT_TRUE(Teller::Quiet(teller, Teller::kPatience).leaves_a_line());
  EXPECT_FALSE(Teller::Quiet(teller, Teller::kPatience).leaves_a_line()) << "it is told once";
  std::promise<void> written, over;
  std::thread writer([&] {
    const Teller::Quiet quiet(teller);
    written.set_value();
    over.get_future().wait();
  });
  written.get_future().wait();
  EXPECT_EQ(teller.doing(), "");
  EXPECT_FALSE(Teller::Quiet(teller, Teller::kPatience).leaves_a_line());
  over.set_value();
  writer.join();
}

TEST_F(InALog, ASlowStepIsUnderWay) {
  Activity training(steps(2, 20), true, teller);
  wait(10);
  EXPECT_EQ(taken(), "adjoint: step 3 of 20 is under way, 9s\n");
  training.at(3, 20, "loss 2.5  90 tokens/s");
  wait(9);
  EXPECT_EQ(taken(), "adjoint: step 3 of 20  loss 2.5  90 tokens/s\n");
  wait(9);
  EXPECT_EQ(taken(), "adjoint: step 4 of 20 is under way, 17s\n");
}

// The first step also prepares what the others find, so it is no measure of them.
TEST_F(InALog, TheTimeLeftLeavesTheFirstStepOut) {
  Activity training(steps(0, 10), true, teller);
  wait(8);
  training.at(1, 10);
  wait(2);
  taken();
  training.at(2, 10);
  wait(2);
  training.at(3, 10, "loss 2");
  wait(7);
  EXPECT_EQ(taken(), "adjoint: step 3 of 10  loss 2  14s left\n");
}

TEST_F(InALog, WorkInsideAStepNamesTheStep) {
  Activity training(steps(5, 20), true, teller);
  Activity evaluating(Progress{.what = "evaluating", .unit = "batches"}, true, teller);
  evaluating.at(3, 30);
  wait(9.5);
  EXPECT_EQ(taken(), "adjoint: step 5 of 20: evaluating: 3 of 30 batches\n");
}

TEST_F(InALog, WhatIsPrintedCountsAsALine) {
  const Activity planning(Progress{.what = "planning"}, true, teller);
  wait(8);
  { const Teller::Quiet quiet(teller); }
  wait(8);
  EXPECT_EQ(taken(), "");
  wait(2);
  EXPECT_EQ(taken(), "adjoint: planning, 17s\n");
}

TEST_F(InALog, NothingIsRedrawn) {
  Activity searching(Progress{.what = "searching", .unit = "plans made"}, true, teller);
  for (int i = 1; i < 50; ++i) {
    searching.at(i, 0);
    wait(1);
  }
  EXPECT_EQ(written.find('\r'), std::string::npos);
  EXPECT_EQ(written.substr(0, written.find('\n')), "adjoint: searching: 9 plans made, 9s");
}

TEST_F(OnATerminal, ALineIsDrawnAfterTwoSecondsAndCleared) {
  std::optional<Activity> planning(std::in_place, Progress{.what = "planning"}, true, teller);
  wait(1.9);
  EXPECT_EQ(taken(), "");
  wait(0.2);
  EXPECT_EQ(taken(), "\r\033[Kplanning, 2s");
  planning.reset();
  EXPECT_EQ(taken(), "\r\033[K");
}

TEST_F(OnATerminal, TrainingIsDrawnAtOnce) {
  Activity training(steps(0, 4), true, teller);
  wait(0.1);
  const std::string none = "────────────────────────", half = "━━━━━━━━━━━━────────────";
  EXPECT_EQ(taken(), "\r\033[K" + none + " 0/4");
  wait(2);
  EXPECT_EQ(taken(), "\r\033[K" + none + " 0/4  step 1 of 4 is under way, 2s");
  training.at(1, 4);
  wait(1);
  training.at(2, 4, "loss 3");
  taken();
  wait(0.1);
  EXPECT_EQ(taken(), "\r\033[K" + half + " 2/4  loss 3  2s left");
}

TEST_F(OnATerminal, ALineFitsTheTerminal) {
  columns = 12;
  const Activity planning(Progress{.what = "planning for a long time"}, true, teller);
  wait(2);
  EXPECT_EQ(taken(), "\r\033[Kplanning fo");
}

TEST_F(OnATerminal, TheBarIsShortenedFirst) {
  Activity training(steps(0, 2000), true, teller);
  training.at(1, 2000);
  wait(1);
  training.at(2, 2000, "loss 3");
  wait(0.1);
  taken();
  const std::string text = "2/2000  loss 3  33m 18s left";
  for (const int room : {12, 4}) {
    columns = static_cast<int>(text.size()) + room + 2;
    std::string bar;
    for (int i = 0; i < room; ++i) bar += "─";
    wait(0.1);
    EXPECT_EQ(taken(), "\r\033[K" + bar + " " + text);
  }
  columns = static_cast<int>(text.size()) + 3;
  wait(0.1);
  EXPECT_EQ(taken(), "\r\033[K" + text) << "no bar before the time left is cut";
}

TEST_F(OnATerminal, WhatIsDoneIsKnown) {
  EXPECT_EQ(teller.doing(), "");
  const Activity outer(Progress{.what = "training"}, true, teller);
  {
    const Activity inner(Progress{.what = "saving"}, true, teller);
    EXPECT_EQ(teller.doing(), "saving");
  }
  EXPECT_EQ(teller.doing(), "training");
  const Activity untold(Progress{.what = "another rank's"}, false, teller);
  EXPECT_EQ(teller.doing(), "training");
}

}  // namespace
}  // namespace adjoint
