// Files as the page sees them.
#include "studio/folder.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "studio/running_studio.h"

namespace adjoint {
namespace {

nlohmann::json entry(const nlohmann::json& files, const std::string& path) {
  for (const auto& file : files["files"]) {
    if (file["path"] == path) return file;
  }
  return nullptr;
}

TEST(StudioFiles, AreListedWithTheirKinds) {
  const RunningStudio studio;
  for (const char* name :
       {"m.scheme", "f.functor", "o.optimizer", "s.schedule", "t.txt", "d.jsonl", "b.bin", "c.toml",
        "x.png", "deep/er/m.scheme", ".hidden/t.txt", "node_modules/t.txt", "runs/a/run.json",
        "runs/a/model.scheme", "hf/config.json"}) {
    studio.write(name, "1234");
  }
  write_file_atomically(studio.folder / "outside.txt", "x");
  std::filesystem::create_symlink(studio.folder / "outside.txt", studio / "leaves.txt");
  std::filesystem::create_symlink("t.txt", studio / "stays.txt");
  std::filesystem::create_symlink(studio.folder / "", studio / "up");
  const nlohmann::json files = studio.client.get("api/files").json();
  const std::pair<const char*, const char*> kinds[] = {{"m.scheme", "model"},
                                                       {"f.functor", "functor"},
                                                       {"o.optimizer", "optimizer"},
                                                       {"s.schedule", "schedule"},
                                                       {"t.txt", "text"},
                                                       {"d.jsonl", "jsonl"},
                                                       {"b.bin", "tokens"},
                                                       {"c.toml", "config"},
                                                       {"x.png", "other"},
                                                       {"deep/er/m.scheme", "model"},
                                                       {"deep", "folder"},
                                                       {"runs", "folder"},
                                                       {"runs/a", "run"},
                                                       {"hf", "model"},
                                                       {"stays.txt", "text"}};
  for (const auto& [path, kind] : kinds) EXPECT_EQ(entry(files, path)["kind"], kind) << path;
  for (const char* path :
       {"leaves.txt", "up", ".hidden", ".hidden/t.txt", "node_modules", "runs/a/run.json"}) {
    EXPECT_TRUE(entry(files, path).is_null()) << path;
  }
  EXPECT_EQ(entry(files, "m.scheme")["bytes"], 4);
  EXPECT_GT(entry(files, "m.scheme")["modified"], 1.6e9);
  EXPECT_EQ(entry(files, "hf")["folder"], true);
}

TEST(StudioFiles, AreWrittenOverWhatWasSeenOnly) {
  const RunningStudio studio;
  const Client& client = studio.client;
  const auto put = [&](const std::string& text, const nlohmann::json& etag) {
    return client.put("api/file", {{"path", "new/m.scheme"}, {"text", text}, {"etag", etag}});
  };
  const Reply first = put("one", nullptr);
  ASSERT_EQ(first.status, 200) << first.body;
  EXPECT_EQ(read_file(studio / "new/m.scheme"), "one");
  EXPECT_EQ(client.get("api/file?path=new/m.scheme").json()["etag"], first.json()["etag"]);
  EXPECT_EQ(put("two", nullptr).status, 409);  // there is one by now
  const Reply second = put("two", first.json()["etag"]);
  EXPECT_EQ(second.status, 200);
  EXPECT_EQ(put("three", first.json()["etag"]).status, 409);  // another tab wrote "two"
  EXPECT_EQ(read_file(studio / "new/m.scheme"), "two");
  studio.write("new/m.scheme", "by an editor");
  EXPECT_EQ(put("three", second.json()["etag"]).status, 409);
  EXPECT_EQ(
      client.post("api/delete", {{"path", "new/m.scheme"}, {"etag", second.json()["etag"]}}).status,
      409);
  EXPECT_EQ(read_file(studio / "new/m.scheme"), "by an editor");
  EXPECT_EQ(client.post("api/rename", {{"from", "new/m.scheme"}, {"to", "old/n.scheme"}}).status,
            200);
  EXPECT_EQ(read_file(studio / "old/n.scheme"), "by an editor");
  EXPECT_EQ(client.get("api/file?path=new/m.scheme").status, 404);
  studio.write("there.scheme", "stays");
  EXPECT_EQ(client.post("api/rename", {{"from", "old/n.scheme"}, {"to", "there.scheme"}}).status,
            409);
  EXPECT_EQ(read_file(studio / "there.scheme"), "stays");
  const std::string etag = client.get("api/file?path=old/n.scheme").json()["etag"];
  EXPECT_EQ(client.post("api/delete", {{"path", "old/n.scheme"}, {"etag", etag}}).status, 200);
  EXPECT_FALSE(std::filesystem::exists(studio / "old/n.scheme"));
}

TEST(StudioFiles, OfOtherKindsAreNotWritten) {
  const RunningStudio studio;
  std::filesystem::create_directories(studio / ".git/hooks");
  studio.write("model.bin", "12");
  std::filesystem::create_symlink("model.bin", studio / "harmless.txt");
  for (const char* path :
       {"run.sh", "model.bin", "x", "Makefile", ".git/hooks/a.txt", ".a.txt", "harmless.txt"}) {
    const Reply put =
        studio.client.put("api/file", {{"path", path}, {"text", "x"}, {"etag", nullptr}});
    EXPECT_EQ(put.status, 400) << path << ": " << put.body;
    EXPECT_FALSE(put.sentence().empty());
  }
  EXPECT_EQ(read_file(studio / "model.bin"), "12");
  studio.write("bytes.txt", "\xff\xfe");
  EXPECT_EQ(studio.client.get("api/file?path=bytes.txt").status, 415);
  EXPECT_EQ(studio.client.get("api/file?path=none.txt").status, 404);
}

TEST(StudioFiles, LinksAreRenamedAndRemovedThemselves) {
  const RunningStudio studio;
  const Client& client = studio.client;
  studio.write("real.txt", "stays");
  const auto is_link = [&](const char* name) { return std::filesystem::is_symlink(studio / name); };
  std::filesystem::create_symlink("real.txt", studio / "link.txt");
  EXPECT_EQ(client.post("api/rename", {{"from", "link.txt"}, {"to", "other.txt"}}).status, 200);
  EXPECT_TRUE(is_link("other.txt"));
  EXPECT_FALSE(is_link("link.txt"));
  EXPECT_EQ(read_file(studio / "real.txt"), "stays");
  const std::string etag = client.get("api/file?path=other.txt").json()["etag"];
  EXPECT_EQ(client.post("api/delete", {{"path", "other.txt"}, {"etag", etag}}).status, 200);
  EXPECT_FALSE(is_link("other.txt"));
  EXPECT_EQ(read_file(studio / "real.txt"), "stays");
  // A name is taken by a link too, wherever it leads.
  std::filesystem::create_symlink("nothing.txt", studio / "dangling.txt");
  EXPECT_EQ(client.post("api/rename", {{"from", "real.txt"}, {"to", "dangling.txt"}}).status, 409);
  EXPECT_EQ(read_file(studio / "real.txt"), "stays");
}

TEST(StudioFiles, KeepTheirPermissions) {
  const RunningStudio studio;
  studio.write("mine.txt", "1");
  using std::filesystem::perms;
  for (const perms wanted : {perms::owner_read | perms::owner_write, perms(0640)}) {
    std::filesystem::permissions(studio / "mine.txt", wanted);
    const std::string etag = studio.client.get("api/file?path=mine.txt").json()["etag"];
    const Reply put =
        studio.client.put("api/file", {{"path", "mine.txt"}, {"text", "2"}, {"etag", etag}});
    EXPECT_EQ(put.status, 200) << put.body;
    EXPECT_EQ(std::filesystem::status(studio / "mine.txt").permissions(), wanted);
  }
}

TEST(StudioFiles, AreMovedOnlyToNewNames) {
  const TempFolder folder;
  for (const auto move : {move_to_new_name, link_to_new_name}) {
    write_file_atomically(folder / "a.txt", "a");
    write_file_atomically(folder / "b.txt", "b");
    EXPECT_FALSE(move(folder / "a.txt", folder / "b.txt"));
    EXPECT_EQ(read_file(folder / "a.txt"), "a");
    EXPECT_EQ(read_file(folder / "b.txt"), "b");
    std::filesystem::remove(folder / "b.txt");
    EXPECT_TRUE(move(folder / "a.txt", folder / "b.txt"));
    EXPECT_FALSE(std::filesystem::exists(folder / "a.txt"));
    EXPECT_EQ(read_file(folder / "b.txt"), "a");
  }
}

TEST(StudioFiles, ThatWritersLeftAreNotShownAndGoAtTheNextStart) {
  const RunningStudio studio;
  const std::string left = "a.txt.4711-0123456789abcdef.new";
  const std::string deep = "sub/b.scheme.1-00000000000000ff.new";
  const std::vector<std::string> others = {"a.txt.new", "x.new", "w.bin.4711-0123456789abcdef.new",
                                           "a.txt.4711-0123456789abcdeg.new"};
  for (const std::string& name : {left, deep}) studio.write(name, "half a te");
  for (const std::string& name : others) studio.write(name, "mine");
  const nlohmann::json files = studio.client.get("api/files").json();
  EXPECT_TRUE(entry(files, left).is_null());
  EXPECT_TRUE(entry(files, deep).is_null());
  EXPECT_FALSE(entry(files, "a.txt.new").is_null());
  const Folder folder(studio.root);
  folder.sweep();  // somebody may still write them
  EXPECT_TRUE(std::filesystem::exists(studio / left));
  const auto old = std::filesystem::file_time_type::clock::now() - std::chrono::minutes(5);
  for (const std::string& name : {left, deep}) {
    std::filesystem::last_write_time(studio / name, old);
  }
  for (const std::string& name : others) std::filesystem::last_write_time(studio / name, old);
  folder.sweep();
  EXPECT_FALSE(std::filesystem::exists(studio / left));
  EXPECT_FALSE(std::filesystem::exists(studio / deep));
  for (const std::string& name : others)
    EXPECT_TRUE(std::filesystem::exists(studio / name)) << name;
}

TEST(StudioFiles, AreNotRemovedUnseen) {
  const RunningStudio studio;
  studio.write("a.txt", "x");
  const Reply reply = studio.client.post("api/delete", {{"path", "a.txt"}});
  EXPECT_EQ(reply.status, 400);
  EXPECT_EQ(reply.sentence(), "\"etag\": wanted a text");
  EXPECT_TRUE(std::filesystem::exists(studio / "a.txt"));
}

TEST(StudioFiles, ChangesAreTold) {
  const RunningStudio studio;
  studio.write("a.txt", "1");
  EventReader events(studio.client, "api/events"), second(studio.client, "api/events");
  EXPECT_EQ(events.next()["kind"], "beat");
  EXPECT_EQ(second.next()["kind"], "beat");
  studio.write("b.txt", "2");
  std::filesystem::remove(studio / "a.txt");
  for (EventReader* reader : {&events, &second}) {
    nlohmann::json changed = nlohmann::json::array(), removed = changed;
    while (changed.empty() || removed.empty()) {
      const nlohmann::json event = reader->next();
      ASSERT_FALSE(event.is_null());
      if (event["kind"] != "files") continue;
      for (const auto& path : event["changed"]) changed.push_back(path);
      for (const auto& path : event["removed"]) removed.push_back(path);
    }
    EXPECT_EQ(changed, nlohmann::json({"b.txt"}));
    EXPECT_EQ(removed, nlohmann::json({"a.txt"}));
  }
}

}  // namespace
}  // namespace adjoint
