// Reads the tokenizer.json of the tokenizers library. What it says and we do not know is refused by
// name, never passed over: an unknown normalizer would give other ids without a word.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <unordered_map>

#include "base/error.h"
#include "base/json.h"
#include "base/text.h"
#include "data/bpe_tokenizer.h"
#include "data/regex.h"
#include "data/unicode.h"
#include "data/vocab_table.h"

namespace adjoint {

namespace {

using nlohmann::json;

// An object of the file, whose fields must all be asked for before it goes.
class Part {
 public:
  Part(const json& value, std::string name) : value_(value), name_(std::move(name)) {
    if (!value.is_object()) fail(name_, " is not an object");
  }

  const std::string& name() const { return name_; }
  // The field, or null where there is none.
  const json& find(const std::string& key) {
    static const json none;
    asked_.insert(key);
    const auto found = value_.find(key);
    return found == value_.end() ? none : *found;
  }
  bool flag(const std::string& key, bool otherwise) {
    const json& field = find(key);
    if (field.is_null()) return otherwise;
    if (!field.is_boolean()) wrong(key, "true or false");
    return field.get<bool>();
  }
  std::string text(const std::string& key) {
    const json& field = find(key);
    if (!field.is_string()) wrong(key, "a text");
    return field.get<std::string>();
  }
  std::string text(const std::string& key, const std::string& otherwise) {
    return find(key).is_null() ? otherwise : text(key);
  }
  int64_t whole(const std::string& key) {
    const json& field = find(key);
    if (!field.is_number_integer() || field < 0 || field > INT32_MAX) {
      wrong(key, "a whole number from 0 on");
    }
    return field.get<int64_t>();
  }
  const json& list(const std::string& key) {
    const json& field = find(key);
    if (!field.is_array()) wrong(key, "a list");
    return field;
  }
  // Refuses what was not asked for.
  void done() const {
    for (const auto& [key, field] : value_.items()) {
      if (!asked_.count(key)) fail(name_, " has \"", key, "\", which is not supported");
    }
  }
  [[noreturn]] void wrong(const std::string& key, const std::string& wanted) const {
    const auto found = value_.find(key);
    if (found == value_.end()) fail(name_, " has no \"", key, "\", which is ", wanted);
    std::string shown = found->dump(-1, ' ', false, json::error_handler_t::replace);
    if (shown.size() > 60) shown = shown.substr(0, 57) + "...";
    fail(name_, ": \"", key, "\" is not ", wanted, " but ", shown);
  }

 private:
  const json& value_;
  std::string name_;
  std::set<std::string> asked_;
};

// {"type": "Sequence", [key]: [...]} and what is in such, in one line; null is nothing.
template <class Visit>
void for_each_part(const json& value, const std::string& name, const std::string& key,
                   const Visit& visit) {
  if (value.is_null()) return;
  Part part(value, name);
  const std::string type = part.text("type");
  if (type != "Sequence") {
    Part inner(value, fmt::format("{} {}", name, type));
    inner.find("type");
    visit(type, inner);
    inner.done();
    return;
  }
  for (const json& one : part.list(key)) {
    if (one.is_object() && one.value("type", json()) == "Sequence") {
      fail(name, " has a Sequence inside a Sequence, which is not supported");
    }
    for_each_part(one, name, key, visit);
  }
  part.done();
}

// {"String": " "} or {"Regex": "\\s"}
struct Pattern {
  bool regex = false;
  std::string text;
};

Pattern pattern_of(Part& part) {
  Part pattern(part.find("pattern"), part.name() + "'s pattern");
  Pattern out;
  out.regex = !pattern.find("Regex").is_null();
  out.text = pattern.text(out.regex ? "Regex" : "String");
  pattern.done();
  if (out.text.empty()) fail(part.name(), "'s pattern is empty");
  return out;
}

TextEdit replace_edit(const Pattern& pattern, const std::string& content) {
  if (!pattern.regex) {
    return [from = pattern.text, content](std::string_view text, bool) {
      std::string out;
      size_t done = 0;
      for (size_t at = text.find(from); at != text.npos; at = text.find(from, done)) {
        out.append(text, done, at - done).append(content);
        done = at + from.size();
      }
      return out.append(text, done);
    };
  }
  return [regex = std::make_shared<Regex>(pattern.text), content](std::string_view text, bool) {
    std::string out;
    Regex::Finder finder(*regex);
    size_t done = 0;
    for (size_t from = 0; from <= text.size();) {
      const auto match = finder.find(text, from);
      if (!match) break;
      out.append(text, done, match->begin - done).append(content);
      done = match->end;
      from = match->end > match->begin ? match->end : match->end + 1;
    }
    return out.append(text, done);
  };
}

TextEdit prepend_edit(const std::string& content) {
  return [content](std::string_view text, bool) {
    return text.empty() ? std::string() : content + std::string(text);
  };
}

TextEdit strip_edit(bool left, bool right) {
  return [left, right](std::string_view text, bool) {
    const UnicodeClasses& classes = UnicodeClasses::all();
    size_t begin = 0, end = 0;  // of what stays
    bool any = false;
    for (size_t at = 0; at < text.size();) {
      const ClassedPoint point = classed_point_at(classes, text, at);
      if (!(point.classes & kWhiteSpace)) {
        if (!any) begin = at;
        any = true;
        end = at + point.size;
      }
      at += point.size;
    }
    if (!any) return left || right ? std::string() : std::string(text);
    if (!left) begin = 0;
    if (!right) end = text.size();
    return std::string(text.substr(begin, end - begin));
  };
}

void read_normalizer(const std::string& type, Part& part, BpeParts& parts) {
  static const std::unordered_map<std::string, NormalForm> forms = {{"NFC", NormalForm::kNfc},
                                                                    {"NFD", NormalForm::kNfd},
                                                                    {"NFKC", NormalForm::kNfkc},
                                                                    {"NFKD", NormalForm::kNfkd}};
  if (const auto form = forms.find(type); form != forms.end()) {
    parts.normalizers.emplace_back(
        [form = form->second](std::string_view text, bool) { return normalized(text, form); });
  } else if (type == "Prepend") {
    parts.normalizers.push_back(prepend_edit(part.text("prepend")));
  } else if (type == "Replace") {
    const Pattern pattern = pattern_of(part);
    parts.normalizers.push_back(replace_edit(pattern, part.text("content")));
  } else if (type == "Strip") {
    const bool left = part.flag("strip_left", true);
    parts.normalizers.push_back(strip_edit(left, part.flag("strip_right", true)));
  } else {
    fail("the normalizer ", type,
         " is not supported, only NFC, NFD, NFKC, NFKD, Prepend, Replace and Strip");
  }
}

SplitBehavior behavior_of(Part& part) {
  const std::string name = part.text("behavior");
  const std::vector<std::pair<std::string, SplitBehavior>> all = {
      {"Isolated", SplitBehavior::kIsolated},
      {"Removed", SplitBehavior::kRemoved},
      {"Contiguous", SplitBehavior::kContiguous},
      {"MergedWithPrevious", SplitBehavior::kMergedWithPrevious},
      {"MergedWithNext", SplitBehavior::kMergedWithNext}};
  for (const auto& [known, behavior] : all) {
    if (name == known) return behavior;
  }
  part.wrong("behavior", "Isolated, Removed, Contiguous, MergedWithPrevious or MergedWithNext");
}

// What Metaspace says as a pre-tokenizer and as a decoder; older files say add_prefix_space.
struct Metaspace {
  std::string mark;
  enum class Prepend : uint8_t { kNever, kFirst, kAlways } prepend = Prepend::kAlways;
  bool split = true;
};

Metaspace metaspace_of(Part& part) {
  Metaspace out;
  out.mark = part.text("replacement");
  if (out.mark.empty()) part.wrong("replacement", "a character");
  if (!part.flag("add_prefix_space", true)) out.prepend = Metaspace::Prepend::kNever;
  const std::string scheme = part.text("prepend_scheme", "");
  if (scheme == "never") {
    out.prepend = Metaspace::Prepend::kNever;
  } else if (scheme == "first") {
    out.prepend = Metaspace::Prepend::kFirst;
  } else if (scheme == "always") {
    out.prepend = Metaspace::Prepend::kAlways;
  } else if (!scheme.empty()) {
    part.wrong("prepend_scheme", "always, first or never");
  }
  out.split = part.flag("split", true);
  part.find("str_rep");  // the mark once more, in old files
  return out;
}

// Edits come before cuts: what the library changes in each piece it would cut into is not here.
void check_edits_first(const Part& part, const BpeParts& parts) {
  if (!parts.splits.empty()) {
    fail(part.name(), " changes pieces that were cut before, which is not supported");
  }
}

void read_pre_tokenizer(const std::string& type, Part& part, BpeParts& parts) {
  if (type == "ByteLevel") {
    parts.byte_level = true;
    part.flag("trim_offsets", true);  // of offsets, which nobody asks for here
    if (part.flag("add_prefix_space", true)) {
      check_edits_first(part, parts);
      parts.before_splits.emplace_back([](std::string_view text, bool) {
        return text.starts_with(' ') ? std::string(text) : " " + std::string(text);
      });
    }
    if (part.flag("use_regex", true)) parts.splits.push_back(split_by_pattern(kGpt2Pattern));
  } else if (type == "Split") {
    const Pattern pattern = pattern_of(part);
    const SplitBehavior behavior = behavior_of(part);
    const bool inverted = part.flag("invert", false);
    parts.splits.push_back(pattern.regex ? split_by_pattern(pattern.text, behavior, inverted)
                                         : split_by_text(pattern.text, behavior, inverted));
  } else if (type == "Digits") {
    const bool single = part.flag("individual_digits", false);
    parts.splits.push_back(
        split_by_pattern("\\p{N}", single ? SplitBehavior::kIsolated : SplitBehavior::kContiguous));
  } else if (type == "Metaspace") {
    check_edits_first(part, parts);
    const Metaspace space = metaspace_of(part);
    parts.before_splits.push_back(replace_edit({.text = " "}, space.mark));
    if (space.prepend != Metaspace::Prepend::kNever) {
      const bool always = space.prepend == Metaspace::Prepend::kAlways;
      parts.before_splits.emplace_back(
          [mark = space.mark, always](std::string_view text, bool first) {
            const bool wanted = (always || first) && !text.starts_with(mark);
            return wanted ? mark + std::string(text) : std::string(text);
          });
    }
    if (space.split) {
      parts.splits.push_back(split_by_text(space.mark, SplitBehavior::kMergedWithNext));
    }
  } else {
    fail("the pre-tokenizer ", type,
         " is not supported, only ByteLevel, Split, Digits and Metaspace");
  }
}

struct DecoderReader {
  BpeDecoding& decoding;
  bool byte_level = false, fused = false;

  void read(const std::string& type, Part& part) {
    if (type == "ByteLevel") {
      byte_level = true;
      for (const char* key : {"add_prefix_space", "trim_offsets", "use_regex"})
        part.flag(key, true);
    } else if (type == "Replace") {
      const Pattern pattern = pattern_of(part);
      if (pattern.regex) fail("the decoder Replace by a Regex is not supported");
      decoding.replaced.emplace_back(pattern.text, part.text("content"));
    } else if (type == "ByteFallback") {
      decoding.bytes = true;
    } else if (type == "Fuse") {
      fused = true;
    } else if (type == "Strip") {
      decoding.stripped_first = part.text("content");
      if (decoding.stripped_first.empty()) part.wrong("content", "a character");
      decoding.num_stripped_first = part.whole("start");
      if (!fused) fail("the decoder Strip before Fuse is not supported");
      if (part.whole("stop") != 0) fail("the decoder Strip at the end of a text is not supported");
    } else if (type == "Metaspace") {
      const Metaspace space = metaspace_of(part);
      decoding.replaced.emplace_back(space.mark, " ");
      if (space.prepend != Metaspace::Prepend::kNever) {
        decoding.stripped_first = " ";
        decoding.num_stripped_first = 1;
      }
    } else {
      fail("the decoder ", type,
           " is not supported, only ByteLevel, Replace, ByteFallback, Fuse, Strip and Metaspace");
    }
  }
};

// What stands around the text "A" in the template of one text.
void read_template(Part& part, TextFrame& frame) {
  const json& tokens = part.find("special_tokens");
  bool behind = false;
  for (const json& piece : part.list("single")) {
    Part item(piece, "the template's piece");
    if (const json& sequence = item.find("Sequence"); !sequence.is_null()) {
      Part named(sequence, "the template's Sequence");
      if (named.text("id") != "A" || behind) fail("the template of one text is not one text A");
      behind = true;
    } else {
      Part named(item.find("SpecialToken"), "the template's SpecialToken");
      const std::string id = named.text("id");
      if (!tokens.is_object() || !tokens.contains(id)) {
        fail("the template names ", id, ", which its special_tokens lack");
      }
      Part token(tokens.at(id), fmt::format("the template's token {}", id));
      for (const json& one : token.list("ids")) {
        if (!one.is_number_unsigned() || one > INT32_MAX) token.wrong("ids", "a list of ids");
        (behind ? frame.after : frame.before).push_back(one.get<int32_t>());
      }
    }
  }
  if (!behind) fail("the template of one text has no text A");
  part.find("pair");  // of two texts, which nobody has here
}

void read_post_processor(const std::string& type, Part& part, BpeParts& parts) {
  if (type == "TemplateProcessing") {
    read_template(part, parts.frame);
  } else if (type == "ByteLevel") {
    // Of offsets alone.
    for (const char* key : {"add_prefix_space", "trim_offsets", "use_regex"}) part.flag(key, true);
  } else if (type == "RobertaProcessing" || type == "BertProcessing") {
    for (const char* key : {"cls", "sep"}) {
      const json& token = part.list(key);
      if (token.size() != 2 || !token[1].is_number_unsigned() || token[1] > INT32_MAX) {
        part.wrong(key, "a token and its id");
      }
      (key[0] == 'c' ? parts.frame.before : parts.frame.after).push_back(token[1].get<int32_t>());
    }
    part.flag("trim_offsets", true);
    part.flag("add_prefix_space", true);
  } else {
    fail("the post-processor ", type,
         " is not supported, only TemplateProcessing, ByteLevel, RobertaProcessing and "
         "BertProcessing");
  }
}

// "a b" or ["a", "b"]
std::pair<std::string_view, std::string_view> pair_of(const json& merge, size_t rank) {
  if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
    return {merge[0].get_ref<const std::string&>(), merge[1].get_ref<const std::string&>()};
  }
  if (merge.is_string()) return pair_of_line(merge.get_ref<const std::string&>(), rank);
  fail("merge ", rank, " is not a pair of tokens");
}

void read_model(const json& value, BpeParts& parts, VocabTable& vocab) {
  Part part(value, "the model");
  const std::string type = part.text("type", part.find("merges").is_null() ? "" : "BPE");
  if (type != "BPE")
    fail("the model ", type.empty() ? "without a type" : type, " is not supported, only BPE");
  Part model(value, "the model BPE");
  model.find("type");
  if (const json& dropout = model.find("dropout"); !dropout.is_null() && dropout != 0.0) {
    model.wrong("dropout", "null: it would give other ids each time");
  }
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    if (!model.text(key, "").empty()) model.wrong(key, "null, which alone is supported");
  }
  parts.fuse_unknown = model.flag("fuse_unk", false);
  parts.byte_fallback = model.flag("byte_fallback", false);
  parts.whole_pieces = model.flag("ignore_merges", false);
  vocab.add(model.find("vocab"));
  const json& merges = model.list("merges");
  parts.merges.reserve(merges.size());
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    const auto [left, right] = pair_of(merges[rank], rank);
    parts.merges.push_back(vocab.merge(left, right, rank));
  }
  if (const std::string unknown = model.text("unk_token", ""); !unknown.empty()) {
    parts.unknown = vocab.id_of(unknown);
    if (!parts.unknown) fail("the model's unk_token ", unknown, " is not in its vocabulary");
  }
  model.done();
}

AddedToken added_token_of(const json& value) {
  Part part(value, "an added token");
  AddedToken token;
  token.content = part.text("content");
  token.id = static_cast<int32_t>(part.whole("id"));
  token.special = part.flag("special", false);
  token.takes_blanks_before = part.flag("lstrip", false);
  token.takes_blanks_behind = part.flag("rstrip", false);
  token.in_normalized = part.flag("normalized", !token.special);
  if (part.flag("single_word", false)) {
    fail("the added token ", token.content, " has single_word, which is not supported");
  }
  part.done();
  if (token.content.empty()) fail("the added token ", token.id, " is empty");
  return token;
}

}  // namespace

BpeParts parts_of_json(const std::string& text) {
  const json parsed = parse_json(text);
  Part file(parsed, "it");
  file.find("version");
  // Of batches, not of texts: how ids are cut and filled up.
  file.find("truncation");
  file.find("padding");
  BpeParts parts;
  for_each_part(file.find("normalizer"), "the normalizer", "normalizers",
                [&](const std::string& type, Part& p) { read_normalizer(type, p, parts); });
  for_each_part(file.find("pre_tokenizer"), "the pre-tokenizer", "pretokenizers",
                [&](const std::string& type, Part& p) { read_pre_tokenizer(type, p, parts); });
  DecoderReader decoder{parts.decoding};
  for_each_part(file.find("decoder"), "the decoder", "decoders",
                [&](const std::string& type, Part& p) { decoder.read(type, p); });
  if (decoder.byte_level != parts.byte_level) {
    fail("the pre-tokenizer and the decoder must both be ByteLevel, or neither");
  }
  for_each_part(file.find("post_processor"), "the post-processor", "processors",
                [&](const std::string& type, Part& p) { read_post_processor(type, p, parts); });

  VocabTable vocab;
  read_model(file.find("model"), parts, vocab);
  if (const json& added = file.find("added_tokens"); !added.is_null()) {
    for (const json& one : file.list("added_tokens")) {
      parts.added.push_back(added_token_of(one));
      vocab.add_added(parts.added.back());
    }
  }
  file.done();
  for (const auto* ids : {&parts.frame.before, &parts.frame.after}) {
    for (const int32_t id : *ids) vocab.check_known(id, "the post-processor");
  }
  vocab.fill(parts);
  parts.json = text;
  return parts;
}

}  // namespace adjoint
