#include "data/token_stream.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <fstream>
#include <numeric>
#include <random>

#include "base/error_text.h"
#include "base/file.h"
#include "base/temp_folder.h"

namespace adjoint {
namespace {

namespace fs = std::filesystem;
using Ids = std::vector<uint32_t>;

Ids all_of(const TokenStream& stream) {
  Ids ids(stream.size());
  stream.copy(0, stream.size(), ids.data());
  return ids;
}

std::vector<int64_t> ends_of(const TokenStream& stream) {
  std::vector<int64_t> ends;
  for (int64_t at = 0; at < stream.size(); at = ends.back()) ends.push_back(stream.end_behind(at));
  return ends;
}

TEST(TokenShard, AFileHoldsWhatWasWritten) {
  const TempFolder folder;
  const fs::path path = folder / "a.tokens";
  const uint32_t marked = kNotTrained;
  for (const Ids& ids :
       {Ids{1, 2, 65535, 4, 5}, Ids{1, 65536, 3, 4, 5}, Ids{1, 2 | marked, 3, 4, 5},
        Ids{32767, 2 | marked, 3, 4, 5}, Ids{32768, 2 | marked, 3, 4, 5}}) {
    write_shard(path, ids, std::vector<int64_t>{2, 5},
                {.made_of = 7, .chunks = 3, .bad_lines = 1, .last = false});
    const TokenShard shard(path);
    TokenStream stream;
    stream.add(std::make_shared<TokenShard>(path));
    EXPECT_EQ(all_of(stream), ids);
    EXPECT_EQ(ends_of(stream), std::vector<int64_t>({2, 5}));
    EXPECT_EQ(shard.made_of(), 7);
    EXPECT_EQ(shard.chunks(), 3);
    EXPECT_EQ(shard.bad_lines(), 1);
    EXPECT_FALSE(shard.last());
    EXPECT_EQ(shard.marked(), ids[1] > marked);
    const bool narrow = ids[1] != 65536 && ids[0] != 32768;
    EXPECT_EQ(fs::file_size(path), 64 + (narrow ? 16 : 24) + 16);
  }
}

// Without waiting for the disk, unlike write_file_atomically.
void put(const fs::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

// A byte of a shard that differs is a refusal, wherever it is, and so is a file that was cut.
TEST(TokenShard, AnyChangeIsRefused) {
  const TempFolder folder;
  const fs::path path = folder / "a.tokens";
  Ids ids(100);
  std::iota(ids.begin(), ids.end(), 0);
  write_shard(path, ids, std::vector<int64_t>{20, 100}, {.made_of = 7});
  const std::string good = read_file(path);
  std::mt19937 random(3);
  for (size_t at = 0; at < good.size(); ++at) {
    std::string bytes = good;
    bytes[at] = static_cast<char>(bytes[at] ^ (1 + random() % 255));
    put(path, bytes);
    EXPECT_NE(error_text([&] { const TokenShard shard(path); }), "") << at;
    put(path, good.substr(0, at));
    EXPECT_NE(error_text([&] { const TokenShard shard(path); }), "") << at;
  }
  write_shard(path, ids, std::vector<int64_t>{60, 20}, {.made_of = 7});
  EXPECT_TRUE(has(error_text([&] { const TokenShard shard(path); }),
                  "a document ends at token 20, wanted 61 to 100"))
      << "the hash is right, and an end is not";
  // Sizes that lie, with a hash that does not know: what they ask for is never taken.
  for (int round = 0; round < 300; ++round) {
    std::string bytes = good;
    for (int i = 0; i < 8; ++i) bytes[8 + random() % 40] = static_cast<char>(random());
    put(path, bytes);
    EXPECT_NE(error_text([&] { const TokenShard shard(path); }), "") << round;
  }
}

template <class T>
std::string bytes_of_numbers(const std::vector<T>& numbers) {
  return {reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(T)};
}

TEST(TokenShard, FilesOfNanoGptAndLlmC) {
  const TempFolder folder;
  const fs::path path = folder / "train.bin";
  const auto read = [&](const std::string& bytes, std::optional<int32_t> border = {}) {
    write_file_atomically(path, bytes);
    TokenStream stream;
    stream.add(std::make_shared<TokenShard>(path, border));
    return stream;
  };
  const std::string narrow = bytes_of_numbers<uint16_t>({5, 50256, 65535, 7});
  EXPECT_EQ(all_of(read(narrow)), Ids({5, 50256, 65535, 7}));
  EXPECT_FALSE(read(narrow).tells_documents());
  EXPECT_EQ(ends_of(read(narrow, 50256)), std::vector<int64_t>({2, 4}));
  EXPECT_TRUE(read(narrow, 50256).tells_documents());
  std::vector<int32_t> header(256);
  header[0] = 20240520;
  header[1] = 1;
  header[2] = 4;
  EXPECT_EQ(all_of(read(bytes_of_numbers(header) + narrow)), Ids({5, 50256, 65535, 7}));
  EXPECT_TRUE(has(error_text([&] { read(bytes_of_numbers(header) + narrow + "xx"); }),
                  "its header says 4 tokens, but behind 1024 bytes of header there are 10 bytes"));
  EXPECT_TRUE(has(error_text([&] { read(bytes_of_numbers(header).substr(0, 100)); }), "4 tokens"));
  header[1] = 2;
  EXPECT_TRUE(has(error_text([&] { read(bytes_of_numbers(header) + narrow); }),
                  "wanted version 1 of llm.c's tokens, found 2"));
  header[0] = 20240801;
  header[1] = 7;
  EXPECT_EQ(all_of(read(bytes_of_numbers(header) + bytes_of_numbers<uint32_t>({1, 2, 128000, 4}))),
            Ids({1, 2, 128000, 4}));
  header[2] = -1;
  EXPECT_TRUE(
      has(error_text([&] { read(bytes_of_numbers(header)); }), "its header says -1 tokens"));
  EXPECT_TRUE(has(error_text([&] { read("abc"); }), "tokens of 2 bytes each, found 3 bytes"));
  EXPECT_TRUE(has(error_text([&] { read(""); }), "this file has no tokens"));
}

// Lines of documents, tokenized as bytes.
class Tokenizing : public testing::Test {
 protected:
  void SetUp() override {
    std::string lines;
    for (int i = 0; i < 500; ++i) {
      lines += i % 50 == 7 ? "broken\n"
                           : "{\"prompt\": \"" + std::to_string(i) + "\", \"completion\": \"" +
                                 std::string(i % 13, 'a') + "\"}\n";
    }
    write_file_atomically(folder_ / "a.jsonl", lines);
    write_file_atomically(folder_ / "b.txt", "a text of its own\nwith two lines");
  }
  DataSource source() const { return find_source((folder_ / "*.[jt]*").string()); }
  fs::path cache() const { return folder_ / "cache"; }
  TokenizeOptions options(bool cached, int64_t shard_tokens = 700) const {
    return {.documents = {.tokenizer = tokenizer_.get(), .skip_bad = true},
            .cache = cached ? cache() : fs::path(),
            .threads = 3,
            .shard_tokens = shard_tokens,
            .chunk_bytes = 300};
  }
  std::vector<std::string> cached_files() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(cache())) {
      names.push_back(entry.path().filename().string());
    }
    std::sort(names.begin(), names.end());
    return names;
  }

  TempFolder folder_;
  std::unique_ptr<Tokenizer> tokenizer_ = make_tokenizer("byte", "");
};

TEST_F(Tokenizing, ShardsHoldWhatMemoryWould) {
  const TokenizedSource held = tokenize_source(source(), options(false));
  EXPECT_EQ(held.bad_lines, 10);
  EXPECT_EQ(held.tokens.num_documents(), 491);
  EXPECT_TRUE(held.tokens.marked());
  for (const int64_t shard_tokens : {1, 700, 1 << 20}) {
    fs::remove_all(cache());
    for (int time = 0; time < 2; ++time) {  // made, and found
      const TokenizedSource made = tokenize_source(source(), options(true, shard_tokens));
      EXPECT_EQ(all_of(made.tokens), all_of(held.tokens));
      EXPECT_EQ(ends_of(made.tokens), ends_of(held.tokens));
      EXPECT_EQ(made.bad_lines, 10);
    }
  }
}

// Every token of a source, and a few far apart, in memory and in shards that are passed by.
TEST_F(Tokenizing, ATokenIsFoundInItsDocument) {
  const std::vector<int64_t> ends = ends_of(tokenize_source(source(), options(false)).tokens);
  std::vector<int64_t> lines;  // of documents: those that are not broken
  for (int i = 0; i < 500; ++i) {
    if (i % 50 != 7) lines.push_back(i + 1);
  }
  lines.push_back(0);  // the text
  ASSERT_EQ(ends.size(), lines.size());
  const auto expect_found = [&](const TokenizeOptions& with, int64_t every) {
    std::vector<int64_t> tokens;
    for (int64_t at = every / 2; at < ends.back(); at += every) tokens.push_back(at);
    const std::vector<DocumentPlace> found = find_documents(source(), with, tokens);
    ASSERT_EQ(found.size(), tokens.size());
    for (size_t i = 0; i < tokens.size(); ++i) {
      const auto document = std::upper_bound(ends.begin(), ends.end(), tokens[i]) - ends.begin();
      EXPECT_EQ(found[i].line, lines[document]) << tokens[i];
      EXPECT_EQ(found[i].file, folder_ / (lines[document] ? "a.jsonl" : "b.txt")) << tokens[i];
    }
  };
  for (const int64_t every : {1, 7, 1900}) {
    expect_found(options(false), every);
    for (const int64_t shard_tokens : {1, 700, 1 << 20}) {
      fs::remove_all(cache());
      tokenize_source(source(), options(true, shard_tokens));
      expect_found(options(true, shard_tokens), every);
    }
  }
  EXPECT_EQ(find_documents(source(), options(false), std::vector{ends.back()})[0].file, "")
      << "there is no such token";
}

TEST_F(Tokenizing, IsDoneOnce) {
  int64_t told = 0;
  TokenizeOptions with = options(true);
  with.told = [&](int64_t bytes) { told = bytes; };
  tokenize_source(source(), with);
  EXPECT_EQ(told, fs::file_size(folder_ / "a.jsonl") + fs::file_size(folder_ / "b.txt"));
  const auto files = cached_files();
  EXPECT_GT(files.size(), 5);
  told = 0;
  tokenize_source(source(), with);
  EXPECT_EQ(told, 0) << "found in the cache";
  // Another tokenizer, and other bytes, are other tokens.
  with.documents_hash = 1;
  tokenize_source(source(), with);
  EXPECT_GT(told, 0);
  EXPECT_GT(cached_files().size(), files.size());
  told = 0;
  write_file_atomically(folder_ / "b.txt", "another text");
  tokenize_source(source(), with);
  EXPECT_GT(told, 0);
}

// What is there is taken, what is missing or damaged is made again, and what a dead writer left is
// removed.
TEST_F(Tokenizing, GoesOnBehindTheLastCompleteShard) {
  const TokenizedSource held = tokenize_source(source(), options(false));
  tokenize_source(source(), options(true));
  const auto files = cached_files();
  const size_t shards = files.size() - 1;  // and the lock
  const std::string name = files[0].substr(0, 16);
  for (size_t kept = 0; kept < shards; ++kept) {
    for (size_t i = kept; i < shards; ++i) {
      fs::remove(cache() / (name + "." + std::to_string(i) + ".tokens"));
    }
    const std::string half = name + "." + std::to_string(kept) + ".tokens";
    write_file_atomically(cache() / (half + ".17-0123456789abcdef.new"), "half");
    if (kept % 2) write_file_atomically(cache() / half, "damaged");
    EXPECT_EQ(all_of(tokenize_source(source(), options(true)).tokens), all_of(held.tokens));
    EXPECT_EQ(cached_files(), files) << kept;
  }
}

// Killed at any moment, with no chance to tidy up.
TEST_F(Tokenizing, SurvivesBeingKilled) {
  const TokenizedSource held = tokenize_source(source(), options(false));
  for (int round = 0; round < 12; ++round) {
    fs::remove_all(cache());
    const pid_t child = ::fork();
    if (child == 0) {
      TokenizeOptions with = options(true, 50);
      with.told = [&, count = 0](int64_t) mutable {
        if (++count > 4 * round) ::raise(SIGKILL);
      };
      tokenize_source(source(), with);
      ::_exit(0);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    ASSERT_TRUE(WIFSIGNALED(status)) << round;
    EXPECT_EQ(all_of(tokenize_source(source(), options(true, 50)).tokens), all_of(held.tokens));
    for (const std::string& name : cached_files()) EXPECT_FALSE(name.ends_with(".new")) << name;
  }
}

// A file may not grow beyond a limit: the nearest to a full disk that a test can make.
TEST_F(Tokenizing, AFullDiskLeavesNoHalfShard) {
  const pid_t child = ::fork();
  if (child == 0) {
    std::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{.rlim_cur = 2000, .rlim_max = 2000};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    try {
      tokenize_source(source(), options(true, 1 << 20));
    } catch (const MachineError& error) {
      ::_exit(std::strstr(error.what(), "cannot be written: File too large") ? 7 : 8);
    }
    ::_exit(9);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 7);
  EXPECT_EQ(cached_files(), std::vector<std::string>({"lock"}));
}

TEST_F(Tokenizing, AnEmptySourceIsRefused) {
  write_file_atomically(folder_ / "empty.txt", "");
  const auto error = error_text(
      [&] { tokenize_source(find_source((folder_ / "empty.txt").string()), options(false)); });
  EXPECT_TRUE(has(error, "empty.txt: this source is empty")) << error;
}

// A line that is broken ends it, and nothing is left of the shard that it was for.
TEST_F(Tokenizing, ABrokenLineLeavesNoHalfShard) {
  TokenizeOptions with = options(true, 1 << 20);
  with.documents.skip_bad = false;
  EXPECT_TRUE(has(error_text([&] { tokenize_source(source(), with); }), "a.jsonl: line 8: "));
  EXPECT_EQ(cached_files(), std::vector<std::string>({"lock"}));
}

}  // namespace
}  // namespace adjoint
