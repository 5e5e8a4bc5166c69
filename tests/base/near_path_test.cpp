#include "base/near_path.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>

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

// What a process without root's rights is told, by a child that gives them up where this one has
// them.
TEST(NearPath, AFolderWithoutRightsIsNamed) {
  const TempFolder folder;
  std::filesystem::create_directories(folder / "closed/in");
  write_file_atomically(folder / "closed/in/book.txt", "");
  write_file_atomically(folder / "said", "");
  std::filesystem::permissions(folder / "closed", std::filesystem::perms::none);
  for (const char* open : {"", "said"}) {
    std::filesystem::permissions(folder / open, std::filesystem::perms::all);
  }
  const pid_t child = ::fork();
  if (child == 0) {
    if (::geteuid() == 0 && (::setgid(65534) != 0 || ::setuid(65534) != 0)) ::_exit(1);
    const auto told = [&](const char* path) {
      return error_text([&] { read_file(folder / path); });
    };
    std::ofstream(folder / "said") << told("closed/in/book.txt") << "\n"
                                   << error_text([&] { check_may_enter(folder / "closed"); });
    ::_exit(0);
  }
  int status = 1;
  ::waitpid(child, &status, 0);
  std::filesystem::permissions(folder / "closed", std::filesystem::perms::all);
  ASSERT_EQ(status, 0);
  const std::string closed = (folder / "closed").string();
  EXPECT_EQ(read_file(folder / "said"),
            closed + "/in/book.txt: cannot be read: this process has no right to enter " + closed +
                "\n" + closed + ": cannot be read: this process has no right to read this folder");
}

}  // namespace
}  // namespace adjoint
