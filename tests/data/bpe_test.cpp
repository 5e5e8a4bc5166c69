// Merges against the definition, and learning against a plain one.
#include "data/bpe.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

#include "base/error.h"
#include "data/bpe_train.h"

namespace adjoint {
namespace {

using Tokens = std::vector<int32_t>;

// Merges the leftmost pair of lowest rank until there is none.
Tokens merged_plainly(const std::vector<Merge>& merges, Tokens tokens) {
  while (true) {
    size_t best = tokens.size(), best_rank = merges.size();
    for (size_t i = 0; i + 1 < tokens.size(); ++i) {
      for (size_t rank = 0; rank < best_rank; ++rank) {
        if (merges[rank].left == tokens[i] && merges[rank].right == tokens[i + 1]) {
          best = i, best_rank = rank;
        }
      }
    }
    if (best == tokens.size()) return tokens;
    tokens[best] = merges[best_rank].to;
    tokens.erase(tokens.begin() + static_cast<ptrdiff_t>(best) + 1);
  }
}

TEST(Merger, MergesTheLowestRankFirst) {
  std::mt19937 random(3);
  for (int n = 0; n < 50; ++n) {
    std::vector<Merge> merges;
    int32_t tokens = 4;
    for (int i = 0; i < 30; ++i) {
      const auto left = static_cast<int32_t>(random() % tokens);
      const auto right = static_cast<int32_t>(random() % tokens);
      const bool there = std::any_of(merges.begin(), merges.end(), [&](const Merge& m) {
        return m.left == left && m.right == right;
      });
      if (!there) merges.push_back({left, right, tokens++});
    }
    const Merger merger(merges);
    // On both sides of where a piece is long.
    for (const size_t size : {0, 1, 2, 3, 20, 63, 64, 65, 66, 300}) {
      Tokens text(size);
      for (int32_t& token : text) token = static_cast<int32_t>(random() % 4);
      Tokens merged = text;
      merger.merge(merged);
      ASSERT_EQ(merged, merged_plainly(merges, text)) << size;
    }
  }
}

TEST(Merger, TakesAMegabyteOfOneLetter) {
  const std::vector<Merge> merges = {{0, 0, 1}, {1, 1, 2}, {2, 2, 3}};
  Tokens text(1'000'003, 0);
  Merger(merges).merge(text);
  ASSERT_EQ(text.size(), 125'002u);  // eights, and a pair with one
  EXPECT_EQ(Tokens(text.end() - 3, text.end()), Tokens({3, 1, 0}));
}

// Ranks merge whatever becomes a token of lower rank; the merges that are made of them must agree.
TEST(MergesOfRanks, MergeAsTheRanksDo) {
  std::mt19937 random(4);
  for (int n = 0; n < 30; ++n) {
    std::vector<std::string> tokens = {"a", "b", "c"};
    std::map<std::string, size_t> rank_of = {{"a", 0}, {"b", 1}, {"c", 2}};
    while (tokens.size() < 40) {
      // Some are no two tokens of lower rank, as in ranks that were edited.
      std::string token = tokens[random() % tokens.size()] + tokens[random() % tokens.size()];
      if (random() % 8 == 0) token += tokens[random() % tokens.size()];
      if (rank_of.emplace(token, tokens.size()).second) tokens.push_back(token);
    }
    const Merger merger(merges_of_ranks(tokens));
    for (int text = 0; text < 200; ++text) {
      std::vector<std::string> parts(random() % 30);
      Tokens merged;
      for (std::string& part : parts) {
        part = static_cast<char>('a' + random() % 3);
        merged.push_back(part[0] - 'a');
      }
      merger.merge(merged);
      while (true) {
        size_t best = parts.size(), best_rank = tokens.size();
        for (size_t i = 0; i + 1 < parts.size(); ++i) {
          const auto found = rank_of.find(parts[i] + parts[i + 1]);
          if (found != rank_of.end() && found->second < best_rank) {
            best = i, best_rank = found->second;
          }
        }
        if (best == parts.size()) break;
        parts[best] += parts[best + 1];
        parts.erase(parts.begin() + static_cast<ptrdiff_t>(best) + 1);
      }
      Tokens wanted;
      for (const std::string& part : parts) wanted.push_back(static_cast<int32_t>(rank_of[part]));
      ASSERT_EQ(merged, wanted);
    }
  }
}

ByteLevelFile learned(std::string_view text, int64_t vocab, int threads = 1) {
  return train_bpe(std::vector<std::string_view>{text}, {.vocab = vocab, .threads = threads});
}

std::vector<std::string> learned_tokens(const ByteLevelFile& file) {
  std::vector<std::string> tokens;
  for (const Merge& merge : file.merges) tokens.push_back(file.tokens[merge.to]);
  return tokens;
}

TEST(TrainBpe, MergesWhatOccursMostOften) {
  // "ab" occurs four times; then " ab" and "abc" three times each, and the space has the lower id;
  // then " abc" twice. What is left occurs once, which is too little.
  const ByteLevelFile file = learned("abc abc abcd ab", 400);
  EXPECT_EQ(learned_tokens(file), std::vector<std::string>({"ab", " ab", " abc"}));
  EXPECT_EQ(file.tokens.size(), 1u + 256 + 3);
  EXPECT_EQ(file.added[0].content, "<|endoftext|>");
  EXPECT_EQ(file.added[0].id, 0);
}

TEST(TrainBpe, OfPairsAsFrequentTheLowerIdsAreFirst) {
  // In the alphabet of bytes "!" comes before "a", and a space behind both.
  EXPECT_EQ(learned_tokens(learned("xy!! xy!!", 259)), std::vector<std::string>({"!!", "xy"}));
}

TEST(TrainBpe, ThreadsAndSpecialNamesChangeNothing) {
  std::mt19937 random(5);
  std::string text;
  while (text.size() < (size_t{3} << 20)) {  // more than a thread takes at a time
    const std::string letters = "etaoinshrdlu";
    for (unsigned n = 1 + random() % 3; n > 0; --n) text += letters[random() % letters.size()];
    text += random() % 9 ? " " : random() % 2 ? "\n" : " <|endoftext|>";
  }
  const ByteLevelFile one = learned(text, 400), four = learned(text, 400, 4);
  EXPECT_EQ(one.tokens, four.tokens);
  EXPECT_EQ(one.merges, four.merges);
  for (const std::string& token : one.tokens) EXPECT_EQ(token.find("<|"), std::string::npos);
}

TEST(TrainBpe, RefusesTooSmallAVocabulary) {
  try {
    learned("abc", 256);
    FAIL();
  } catch (const Error& e) {
    EXPECT_STREQ(
        e.what(),
        "a vocabulary of 256 tokens is asked for, but 256 bytes and 1 special tokens are 257");
  }
}

}  // namespace
}  // namespace adjoint
