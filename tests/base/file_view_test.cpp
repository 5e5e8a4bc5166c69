#include "base/file_view.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/error_text.h"
#include "base/file.h"
#include "base/temp_folder.h"

namespace adjoint {
namespace {

namespace fs = std::filesystem;

// Sets the view of this process for one test.
class FileViewTest : public testing::Test {
 protected:
  FileViewTest() {
    fs::create_directories(folder_ / "in/deep");
    write_file_atomically(folder_ / "in/a.txt", "inside");
    write_file_atomically(folder_ / "b.txt", "outside");
    fs::create_directories(folder_ / "inner");  // begins with the folder's name
    write_file_atomically(folder_ / "inner/c.txt", "outside");
    fs::create_symlink(folder_ / "b.txt", folder_ / "in/link.txt");
    fs::create_symlink(folder_ / "", folder_ / "in/up");
    fs::create_symlink("a.txt", folder_ / "in/own.txt");
    fs::create_symlink("loop", folder_ / "in/loop");
  }
  ~FileViewTest() override { set_file_view({}); }
  TempFolder folder_;
};

TEST_F(FileViewTest, IsEverythingAtFirst) {
  EXPECT_EQ(read_file(folder_ / "b.txt"), "outside");
  EXPECT_TRUE(is_visible(folder_ / "b.txt"));
  EXPECT_EQ(draft_of(folder_ / "b.txt"), nullptr);
}

TEST_F(FileViewTest, EndsAtTheFolder) {
  set_file_view({.inside = folder_ / "in"});
  EXPECT_EQ(read_file(folder_ / "in/a.txt"), "inside");
  EXPECT_EQ(read_file(folder_ / "in/own.txt"), "inside");
  EXPECT_EQ(read_file(folder_ / "in/deep/../a.txt"), "inside");
  for (const char* name : {"b.txt", "inner/c.txt", "in/link.txt", "in/up/b.txt", "in/../b.txt",
                           "in/deep/../../b.txt", "none.txt", "in/up/none.txt", "in/loop"}) {
    const fs::path path = folder_ / name;
    EXPECT_THROW(read_file(path), Error) << name;
    EXPECT_THROW(write_file_atomically(path, "x"), Error) << name;
    EXPECT_THROW(make_folders(path / "x"), Error) << name;
  }
  EXPECT_FALSE(is_visible(folder_ / "b.txt"));
  EXPECT_FALSE(is_visible(folder_ / "in/link.txt"));
  EXPECT_TRUE(is_visible(folder_ / "in/own.txt"));
  EXPECT_FALSE(is_visible(folder_ / "in/none.txt"));
  write_file_atomically(folder_ / "in/new.txt", "new");
  make_folders(folder_ / "in/x/y");
  EXPECT_TRUE(fs::is_directory(folder_ / "in/x/y"));
  set_file_view({});
  EXPECT_EQ(read_file(folder_ / "b.txt"), "outside");
  EXPECT_FALSE(fs::exists(folder_ / "none.txt"));
}

// To open such a link for writing makes the file that it names.
TEST_F(FileViewTest, FollowsLinksToWhatIsNotThereYet) {
  fs::create_symlink("../fresh.txt", folder_ / "in/dangling");
  fs::create_symlink("dangling", folder_ / "in/twice");
  fs::create_symlink("deep/fresh.txt", folder_ / "in/stays");
  fs::create_symlink("../fresh", folder_ / "in/folder");
  set_file_view({.inside = folder_ / "in"});
  for (const char* name : {"in/dangling", "in/twice", "in/folder/x.txt", "in/deep/../dangling"}) {
    EXPECT_THROW(checked_output(folder_ / name), Error) << name;
    EXPECT_THROW(checked_path(folder_ / name), Error) << name;
  }
  EXPECT_NO_THROW(checked_output(folder_ / "in/stays"));
  EXPECT_EQ(followed(folder_ / "in/stays"), fs::canonical(folder_ / "in/deep") / "fresh.txt");
  EXPECT_EQ(followed(folder_ / "in/twice"), fs::canonical(folder_ / "") / "fresh.txt");
}

TEST_F(FileViewTest, MayBeReadOnly) {
  set_file_view({.inside = folder_ / "in", .read_only = true});
  EXPECT_EQ(read_file(folder_ / "in/a.txt"), "inside");
  EXPECT_THROW(write_file_atomically(folder_ / "in/a.txt", "x"), Error);
  EXPECT_THROW(make_folders(folder_ / "in/x"), Error);
  EXPECT_EQ(read_file(folder_ / "in/a.txt"), "inside");
}

TEST_F(FileViewTest, GivesDraftsInsteadOfFiles) {
  set_file_view({.inside = folder_ / "in",
                 .drafts = {{folder_ / "in/a.txt", "draft"}, {folder_ / "in/new.txt", "new"}}});
  EXPECT_EQ(read_file(folder_ / "in/a.txt"), "draft");
  EXPECT_EQ(read_file(folder_ / "in/deep/../a.txt"), "draft");
  EXPECT_EQ(read_file(folder_ / "in/new.txt"), "new");
  EXPECT_TRUE(is_visible(folder_ / "in/new.txt"));
  EXPECT_THROW(read_file(folder_ / "in/other.txt"), Error);
  EXPECT_THROW(set_file_view({.inside = folder_ / "in", .drafts = {{folder_ / "b.txt", "x"}}}),
               Error);
  EXPECT_THROW(set_file_view({.inside = folder_ / "none"}), Error);
}

}  // namespace
}  // namespace adjoint
