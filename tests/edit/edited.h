// A text after an edit, and the checks that every edit must pass: only what the answer calls
// changed has changed.
#pragma once
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/error_text.h"
#include "edit/edit.h"

namespace adjoint {

inline nlohmann::json ask(const std::string& text, const nlohmann::json& edit,
                          const std::string& file = "my.scheme") {
  return answer_edit({{"file", file}, {"text", text}, {"edit", edit}, {"read", true}});
}

// Bytes before and behind the span of the answer are those of the text, and the listed changes give
// the same.
inline void expect_only_changed_there(const std::string& text, const nlohmann::json& answer) {
  const std::string after = answer["text"];
  const size_t from = answer["span"]["from"], to = answer["span"]["to"];
  ASSERT_LE(from, to);
  ASSERT_LE(to, after.size());
  const size_t behind = after.size() - to;
  ASSERT_LE(from + behind, text.size());
  EXPECT_EQ(after.substr(0, from), text.substr(0, from));
  EXPECT_EQ(after.substr(to), text.substr(text.size() - behind));
  std::string rebuilt;
  size_t at = 0;
  for (const nlohmann::json& change : answer["changes"]) {
    const size_t begin = change["from"], end = change["to"];
    rebuilt += text.substr(at, begin - at) + change["insert"].get<std::string>();
    at = end;
  }
  EXPECT_EQ(rebuilt + text.substr(at), after);
}

inline std::string edited(const std::string& text, const nlohmann::json& edit,
                          const std::string& file = "my.scheme") {
  try {
    const nlohmann::json answer = ask(text, edit, file);
    expect_only_changed_there(text, answer);
    return answer["text"];
  } catch (const Error& error) {
    return "refused: " + std::string(error.what());
  }
}

inline std::string refusal(const std::string& text, const nlohmann::json& edit,
                           const std::string& file = "my.scheme") {
  return error_text([&] { ask(text, edit, file); });
}

// The text with one piece of it replaced, which must be in it once.
inline std::string with(std::string text, const std::string& piece, const std::string& other) {
  const size_t at = text.find(piece);
  EXPECT_NE(at, text.npos) << piece;
  EXPECT_EQ(text.find(piece, at + 1), text.npos) << piece << " is there twice";
  return text.replace(at, piece.size(), other);
}

// {"from", "to"} of a piece that is in the text once.
inline nlohmann::json at(const std::string& text, const std::string& piece) {
  const size_t from = text.find(piece);
  EXPECT_NE(from, text.npos) << piece;
  EXPECT_EQ(text.find(piece, from + 1), text.npos) << piece << " is there twice";
  return {{"from", from}, {"to", from + piece.size()}};
}

}  // namespace adjoint
