#include "data/documents.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.h"
#include "base/json.h"
#include "base/text.h"
#include "data/unicode.h"

namespace adjoint {

using nlohmann::json;

namespace {

// A text without lines is cut after this many chunks, and a line of JSON that is longer is refused
// before it fills the memory.
constexpr size_t kMaxChunks = 64;
constexpr size_t kMaxLine = size_t{1} << 30;

bool is_blank(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }
bool is_blank_line(std::string_view line) {
  return std::all_of(line.begin(), line.end(), is_blank);
}

// As Unicode has it, because patterns of tokenizers join blanks of every kind.
uint8_t classes_at(std::string_view text, size_t at) {
  return classed_point_at(UnicodeClasses::all(), text, at).classes;
}
bool blank_before(std::string_view text, size_t at) {
  size_t begin = at - 1;
  while (begin > 0 && at - begin < 4 && (static_cast<unsigned char>(text[begin]) & 0xC0) == 0x80) {
    --begin;
  }
  return classes_at(text, begin) & kWhiteSpace;
}

// Where a text may be cut: behind the last "a\nb"'s line end, where b is a letter or a number.
// Marks may belong to the line's end: o200k has a token ";\n//". 0: nowhere. All bytes of b must be
// there.
size_t last_cut(std::string_view text) {
  constexpr size_t kLongestCharacter = 4;
  if (text.size() < kLongestCharacter + 2) return 0;
  for (size_t at = text.size() - kLongestCharacter; at >= 2; --at) {
    if (text[at - 1] == '\n' && (classes_at(text, at) & (kLetter | kNumber)) &&
        !blank_before(text, at - 1)) {
      return at;
    }
  }
  return 0;
}

// The largest cut of the text that splits no character of UTF-8.
size_t cut_between_characters(std::string_view text) {
  size_t at = text.size();
  for (int i = 0; i < 4 && at > 0 && (static_cast<unsigned char>(text[at - 1]) & 0xC0) == 0x80;
       ++i) {
    --at;
  }
  return at > 1 ? at - 1 : text.size();
}

std::string found_in(const json& value) {
  if (!value.is_object()) return value.type_name();
  std::vector<std::string> names;
  for (const auto& [name, entry] : value.items()) names.push_back("\"" + name + "\"");
  return names.empty() ? "an empty object" : join(names, ", ");
}

const std::string& text_entry(const json& object, const char* name) {
  const auto found = object.find(name);
  if (found == object.end()) {
    fail("wanted \"", name, "\" beside ", found_in(object), ", found none");
  }
  if (!found->is_string()) {
    fail("wanted a text as \"", name, "\", found ", found->type_name());
  }
  return found->get_ref<const std::string&>();
}

// What a message has under this name; null where it has nothing or says null.
const json& entry_of(const json& message, const char* name) {
  static const json kNone;
  const auto found = message.find(name);
  return found == message.end() ? kNone : *found;
}

// A template writes roles and contents. A call of a tool would be left out, and the model would
// learn to end its turn where the call was.
void check_calls_nothing(const json& message, size_t number) {
  for (const char* name : {"tool_calls", "function_call"}) {
    const json& calls = entry_of(message, name);
    if (calls.is_null() || calls.empty()) continue;
    fail("message ", number, " has \"", name,
         "\", which templates do not write: the model would learn to stop where the call is");
  }
}

// What other programs write beside a message to say whether it is learned: "weight": 0 or 1, and
// "train": true or false. Nothing where it says neither.
std::optional<bool> said_to_be_trained(const json& message, size_t number) {
  std::optional<bool> said;
  const json &weight = entry_of(message, "weight"), &train = entry_of(message, "train");
  if (!weight.is_null()) {
    if (!weight.is_number() || (weight != 0 && weight != 1)) {
      fail("wanted 0 or 1 as \"weight\" of message ", number, ", found ", weight.dump(),
           ": a message is learned or it is not");
    }
    said = weight == 1;
  }
  if (!train.is_null()) {
    if (!train.is_boolean()) {
      fail("wanted true or false as \"train\" of message ", number, ", found ", train.dump());
    }
    if (said && *said != train.get<bool>()) {
      fail("message ", number, " says \"weight\": ", weight.dump(),
           " and \"train\": ", train.dump(), ", which contradict each other");
    }
    said = train.get<bool>();
  }
  return said;
}

std::vector<TextPiece> conversation(const json& messages, const ChatTemplate* chat) {
  if (!messages.is_array() || messages.empty()) {
    fail("wanted a list of messages as \"messages\", found ",
         messages.is_array() ? "none in it" : messages.type_name());
  }
  if (!chat) fail("\"messages\" are written by a chat template: say which with --template");
  std::vector<ChatMessage> said;
  for (const json& message : messages) {
    if (!message.is_object()) {
      fail("wanted {\"role\", \"content\"} as message ", said.size() + 1, ", found ",
           message.type_name());
    }
    const size_t number = said.size() + 1;
    check_calls_nothing(message, number);
    said.push_back({.role = text_entry(message, "role"),
                    .content = text_entry(message, "content"),
                    .trained = said_to_be_trained(message, number)});
  }
  return chat->render(said);
}

// A line that is a document in two ways would be learned in one of them, and nobody knows which.
void check_is_one_document(const json& value) {
  if (!value.is_object()) return;
  std::vector<std::string> ways;
  for (const char* name : {"messages", "text"}) {
    if (value.contains(name)) ways.push_back(std::string("\"") + name + "\"");
  }
  if (value.contains("prompt") && value.contains("completion")) {
    ways.emplace_back("\"prompt\" with \"completion\"");
  }
  if (ways.size() < 2) return;
  fail("wanted one document a line, found ", join(ways, " beside "), ": leave one out");
}

[[noreturn]] void fail_in_file(const Chunk& chunk, const TextError& error) {
  fail(chunk.file->path.string(), ": ", error.before, "byte ",
       static_cast<size_t>(chunk.begin) + error.at, error.behind);
}

// What a tokenizer puts before a text is read and never written; behind the text comes what it puts
// there, and the token that ends a document, if there is one and the text has not ended with it.
void begin_document(const Tokenizer& tokenizer, TokenizedChunk& to) {
  for (const int32_t id : tokenizer.frame().before) {
    to.tokens.push_back(static_cast<uint32_t>(id) | kNotTrained);
  }
}
void end_document(const Tokenizer& tokenizer, bool framed, bool trained, TokenizedChunk& to) {
  std::vector<int32_t> behind;
  if (framed) behind = tokenizer.frame().after;
  if (const auto end = tokenizer.end_of_text()) {
    const auto id = static_cast<uint32_t>(*end);
    const bool ended = behind.empty()
                           ? !to.tokens.empty() && (to.tokens.back() & ~kNotTrained) == id
                           : behind.back() == *end;
    if (!ended) behind.push_back(*end);
  }
  for (const int32_t id : behind) {
    to.tokens.push_back(static_cast<uint32_t>(id) | (trained ? 0 : kNotTrained));
  }
  to.ends.push_back(static_cast<int64_t>(to.tokens.size()));
}

// A template writes its own frame. Only in what it writes are names of special tokens those tokens.
void add_document(std::span<const TextPiece> pieces, const Tokenizer& tokenizer,
                  TokenizedChunk& to) {
  const auto empty = [](const TextPiece& piece) { return piece.text.empty(); };
  if (std::all_of(pieces.begin(), pieces.end(), empty)) return;
  const bool framed =
      std::none_of(pieces.begin(), pieces.end(), [](const TextPiece& p) { return p.markup; });
  if (framed) begin_document(tokenizer, to);
  for (const TextPiece& piece : pieces) {
    if (piece.trained) to.bytes += static_cast<int64_t>(piece.text.size());
    for (const int32_t id : encode_piece(tokenizer, piece)) {
      to.tokens.push_back(static_cast<uint32_t>(id) | (piece.trained ? 0 : kNotTrained));
    }
  }
  end_document(tokenizer, framed, pieces.back().trained, to);
}

// Calls visit(line, number from 1) for each line with something in it.
template <class Visit>
void for_each_line(const Chunk& chunk, const Visit& visit) {
  int64_t number = chunk.begin;
  const std::string_view bytes = chunk.bytes;
  for (size_t at = 0; at < bytes.size();) {
    const size_t end = std::min(bytes.find('\n', at), bytes.size());
    const std::string_view line = bytes.substr(at, end - at);
    at = end + 1;
    ++number;
    if (!is_blank_line(line)) visit(line, number);
  }
}

// Calls use(pieces, line) for each document of a chunk of JSON lines; counts broken lines, or
// refuses the first.
template <class Use>
int64_t for_each_document(const Chunk& chunk, const ChatTemplate* chat, bool skip_bad,
                          const Use& use) {
  int64_t bad = 0;
  for_each_line(chunk, [&](std::string_view line, int64_t number) {
    try {
      use(document_of_json(line, chat), number);
    } catch (const Error& error) {
      if (!skip_bad) {
        fail(chunk.file->path.string(), ": line ", number, ": ", error.what(),
             "; --skip-bad leaves such lines out");
      }
      ++bad;
    }
  });
  return bad;
}

}  // namespace

ChunkReader::ChunkReader(std::span<const DataFile> files, size_t chunk_bytes, bool cuts_texts)
    : files_(files), chunk_bytes_(chunk_bytes), cuts_texts_(cuts_texts) {}

std::optional<Chunk> ChunkReader::next() {
  while (at_ < files_.size()) {
    const DataFile& file = files_[at_];
    const bool lines = file.kind == DataKind::kJsonLines;
    if (!bytes_) {
      bytes_ = open_bytes(file.path);
      rest_.clear();
      begin_ = 0;
    }
    // Reads until there is a place to cut, or the end of the file.
    size_t cut = 0;
    bool ended = false;
    while (cut == 0 && !ended) {
      const size_t before = rest_.size();
      rest_.resize(before + chunk_bytes_);
      const size_t got = bytes_->read(rest_.data() + before, chunk_bytes_);
      rest_.resize(before + got);
      bytes_read_ += static_cast<int64_t>(got);
      ended = got < chunk_bytes_;
      if (lines) {
        const size_t newline = rest_.rfind('\n');
        cut = newline == rest_.npos ? 0 : newline + 1;
        if (cut == 0 && rest_.size() > kMaxLine) {
          fail(file.path.string(), ": line ", begin_ + 1, ": wanted a line of at most ", kMaxLine,
               " bytes, found no end of it");
        }
      } else if (!cuts_texts_) {
        if (rest_.size() > kMaxLine) {
          fail(file.path.string(), ": wanted a text of at most ", kMaxLine,
               " bytes, because its tokenizer takes texts whole: cut it into files, or make it a ",
               ".jsonl with a document a line");
        }
      } else {
        cut = last_cut(rest_);
        if (cut == 0 && rest_.size() >= kMaxChunks * chunk_bytes_) {
          cut = cut_between_characters(rest_);
        }
      }
    }
    if (ended) cut = rest_.size();
    Chunk chunk{.file = &file, .bytes = rest_.substr(0, cut), .begin = begin_, .ends_file = ended};
    begin_ += lines ? std::count(chunk.bytes.begin(), chunk.bytes.end(), '\n')
                    : static_cast<int64_t>(cut);
    rest_.erase(0, cut);
    if (ended) {
      bytes_.reset();
      ++at_;
    }
    return chunk;
  }
  return std::nullopt;
}

std::vector<TextPiece> document_of_json(std::string_view line, const ChatTemplate* chat) {
  const json value = parse_json(line);
  check_is_one_document(value);
  if (value.is_object() && value.contains("messages")) {
    return conversation(value["messages"], chat);
  }
  if (value.is_object() && (value.contains("prompt") || value.contains("completion"))) {
    return {{.text = text_entry(value, "prompt"), .trained = false},
            {.text = text_entry(value, "completion"), .trained = true}};
  }
  if (value.is_object() && value.contains("text")) return {{.text = text_entry(value, "text")}};
  fail("wanted {\"text\"}, {\"prompt\", \"completion\"} or {\"messages\"}, found ",
       found_in(value));
}

TokenizedChunk tokenize(const Chunk& chunk, const DocumentOptions& options) {
  TokenizedChunk made;
  const Tokenizer& tokenizer = *options.tokenizer;
  if (chunk.file->kind == DataKind::kJsonLines) {
    made.bad_lines = for_each_document(chunk, options.chat, options.skip_bad,
                                       [&](const auto& pieces, int64_t line) {
                                         add_document(pieces, tokenizer, made);
                                         if (made.lines.size() < made.ends.size())
                                           made.lines.push_back(line);
                                       });
    return made;
  }
  std::vector<int32_t> ids;
  try {
    ids = tokenizer.encode_piece(chunk.bytes, {.first = chunk.begin == 0, .last = chunk.ends_file});
  } catch (const TextError& error) {
    fail_in_file(chunk, error);
  } catch (const Error& error) {
    const std::string place =
        chunk.begin == 0 ? "" : "behind byte " + std::to_string(chunk.begin) + ": ";
    fail(chunk.file->path.string(), ": ", place, error.what());
  }
  made.bytes = static_cast<int64_t>(chunk.bytes.size());
  if (chunk.begin == 0 && !ids.empty()) begin_document(tokenizer, made);
  const auto end = tokenizer.end_of_text();
  for (const int32_t id : ids) {
    made.tokens.push_back(static_cast<uint32_t>(id));
    if (id == end) made.ends.push_back(static_cast<int64_t>(made.tokens.size()));
  }
  const auto size = static_cast<int64_t>(made.tokens.size());
  if (!chunk.ends_file || (chunk.begin == 0 && size == 0)) return made;
  if (!made.ends.empty() && made.ends.back() == size) return made;
  end_document(tokenizer, true, true, made);
  return made;
}

std::string text_to_learn_from(std::span<const DataSource> sources, const ChatTemplate* chat,
                               bool skip_bad, size_t most) {
  std::string text;
  for (const DataSource& source : sources) {
    std::vector<DataFile> texts;
    for (const DataFile& file : source.files) {
      if (file.kind != DataKind::kTokens) texts.push_back(file);
    }
    ChunkReader reader(texts);
    while (text.size() < most) {
      const auto chunk = reader.next();
      if (!chunk) break;
      if (chunk->file->kind != DataKind::kJsonLines) {
        try {
          check_utf8(chunk->bytes);
        } catch (const TextError& error) {
          fail_in_file(*chunk, error);
        }
        text += chunk->bytes;
        continue;
      }
      for_each_document(*chunk, chat, skip_bad, [&](const auto& pieces, int64_t /*line*/) {
        for (const TextPiece& piece : pieces) text += piece.text;
      });
    }
  }
  return text;
}

}  // namespace adjoint
