#include "data/source.h"

#include <gtest/gtest.h>
#include <zlib.h>

#include <cstdlib>

#include "base/error_text.h"
#include "base/file.h"
#include "base/temp_folder.h"
#include "data/byte_reader.h"

namespace adjoint {
namespace {

namespace fs = std::filesystem;

class Sources : public testing::Test {
 protected:
  std::string put(const std::string& name, const std::string& text = "x") {
    const fs::path path = folder_ / name;
    fs::create_directories(path.parent_path());
    write_file_atomically(path, text);
    return path.string();
  }
  std::vector<std::string> names(const std::string& said) {
    std::vector<std::string> found;
    for (const DataFile& file : find_source((folder_ / said).string()).files) {
      found.push_back(file.path.lexically_relative(folder_ / "").string());
    }
    return found;
  }
  static std::string all_bytes(const fs::path& path, size_t piece = 1000) {
    const auto reader = open_bytes(path);
    std::string text(piece, '\0');
    std::string all;
    while (true) {
      const size_t got = reader->read(text.data(), piece);
      all.append(text, 0, got);
      if (got < piece) return all;
    }
  }

  TempFolder folder_;
};

using Names = std::vector<std::string>;

TEST_F(Sources, AFolderIsItsDataInTheOrderOfNames) {
  for (const char* name : {"d/b.txt", "d/a/z.jsonl", "d/a/c.txt.gz", "d/other.png", "d/t.bin"}) {
    put(name);
  }
  EXPECT_EQ(names("d"), Names({"d/a/c.txt.gz", "d/a/z.jsonl", "d/b.txt", "d/t.bin"}));
  put("e/x.png");
  EXPECT_TRUE(has(error_text([&] { names("e"); }), "this folder has no data: wanted files"));
}

TEST_F(Sources, APatternMayCrossFolders) {
  for (const char* name : {"d/1.txt", "d/a/2.txt", "d/a/b/3.txt", "d/a/4.md", "d/.hidden.txt"}) {
    put(name);
  }
  EXPECT_EQ(names("d/*.txt"), Names({"d/1.txt"}));
  EXPECT_EQ(names("d/**/*.txt"), Names({"d/1.txt", "d/a/2.txt", "d/a/b/3.txt"}));
  EXPECT_EQ(names("*/a/?.[tm]*"), Names({"d/a/2.txt", "d/a/4.md"}));
  EXPECT_TRUE(has(error_text([&] { names("d/*.csv"); }), "d/*.csv: no file is called so"));
  EXPECT_TRUE(has(error_text([&] { names("no/*.txt"); }), "there is no folder"));
  EXPECT_TRUE(has(error_text([&] { names("no.txt"); }), "no.txt: there is no such file"));
}

TEST_F(Sources, AWeightIsBehindTheColon) {
  const std::string file = put("a.txt");
  EXPECT_EQ(find_source(file).weight, std::nullopt);
  EXPECT_EQ(find_source(file + ":0.25").weight, 0.25);
  EXPECT_EQ(find_source(file + ":0.25").said, file);
  EXPECT_EQ(find_source(put("b.txt:3")).weight, std::nullopt) << "the file is called so";
  for (const char* wrong : {":0", ":-1", ":inf", ":nan"}) {
    EXPECT_TRUE(has(error_text([&] { find_source(file + wrong); }), "wanted a weight above 0"));
  }
  const std::string both[] = {file + ":1", file};
  EXPECT_TRUE(has(error_text([&] { find_sources(both); }), "either all sources have a weight"));
  const std::string fields[] = {put("f.safetensors"), file};
  EXPECT_TRUE(has(error_text([&] { find_sources(fields); }), "is the only data of a run"));
}

TEST_F(Sources, KindsAreToldByNames) {
  EXPECT_EQ(kind_of("a.jsonl.zst"), DataKind::kJsonLines);
  EXPECT_EQ(kind_of("a.ndjson"), DataKind::kJsonLines);
  EXPECT_EQ(kind_of("a.bin"), DataKind::kTokens);
  EXPECT_EQ(kind_of("a.bin.gz"), DataKind::kText);
  EXPECT_EQ(kind_of("a.safetensors"), DataKind::kFields);
  EXPECT_EQ(kind_of("README"), DataKind::kText);
}

TEST_F(Sources, CompressedBytesAreThePlainOnes) {
  std::string text;
  for (int i = 0; i < 50'000; ++i) text += std::to_string(i * 7919 % 1000) + "\n";
  const std::string plain = put("a.txt", text), zipped = folder_ / "a.txt.gz";
  gzFile file = gzopen(zipped.c_str(), "wb");
  ASSERT_EQ(gzwrite(file, text.data(), static_cast<unsigned>(text.size())), text.size());
  ASSERT_EQ(gzclose(file), Z_OK);
  for (const size_t piece : {size_t{1000}, text.size(), size_t{1} << 20}) {
    EXPECT_EQ(all_bytes(plain, piece), text);
    EXPECT_EQ(all_bytes(zipped, piece), text);
  }
  const std::string bytes = read_file(zipped);
  EXPECT_TRUE(has(error_text([&] { all_bytes(put("cut.gz", bytes.substr(0, bytes.size() / 2))); }),
                  "cut.gz: this gzip file is broken: it ends in the middle"));
  EXPECT_TRUE(has(error_text([&] { all_bytes(put("no.gz", text)); }), "it is not a gzip file"));
  std::string wrong = bytes;
  wrong[wrong.size() / 2] ^= 0x55;
  EXPECT_TRUE(has(error_text([&] { all_bytes(put("wrong.gz", wrong)); }), "broken"));
}

TEST_F(Sources, ZstdToo) {
  std::string text;
  for (int i = 0; i < 50'000; ++i) text += std::to_string(i * 7919 % 1000) + "\n";
  const std::string plain = put("a.txt", text), zipped = plain + ".zst";
  if (std::system(("zstd -q " + plain + " -o " + zipped + " 2>/dev/null").c_str()) != 0) {
    GTEST_SKIP() << "no zstd here to write a file with";
  }
  for (const size_t piece : {size_t{1000}, text.size(), size_t{1} << 20}) {
    EXPECT_EQ(all_bytes(zipped, piece), text);
  }
  const std::string bytes = read_file(zipped);
  EXPECT_TRUE(has(error_text([&] { all_bytes(put("cut.zst", bytes.substr(0, bytes.size() / 2))); }),
                  "cut.zst: this zstd file is broken: it ends in the middle"));
  EXPECT_TRUE(has(error_text([&] { all_bytes(put("no.zst", text)); }), "no.zst: this zstd file"));
}

TEST_F(Sources, AHashTellsFilesApart) {
  const DataFile a{.path = put("a", "1")}, b{.path = put("b", "2")}, c{.path = put("c", "1")};
  EXPECT_EQ(hash_of_file(a.path), hash_of_file(c.path));
  const auto of = [](std::vector<DataFile> files) { return hash_of_files(files); };
  EXPECT_EQ(of({a}), of({c}));
  EXPECT_NE(of({a}), of({b}));
  EXPECT_NE(of({a, b}), of({b, a}));
  EXPECT_NE(of({a, a}), of({a}));
}

}  // namespace
}  // namespace adjoint
