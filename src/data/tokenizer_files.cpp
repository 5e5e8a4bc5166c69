// Byte-level tokenizers in other files than a tokenizer.json: vocab.json with merges.txt, as GPT-2
// came, and ranks, as tiktoken has them. Both become the tokenizer.json that says the same.
#include <algorithm>
#include <array>
#include <charconv>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "base/base64.h"
#include "base/error.h"
#include "base/json.h"
#include "base/text.h"
#include "data/bpe_tokenizer.h"
#include "data/utf8.h"
#include "data/vocab_table.h"

namespace adjoint {

namespace {

using nlohmann::json;

// ---- bytes as characters

// Bytes that are characters to be seen in Latin-1 stand for themselves, the others follow from
// U+0100 on.
struct ByteAlphabet {
  std::array<char32_t, 256> character;
  std::unordered_map<char32_t, unsigned char> byte;

  ByteAlphabet() {
    char32_t next = 0x100;
    for (int b = 0; b < 256; ++b) {
      const bool seen = (b >= '!' && b <= '~') || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
      character[b] = seen ? static_cast<char32_t>(b) : next++;
      byte[character[b]] = static_cast<unsigned char>(b);
    }
  }
};

const ByteAlphabet& alphabet() {
  static const ByteAlphabet all;
  return all;
}

json split_json(const std::string& pattern) {
  const json bytes = {{"type", "ByteLevel"},
                      {"add_prefix_space", false},
                      {"trim_offsets", false},
                      {"use_regex", pattern == kGpt2Pattern}};
  if (pattern == kGpt2Pattern) return bytes;
  const json split = {{"type", "Split"},
                      {"pattern", {{"Regex", pattern}}},
                      {"behavior", "Isolated"},
                      {"invert", false}};
  return {{"type", "Sequence"}, {"pretokenizers", json::array({split, bytes})}};
}

// ---- ranks

// What is known of a published file of ranks, beside the ranks.
struct KnownRanks {
  const char* name;
  size_t num;       // ranks in the file
  int32_t highest;  // of them
  const char* pattern;
  std::vector<SpecialToken> special;
};

std::vector<SpecialToken> llama3_specials() {
  const std::unordered_map<int, std::string> named = {
      {0, "<|begin_of_text|>"},   {1, "<|end_of_text|>"},   {4, "<|finetune_right_pad_id|>"},
      {6, "<|start_header_id|>"}, {7, "<|end_header_id|>"}, {8, "<|eom_id|>"},
      {9, "<|eot_id|>"},          {10, "<|python_tag|>"}};
  std::vector<SpecialToken> special;
  int reserved = 0;
  for (int i = 0; i < 256; ++i) {
    const auto found = named.find(i);
    special.push_back({found != named.end()
                           ? found->second
                           : "<|reserved_special_token_" + std::to_string(reserved++) + "|>",
                       128000 + i});
  }
  return special;
}

const std::vector<KnownRanks>& known_ranks() {
  static const std::vector<KnownRanks> all = {
      {"gpt2", 50256, 50255, kGpt2Pattern, {{"<|endoftext|>", 50256}}},
      {"p50k_base", 50280, 50280, kGpt2Pattern, {{"<|endoftext|>", 50256}}},
      {"cl100k_base",
       100256,
       100255,
       kLlama3Pattern,
       {{"<|endoftext|>", 100257},
        {"<|fim_prefix|>", 100258},
        {"<|fim_middle|>", 100259},
        {"<|fim_suffix|>", 100260},
        {"<|endofprompt|>", 100276}}},
      {"llama3", 128000, 127999, kLlama3Pattern, llama3_specials()},
      {"qwen",
       151643,
       151642,
       kQwen2Pattern,
       {{"<|endoftext|>", 151643}, {"<|im_start|>", 151644}, {"<|im_end|>", 151645}}},
      {"o200k_base",
       199998,
       199997,
       kO200kPattern,
       {{"<|endoftext|>", 199999}, {"<|endofprompt|>", 200018}}},
  };
  return all;
}

struct Rank {
  std::string token;
  int32_t rank;
};

// Nothing where the line is not one of ranks.
std::optional<Rank> rank_of_line(std::string_view line) {
  const size_t blank = line.find(' ');
  if (blank == line.npos) return std::nullopt;
  auto token = from_base64(line.substr(0, blank));
  Rank out{{}, -1};
  const char* const end = line.data() + line.size();
  const auto [stop, error] = std::from_chars(line.data() + blank + 1, end, out.rank);
  if (!token || token->empty() || error != std::errc() || stop != end || out.rank < 0) {
    return std::nullopt;
  }
  out.token = std::move(*token);
  return out;
}

// The lines of a text, without the line breaks; what follows the last one only if it is not empty.
template <class Visit>
void for_each_line(std::string_view text, const Visit& visit) {
  size_t number = 1;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    if (line.ends_with('\r')) line.remove_suffix(1);
    visit(line, number++);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
}

}  // namespace

std::string in_byte_alphabet(std::string_view bytes) {
  std::string text;
  for (const char c : bytes) {
    append_utf8(text, alphabet().character[static_cast<unsigned char>(c)]);
  }
  return text;
}

std::optional<std::string> from_byte_alphabet(std::string_view text) {
  std::string bytes;
  for (size_t at = 0; at < text.size();) {
    const CodePoint point = code_point_at(text, at);
    const auto found = alphabet().byte.find(point.value);
    if (point.size == 0 || found == alphabet().byte.end()) return std::nullopt;
    bytes += static_cast<char>(found->second);
    at += point.size;
  }
  return bytes;
}

std::string byte_level_json(const ByteLevelFile& file) {
  json vocab = json::object(), merges = json::array(), added = json::array();
  std::vector<std::string> written(file.tokens.size());
  for (size_t id = 0; id < file.tokens.size(); ++id) {
    if (file.tokens[id].empty()) continue;
    written[id] = in_byte_alphabet(file.tokens[id]);
    vocab[written[id]] = id;
  }
  for (const Merge& merge : file.merges) {
    merges.push_back(json::array({written[merge.left], written[merge.right]}));
  }
  for (const AddedToken& token : file.added) {
    added.push_back({{"id", token.id},
                     {"content", token.content},
                     {"single_word", false},
                     {"lstrip", token.takes_blanks_before},
                     {"rstrip", token.takes_blanks_behind},
                     {"normalized", token.in_normalized},
                     {"special", token.special}});
    // Where a special token has the id of none, it is the library's vocabulary that lists it.
    if (std::cmp_less(token.id, file.tokens.size()) && file.tokens[token.id].empty()) {
      vocab[token.content] = token.id;
    }
  }
  json out = {{"version", "1.0"}, {"truncation", nullptr}, {"padding", nullptr}};
  out["added_tokens"] = std::move(added);
  out["normalizer"] = file.nfc ? json{{"type", "NFC"}} : json();
  out["pre_tokenizer"] = split_json(file.pattern);
  const json bytes = {{"type", "ByteLevel"},
                      {"add_prefix_space", false},
                      {"trim_offsets", false},
                      {"use_regex", false}};
  out["post_processor"] = bytes;
  out["decoder"] = bytes;
  out["model"] = {{"type", "BPE"},
                  {"dropout", nullptr},
                  {"unk_token", nullptr},
                  {"continuing_subword_prefix", nullptr},
                  {"end_of_word_suffix", nullptr},
                  {"fuse_unk", false},
                  {"byte_fallback", false},
                  {"ignore_merges", file.whole_pieces},
                  {"vocab", std::move(vocab)},
                  {"merges", std::move(merges)}};
  return out.dump() + "\n";
}

BpeParts parts_of_vocab(const std::string& vocab, const std::string& merges,
                        const std::string& added, const std::string& pattern, bool nfc) {
  BpeParts read;
  read.byte_level = true;
  VocabTable table;
  table.add(parse_json(vocab, "vocab.json"));
  for_each_line(merges, [&](std::string_view line, size_t number) {
    if (line.empty() || line.starts_with("#version")) return;
    const auto [left, right] = pair_of_line(line, number);
    read.merges.push_back(table.merge(left, right, number));
  });
  ByteLevelFile file{.tokens = {}, .merges = {}, .added = {}, .pattern = pattern, .nfc = nfc};
  const auto add_special = [&](const std::string& name, int64_t id) {
    file.added.push_back({.content = name, .id = static_cast<int32_t>(id), .special = true});
    table.add_added(file.added.back());
  };
  if (const auto end = table.id_of("<|endoftext|>")) add_special("<|endoftext|>", *end);
  if (!added.empty()) {
    const json more = parse_json(added, "added_tokens.json");
    if (!more.is_object()) fail("added_tokens.json is not an object of ids by token");
    for (const auto& [name, id] : more.items()) {
      if (!id.is_number_unsigned() || id > INT32_MAX) {
        fail("added_tokens.json: the id of '", name, "' is not a whole number from 0 on");
      }
      if (name != "<|endoftext|>" || table.id_of(name) != id.get<int32_t>()) {
        add_special(name, id.get<int64_t>());
      }
    }
  }
  table.fill(read);
  for (const AddedToken& token : file.added) read.tokens[token.id].clear();
  file.tokens = std::move(read.tokens);
  file.merges = std::move(read.merges);
  return parts_of_json(byte_level_json(file));
}

bool looks_like_ranks(std::string_view text) {
  return rank_of_line(text.substr(0, std::min(text.find_first_of("\r\n"), text.size())))
      .has_value();
}

BpeParts parts_of_ranks(const std::string& text) {
  std::vector<Rank> ranks;
  int32_t highest = -1;
  for_each_line(text, [&](std::string_view line, size_t number) {
    if (line.empty()) return;
    auto rank = rank_of_line(line);
    if (!rank) {
      fail("line ", number, ": wanted a token in base64, a blank and its rank, found '",
           line.substr(0, 60), "'");
    }
    highest = std::max(highest, rank->rank);
    ranks.push_back(std::move(*rank));
  });
  const KnownRanks* known = nullptr;
  std::vector<std::string> names;
  for (const KnownRanks& one : known_ranks()) {
    if (one.num == ranks.size() && one.highest == highest) known = &one;
    names.push_back(std::string(one.name) + " (" + std::to_string(one.num) + ")");
  }
  if (!known) {
    fail("these are ", ranks.size(), " ranks up to ", highest,
         ", and how a text is cut is known only of ", join(names, ", "),
         "; a tokenizer.json says it itself");
  }
  ByteLevelFile file{.tokens = std::vector<std::string>(highest + 1),
                     .merges = {},
                     .added = {},
                     .pattern = known->pattern,
                     .whole_pieces = true};
  std::unordered_map<std::string_view, int32_t> seen;
  for (const Rank& rank : ranks) {
    if (!file.tokens[rank.rank].empty()) fail("the rank ", rank.rank, " is there twice");
    if (!seen.emplace(rank.token, rank.rank).second) {
      fail("the token of rank ", rank.rank, " has the rank ", seen[rank.token], ", too");
    }
    file.tokens[rank.rank] = rank.token;
  }
  for (int byte = 0; byte < 256; ++byte) {
    if (!seen.count(std::string(1, static_cast<char>(byte))))
      fail("the byte ", byte, " has no rank");
  }
  file.merges = merges_of_ranks(file.tokens);
  for (const SpecialToken& special : known->special) {
    file.added.push_back({.content = special.name, .id = special.id, .special = true});
  }
  return parts_of_json(byte_level_json(file));
}

}  // namespace adjoint
