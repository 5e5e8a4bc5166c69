#include "data/bpe_train.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <utility>

#include "base/error.h"
#include "data/added_tokens.h"

namespace adjoint {

namespace {

// ---- counting

using Counts = std::unordered_map<std::string_view, int64_t>;

bool is_ascii_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

// Parts of about this size for threads to take.
constexpr size_t kPartBytes = size_t{1} << 20;

// Cut where every pattern cuts: before a space between two letters. So the parts have the pieces of
// the whole.
std::vector<std::string_view> parts_of_text(std::string_view text) {
  std::vector<std::string_view> parts;
  while (text.size() > 2 * kPartBytes) {
    size_t at = kPartBytes;
    while (at + 1 < text.size() &&
           !(text[at] == ' ' && is_ascii_letter(text[at - 1]) && is_ascii_letter(text[at + 1]))) {
      ++at;
    }
    if (at + 1 >= text.size()) break;
    parts.push_back(text.substr(0, at));
    text.remove_prefix(at);
  }
  parts.push_back(text);
  return parts;
}

Counts count_pieces(std::span<const std::string_view> texts, const BpeTraining& options) {
  std::vector<AddedToken> names;
  for (const std::string& special : options.specials) {
    names.push_back({.content = special, .special = true});
  }
  const AddedFinder finder(std::move(names));
  const auto splitter = split_by_pattern(options.pattern);
  std::vector<std::string_view> parts;
  for (const std::string_view text : texts) {
    finder.for_each_part(text, true, [&](std::string_view part, size_t, const AddedToken*) {
      for (const std::string_view piece : parts_of_text(part)) parts.push_back(piece);
    });
  }
  std::mutex mutex;
  size_t next = 0;
  Counts all;
  std::exception_ptr failed;
  const auto work = [&] {
    Counts counts;
    try {
      while (true) {
        std::string_view part;
        {
          const std::scoped_lock lock(mutex);
          if (next == parts.size() || failed) break;
          part = parts[next++];
        }
        splitter->for_each_piece(part, [&](std::string_view piece) { ++counts[piece]; });
      }
    } catch (...) {
      const std::scoped_lock lock(mutex);
      failed = std::current_exception();
      return;
    }
    const std::scoped_lock lock(mutex);
    if (all.empty()) {
      all = std::move(counts);
    } else {
      for (const auto& [piece, count] : counts) all[piece] += count;
    }
  };
  std::vector<std::thread> threads;
  for (int i = 1; i < options.threads; ++i) threads.emplace_back(work);
  work();
  for (std::thread& thread : threads) thread.join();
  if (failed) std::rethrow_exception(failed);
  return all;
}

// ---- merging

using Pair = uint64_t;  // left and right, so that pairs are in the order of their ids
Pair pair_of(int32_t left, int32_t right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}

struct PairHash {
  size_t operator()(Pair pair) const {
    const uint64_t mixed = pair * 0x9E3779B97F4A7C15u;
    return mixed ^ mixed >> 32;
  }
};

struct Candidate {
  int64_t count = 0;
  Pair pair = 0;
  std::vector<uint32_t> words = {};  // where it may occur

  // The one to be merged first is the greatest.
  bool operator<(const Candidate& other) const {
    return count != other.count ? count < other.count : pair > other.pair;
  }
};

struct Word {
  std::vector<int32_t> tokens;
  int64_t count = 0;
};

class Learner {
 public:
  explicit Learner(std::vector<Word> words) : words_(std::move(words)) {
    std::unordered_map<Pair, std::vector<uint32_t>, PairHash> where;
    for (size_t w = 0; w < words_.size(); ++w) {
      const std::vector<int32_t>& tokens = words_[w].tokens;
      for (size_t i = 0; i + 1 < tokens.size(); ++i) {
        const Pair pair = pair_of(tokens[i], tokens[i + 1]);
        counts_[pair] += words_[w].count;
        note(where[pair], w);
      }
    }
    add(where);
  }

  // The pair to merge next, and how often it occurs; a count of 0 where none is left. Counts of
  // candidates were right when they were added, and have only fallen since.
  Candidate next() {
    while (!heap_.empty()) {
      std::pop_heap(heap_.begin(), heap_.end());
      Candidate top = std::move(heap_.back());
      heap_.pop_back();
      const int64_t now = counts_[top.pair];
      if (now == top.count) return top;
      if (now <= 0) continue;
      top.count = now;
      push(std::move(top));
    }
    return {};
  }

  void merge(const Candidate& chosen, int32_t to) {
    const auto left = static_cast<int32_t>(chosen.pair >> 32);
    const auto right = static_cast<int32_t>(chosen.pair);
    std::unordered_map<Pair, std::vector<uint32_t>, PairHash> where;
    for (const uint32_t w : chosen.words) {
      std::vector<int32_t>& tokens = words_[w].tokens;
      const int64_t count = words_[w].count;
      size_t made = 0;  // tokens that are done
      for (size_t i = 0; i < tokens.size(); ++i) {
        if (i + 1 == tokens.size() || tokens[i] != left || tokens[i + 1] != right) {
          tokens[made++] = tokens[i];
          continue;
        }
        const auto changed = [&](int32_t was_left, int32_t was_right, int32_t a, int32_t b) {
          counts_[pair_of(was_left, was_right)] -= count;
          counts_[pair_of(a, b)] += count;
          note(where[pair_of(a, b)], w);
        };
        if (made > 0) changed(tokens[made - 1], left, tokens[made - 1], to);
        if (i + 2 < tokens.size()) changed(right, tokens[i + 2], to, tokens[i + 2]);
        tokens[made++] = to;
        ++i;
      }
      tokens.resize(made);
    }
    add(where);
  }

 private:
  static void note(std::vector<uint32_t>& words, size_t word) {
    if (words.empty() || words.back() != word) words.push_back(static_cast<uint32_t>(word));
  }
  void push(Candidate candidate) {
    heap_.push_back(std::move(candidate));
    std::push_heap(heap_.begin(), heap_.end());
  }
  void add(std::unordered_map<Pair, std::vector<uint32_t>, PairHash>& where) {
    for (auto& [pair, words] : where) {
      if (counts_[pair] > 0) push({counts_[pair], pair, std::move(words)});
    }
  }

  std::vector<Word> words_;
  std::unordered_map<Pair, int64_t, PairHash> counts_;
  std::vector<Candidate> heap_;
};

void check_training(const BpeTraining& options) {
  const auto least = static_cast<int64_t>(options.specials.size()) + 256;
  if (options.vocab < least) {
    fail("a vocabulary of ", options.vocab, " tokens is asked for, but 256 bytes and ",
         options.specials.size(), " special tokens are ", least);
  }
  for (size_t i = 0; i < options.specials.size(); ++i) {
    const std::string& special = options.specials[i];
    if (special.empty()) fail("a special token is empty");
    if (std::count(options.specials.begin(), options.specials.end(), special) > 1) {
      fail("the special token ", special, " is there twice");
    }
    if (const auto bytes = from_byte_alphabet(special); bytes && bytes->size() == 1) {
      fail("the special token ", special, " is the name of a byte");
    }
  }
}

}  // namespace

ByteLevelFile train_bpe(std::span<const std::string_view> texts, const BpeTraining& options) {
  check_training(options);
  ByteLevelFile file{.tokens = {}, .merges = {}, .added = {}, .pattern = options.pattern};
  for (const std::string& special : options.specials) {
    file.added.push_back(
        {.content = special, .id = static_cast<int32_t>(file.tokens.size()), .special = true});
    file.tokens.emplace_back();
  }
  // Bytes in the order of the characters that are written for them.
  std::map<std::string, char> characters;  // UTF-8 is in the order of code points
  for (int byte = 0; byte < 256; ++byte) {
    const char c = static_cast<char>(byte);
    characters[in_byte_alphabet({&c, 1})] = c;
  }
  std::unordered_map<std::string, int32_t> id_of;
  const auto add_token = [&](const std::string& token) {
    const auto [place, fresh] = id_of.emplace(token, static_cast<int32_t>(file.tokens.size()));
    if (fresh) file.tokens.push_back(token);
    return place->second;
  };
  for (const auto& [character, byte] : characters) add_token(std::string(1, byte));

  std::vector<Word> words;
  for (const auto& [piece, count] : count_pieces(texts, options)) {
    Word word{{}, count};
    for (const char c : piece) word.tokens.push_back(id_of[std::string(1, c)]);
    words.push_back(std::move(word));
  }
  CHECK(words.size() < UINT32_MAX, "there are more than 2^32 different words");
  Learner learner(std::move(words));
  const int64_t wanted = options.vocab - static_cast<int64_t>(file.tokens.size());
  while (std::cmp_less(file.tokens.size(), options.vocab)) {
    const Candidate chosen = learner.next();
    if (chosen.count < std::max<int64_t>(options.least_count, 1)) break;
    const auto left = static_cast<int32_t>(chosen.pair >> 32);
    const auto right = static_cast<int32_t>(chosen.pair);
    const int32_t to = add_token(file.tokens[left] + file.tokens[right]);
    file.merges.push_back({left, right, to});
    learner.merge(chosen, to);
    const auto merges = static_cast<int64_t>(file.merges.size());
    if (options.told && merges % 100 == 0) options.told(merges, wanted);
  }
  return file;
}

}  // namespace adjoint
