// What becomes of a recording whose calls throw, with a stream that only counts.
#include <gtest/gtest.h>

#include <stdexcept>

#include "device/gpu.h"

namespace adjoint {
namespace {

struct CountingStream {
  int open = 0, dropped = 0, ended = 0;
  void begin_recording() { ++open; }
  int end_recording() {
    --open;
    return ++ended;
  }
  void drop_recording() noexcept {
    --open;
    ++dropped;
  }
};

TEST(Recording, IsWhatTheCallsEnqueued) {
  CountingStream stream;
  int open_inside = 0;
  EXPECT_EQ(recorded(stream, [&] { open_inside = stream.open; }), 1);
  EXPECT_EQ(open_inside, 1);
  EXPECT_EQ(stream.open, 0);
  EXPECT_EQ(stream.dropped, 0);
}

TEST(Recording, OfACallThatThrowsIsDropped) {
  CountingStream stream;
  EXPECT_THROW(recorded(stream, [] { throw std::runtime_error("no"); }), std::runtime_error);
  EXPECT_EQ(stream.open, 0);
  EXPECT_EQ(stream.dropped, 1);
  EXPECT_EQ(stream.ended, 0);
}

}  // namespace
}  // namespace adjoint
