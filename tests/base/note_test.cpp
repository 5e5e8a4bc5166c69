#include "base/note.h"

#include <gtest/gtest.h>

#include <vector>

namespace adjoint {
namespace {

TEST(Note, ATextIsSaidOnce) {
  std::vector<std::string> said;
  set_note_writer([&](const std::string& text) { said.push_back(text); });
  for (const char* text : {"one", "two", "one", "one"}) note_once(text);
  EXPECT_EQ(said, (std::vector<std::string>{"one", "two"}));
  set_note_writer(nullptr);
  testing::internal::CaptureStderr();
  note_once("one");
  note_once("one");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "adjoint: note: one\n");
}

}  // namespace
}  // namespace adjoint
