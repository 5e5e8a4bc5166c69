#include "base/near_path.h"

#include <gtest/gtest.h>

#include "base/error_text.h"
#include "base/file.h"
#include "base/temp_folder.h"

namespace adjoint {
namespace {

TEST(NearPath, IsTheNearestThatIsThere) {
  const TempFolder folder;
  const auto at = [&](const std::string& path) { return (folder / path).string(); };
  std::filesystem::create_directories(folder / "texts");
  write_file_atomically(folder / "texts/book.txt", "");
  write_file_atomically(folder / "texts/news.jsonl", "");
  const auto meant = [&](const std::string& path) { return "; did you mean '" + at(path) + "'?"; };
  EXPECT_EQ(did_you_mean_path(at("texts/bok.txt")), meant("texts/book.txt"));
  EXPECT_EQ(did_you_mean_path(at("texts/news")), meant("texts/news.jsonl"));
  EXPECT_EQ(did_you_mean_path(at("text/book.txt")), meant("texts/book.txt"));
  EXPECT_EQ(did_you_mean_path(at("txts/bok.txt")), meant("texts/book.txt"));
  EXPECT_EQ(did_you_mean_path(at("texts/poem.md")), "") << "nothing is near";
  write_file_atomically(folder / "vera.functor", "");
  EXPECT_EQ(did_you_mean_path(at("nothere.functor")), "") << "only the ending is the same";
  EXPECT_EQ(did_you_mean_path(at("vra.functor")), meant("vera.functor"));
  EXPECT_EQ(did_you_mean_path(at("texts/book.txt")), "") << "it is there";
  EXPECT_EQ(error_text([&] { read_file(folder / "texts/bokk.txt"); }),
            at("texts/bokk.txt") + ": there is no such file" + meant("texts/book.txt"));
}

}  // namespace
}  // namespace adjoint
