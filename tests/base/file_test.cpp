#include "base/file.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <atomic>
#include <csignal>
#include <fstream>
#include <thread>

#include "base/error.h"
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

// A file that is replaced again and again by one of another length is always one or the other.
TEST(ReadFile, ReadsOneFileWhileItIsReplaced) {
  const TempFolder folder;
  const std::string texts[] = {std::string(10, 's'), std::string(5000, 'l')};
  write_file_atomically(folder / "x", texts[0]);
  std::atomic<bool> done = false;
  std::thread writer([&] {
    for (size_t i = 0; !done; ++i) {
      // Without waiting for the disk, unlike AtomicFile.
      std::ofstream(folder / "y") << texts[i % 2];
      fs::rename(folder / "y", folder / "x");
    }
  });
  std::string odd;
  for (int i = 0; i < 20000 && odd.empty(); ++i) {
    try {
      const std::string text = read_file(folder / "x");
      if (text != texts[0] && text != texts[1]) odd = std::to_string(text.size()) + " bytes";
    } catch (const Error& e) {
      odd = e.what();
    }
  }
  done = true;
  writer.join();
  EXPECT_EQ(odd, "");
}

TEST(ReadFile, NamesWhatItCannotRead) {
  const TempFolder folder;
  const std::string missing = error_text([&] { read_file(folder / "missing.txt"); });
  EXPECT_TRUE(has(missing, "missing.txt: there is no such file")) << missing;
  const std::string directory = error_text([&] { read_file(folder / ""); });
  EXPECT_TRUE(has(directory, "not a plain file")) << directory;
}

size_t entries(const fs::path& folder) {
  return static_cast<size_t>(std::distance(fs::directory_iterator(folder), {}));
}

TEST(AtomicFile, WithoutCommitTheOldContentStays) {
  const TempFolder folder;
  write_file_atomically(folder / "x", "old");
  for (const bool finished : {false, true}) {
    AtomicFile file(folder / "x");
    file.write("new");
    if (finished) file.finish();
    EXPECT_TRUE(fs::exists(file.temporary()));
  }
  EXPECT_EQ(read_file(folder / "x"), "old");
  EXPECT_EQ(entries(folder / ""), 1u) << "nothing is left beside it";
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
  EXPECT_EQ(entries(folder / ""), 1u);
}

TEST(AtomicFile, KeptStaysUnderItsTemporaryName) {
  const TempFolder folder;
  write_file_atomically(folder / "x", "old");
  fs::path temporary;
  {
    AtomicFile file(folder / "x");
    file.write("new");
    file.finish();
    file.keep();
    temporary = file.temporary();
  }
  EXPECT_EQ(read_file(folder / "x"), "old");
  EXPECT_EQ(read_file(temporary), "new");
}

TEST(AtomicFile, TwoWritersDoNotMeet) {
  const TempFolder folder;
  AtomicFile one(folder / "x"), other(folder / "x");
  one.write("one");
  other.write("the other");
  EXPECT_NE(one.temporary(), other.temporary());
  one.commit();
  EXPECT_EQ(read_file(folder / "x"), "one");
  other.commit();
  EXPECT_EQ(read_file(folder / "x"), "the other");
}

TEST(AtomicFile, KnowsTemporariesByTheirNames) {
  const TempFolder folder;
  const AtomicFile file(folder / "x.json");
  const auto is = [](const char* file) { return AtomicFile::is_temporary_of("x.json", file); };
  EXPECT_TRUE(AtomicFile::is_temporary_of(folder / "x.json", file.temporary()));
  EXPECT_FALSE(AtomicFile::is_temporary_of(folder / "x.js", file.temporary()));
  EXPECT_TRUE(is("x.json.new")) << "as they were called once";
  EXPECT_TRUE(is("x.json.12-0123456789abcdef.new"));
  for (const char* other : {"x.json", "x.json.12-0123456789abcdef", "y.json.new", "x.jsonnew",
                            "x.json.-0123456789abcdef.new", "x.json.12-0123456789abcde.new",
                            "x.json.12-0123456789abcdeg.new", "x.json.mine.new", ".new", ""}) {
    EXPECT_FALSE(is(other)) << other;
  }
}

// A user can mend a wrong path; a full disk is the machine's.
TEST(AtomicFile, AFullDiskIsTheMachines) {
  const TempFolder folder;
  write_file_atomically(folder / "x", "old");
  rlimit before = {};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  rlimit small = before;
  small.rlim_cur = 1 << 14;
  const auto old = std::signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  std::string why = "no error";
  try {
    write_file_atomically(folder / "x", std::string(1 << 16, 'x'));
  } catch (const MachineError& e) {
    why = e.what();
  }
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, old);
  EXPECT_TRUE(has(why, (folder / "x").string() + ": cannot be written: File too large")) << why;
  EXPECT_EQ(read_file(folder / "x"), "old");
  EXPECT_EQ(entries(folder / ""), 1u);
}

TEST(AtomicFile, NamesAFileItCannotWrite) {
  const TempFolder folder;
  const auto path = folder / "no_such_folder" / "x";
  const std::string error = error_text([&] { write_file_atomically(path, "text"); });
  EXPECT_TRUE(has(error, path.string() + ": cannot be written")) << error;
}

// What `git clone` leaves of a large file where Git LFS is not installed.
TEST(ReadFile, APointerOfGitLfsIsNotTheFile) {
  const TempFolder folder;
  write_file_atomically(
      folder / "tokenizer.json",
      "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 9085657\n");
  EXPECT_EQ(error_text([&] { read_file(folder / "tokenizer.json"); }),
            (folder / "tokenizer.json").string() +
                ": this is a pointer that Git LFS left in place of the file; `git lfs pull` in its "
                "folder fetches the file");
}

}  // namespace
}  // namespace adjoint
