#include "base/background.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>

#include "base/error.h"

namespace adjoint {
namespace {

TEST(Background, OneJobAtATimeInOrder) {
  std::promise<void> go;
  std::vector<int> done;  // no lock: two jobs at once would be a race for tsan to see
  Background background;
  background.start([&] {
    go.get_future().wait();
    done.push_back(1);
  });
  background.check();  // it runs: nothing to tell
  EXPECT_TRUE(done.empty());
  go.set_value();
  background.start([&] { done.push_back(2); });
  background.wait();
  EXPECT_EQ(done, (std::vector<int>{1, 2}));
  background.wait();  // nothing runs
}

TEST(Background, WhatAJobThrowsComesOutOnceAtTheNextCall) {
  Background background;
  background.start([] { fail("no disk"); });
  EXPECT_THROW(background.wait(), Error);
  background.wait();

  background.start([] { fail("no disk"); });
  bool ran = false;
  EXPECT_THROW(background.start([&] { ran = true; }), Error);
  EXPECT_FALSE(ran);

  background.start([] { fail("no disk"); });
  bool told = false;
  while (!told) {
    try {
      background.check();
    } catch (const Error&) {
      told = true;
    }
  }
}

TEST(Background, EndsWhatItBegan) {
  std::atomic<bool> done = false;
  std::promise<void> go;
  {
    Background background;
    background.start([&] {
      go.get_future().wait();
      done = true;
    });
    go.set_value();
  }
  EXPECT_TRUE(done);
}

}  // namespace
}  // namespace adjoint
