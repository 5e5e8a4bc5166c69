#include "base/file.h"

#include <gtest/gtest.h>

#include "base/error_text.h"
#include "base/temp_folder.h"

namespace adjoint {
namespace {

namespace fs = std::filesystem;

TEST(ReadFile, GivesEveryByte) {
  const TempFolder folder;
  const std::string text("a\0b\r\n\xff", 6);
  write_file_atomically(folder / "x", text);
  EXPECT_EQ(read_file(folder / "x"), text);
  write_file_atomically(folder / "empty", "");
  EXPECT_EQ(read_file(folder / "empty"), "");
}

TEST(ReadFile, NamesWhatItCannotRead) {
  const TempFolder folder;
  const std::string missing = error_text([&] { read_file(folder / "missing.txt"); });
  EXPECT_TRUE(has(missing, "missing.txt: there is no such file")) << missing;
  const std::string directory = error_text([&] { read_file(folder / ""); });
  EXPECT_TRUE(has(directory, "not a plain file")) << directory;
}

TEST(AtomicFile, WithoutCommitTheOldContentStays) {
  const TempFolder folder;
  write_file_atomically(folder / "x", "old");
  {
    AtomicFile file(folder / "x");
    file.write("new");
  }
  EXPECT_EQ(read_file(folder / "x"), "old");
  EXPECT_FALSE(fs::exists(AtomicFile::new_name(folder / "x")));
}

TEST(AtomicFile, CommitReplacesTheContent) {
  const TempFolder folder;
  write_file_atomically(folder / "x", "old and longer");
  {
    AtomicFile file(folder / "x");
    file.write("new");
    EXPECT_EQ(read_file(folder / "x"), "old and longer");
    file.commit();
  }
  EXPECT_EQ(read_file(folder / "x"), "new");
  EXPECT_FALSE(fs::exists(AtomicFile::new_name(folder / "x")));
}

TEST(AtomicFile, FinishedButNotCommittedKeepsBoth) {
  const TempFolder folder;
  write_file_atomically(folder / "x", "old");
  {
    AtomicFile file(folder / "x");
    file.write("new");
    file.finish();
  }
  EXPECT_EQ(read_file(folder / "x"), "old");
  EXPECT_EQ(read_file(AtomicFile::new_name(folder / "x")), "new");
}

TEST(AtomicFile, NamesAFileItCannotWrite) {
  const TempFolder folder;
  const auto path = folder / "no_such_folder" / "x";
  const std::string error = error_text([&] { write_file_atomically(path, "text"); });
  EXPECT_TRUE(has(error, path.string() + ": cannot be written")) << error;
}

}  // namespace
}  // namespace adjoint
