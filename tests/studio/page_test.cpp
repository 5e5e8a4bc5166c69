// The page's files, from a folder and from inside the binary.
#include "studio/page.h"

#include <gtest/gtest.h>

#include "base/file.h"
#include "studio/running_studio.h"

namespace adjoint {
namespace {

TEST(Page, OfAFolderIsServedAsItIs) {
  const TempFolder folder;
  std::filesystem::create_directories(folder / "dist/assets");
  write_file_atomically(folder / "secret.js", "outside");
  write_file_atomically(folder / "dist/index.html", "<p>page</p>");
  write_file_atomically(folder / "dist/assets/a-1.js", "run()");
  std::filesystem::create_symlink(folder / "secret.js", folder / "dist/link.js");
  const RunningStudio studio(StudioOptions{.page = folder / "dist"});
  EXPECT_EQ(studio.client.get("").body, "<p>page</p>");
  const Reply script = studio.client.get("assets/a-1.js");
  EXPECT_EQ(script.body, "run()");
  EXPECT_NE(script.head.find("Content-Type: text/javascript"), std::string::npos) << script.head;
  for (const char* name : {"../secret.js", "%2e%2e/secret.js", "assets/../../secret.js", "link.js",
                           "assets", "assets/", "none.js"}) {
    const Reply reply = studio.client.get(name);
    EXPECT_EQ(reply.status, 404) << name;
    EXPECT_EQ(reply.body, "") << name;
  }
  EXPECT_EQ(studio.client.get("api/hello").json()["page"], true);
  // Without the last slash the page would look for its files in the wrong place.
  Client bare = studio.client;
  bare.prefix.pop_back();
  const Reply moved = bare.get("");
  EXPECT_EQ(moved.status, 301);
  EXPECT_NE(moved.head.find("Location: " + studio.client.prefix), std::string::npos) << moved.head;
}

TEST(Page, OfTheBinaryIsCompressedOrSaysHowToGetIt) {
  const Page page;
  const HttpAnswer index = page.answer("");
  EXPECT_EQ(index.status, 200);
  EXPECT_EQ(page.answer("../index.html").status, 404);
  EXPECT_EQ(page.answer("none.js").status, 404);
  if (!page.is_there()) {
    EXPECT_NE(index.body.find("make studio"), std::string::npos);
    return;
  }
  EXPECT_TRUE(index.body.starts_with("\x1f\x8b"));  // gzip
  for (const PageFile& file : page_files()) {
    const HttpAnswer answer = page.answer(std::string(file.name));
    const bool hashed = file.name.starts_with("assets/");
    const bool kept = answer.headers.at(1).second.find("immutable") != std::string::npos;
    EXPECT_EQ(kept, hashed) << file.name;
  }
}

}  // namespace
}  // namespace adjoint
