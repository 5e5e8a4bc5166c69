#include "data/sentencepiece.h"

#include <sentencepiece_processor.h>

#include <nlohmann/json.hpp>

#include "base/base64.h"
#include "base/error.h"
#include "data/added_tokens.h"
#include "data/line_cuts.h"

namespace adjoint {

namespace {

constexpr std::string_view kBlankMark = "\xE2\x96\x81";  // U+2581

// Walks the messages of a protobuf: numbers and lengths alone. The library would be told of a
// truncated file by its parser, which first takes the memory that a length asks for.
class Protobuf {
 public:
  explicit Protobuf(std::string_view bytes) : rest_(bytes) {}

  struct Field {
    uint64_t number = 0;
    uint64_t value = 0;           // of a whole number
    std::string_view bytes = {};  // of a text or a message
    bool is_bytes = false;
  };
  bool at_end() const { return rest_.empty(); }
  Field next() {
    const uint64_t key = varint();
    Field field{key >> 3};
    switch (key & 7) {
      case 0:
        field.value = varint();
        break;
      case 1:
        take(8);
        break;
      case 2:
        field.bytes = take(varint());
        field.is_bytes = true;
        break;
      case 5:
        take(4);
        break;
      default:
        fail("it is not a SentencePiece model: a field has no known kind");
    }
    if (field.number == 0) fail("it is not a SentencePiece model: a field has the number 0");
    return field;
  }

 private:
  uint64_t varint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      const auto byte = static_cast<unsigned char>(take(1)[0]);
      value |= static_cast<uint64_t>(byte & 0x7F) << shift;
      if (!(byte & 0x80)) return value;
    }
    fail("it is not a SentencePiece model: a number has no end");
  }
  std::string_view take(uint64_t size) {
    if (size > rest_.size()) {
      fail("it is not a SentencePiece model, or a part of one: ", size,
           " bytes are announced where ", rest_.size(), " are left");
    }
    const std::string_view bytes = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return bytes;
  }

  std::string_view rest_;
};

// sentencepiece_model.proto
constexpr uint64_t kPieces = 1, kTrainer = 2, kNormalizer = 3, kPieceText = 1, kCharsMap = 2;
constexpr uint64_t kModelType = 3, kUnigram = 1;

// The map of characters is two tables one behind the other; the first says its own size, and the
// library follows its links without looking where they lead.
void check_chars_map(std::string_view map) {
  if (map.empty()) return;
  const auto word = [&](size_t at) {
    uint32_t value = 0;
    for (size_t i = 0; i < 4; ++i) {
      value |= static_cast<uint32_t>(static_cast<unsigned char>(map[at + i])) << (8 * i);
    }
    return value;
  };
  const size_t size = map.size() < 4 ? 0 : word(0);
  if (map.size() < 4 || size > map.size() - 4 || size % 4 != 0 || size < 1024) {
    fail("its map of characters announces another size than it has");
  }
}

void check_model(std::string_view model) {
  size_t pieces = 0;
  for (Protobuf file(model); !file.at_end();) {
    const Protobuf::Field field = file.next();
    if (!field.is_bytes) continue;
    const bool piece = field.number == kPieces;
    bool text = false;
    for (Protobuf inner(field.bytes); (piece || field.number == kNormalizer) && !inner.at_end();) {
      const Protobuf::Field part = inner.next();
      if (piece && part.number == kPieceText) {
        // The library dies of a zero, which would end a key of its trie.
        text = part.is_bytes && !part.bytes.empty() && part.bytes.find('\0') == part.bytes.npos;
      }
      if (!piece && part.number == kCharsMap && part.is_bytes) check_chars_map(part.bytes);
    }
    if (piece && !text) fail("its piece ", pieces, " has no text, or a zero in it");
    if (piece) ++pieces;
  }
  if (pieces == 0) fail("it is not a SentencePiece model: it has no pieces");
}

// Whether it weighs whole texts: then the sum of weights, and with it a choice between two that are
// nearly equal, depends on where the text began.
bool is_unigram(std::string_view model) {
  uint64_t type = kUnigram;  // unless it is said
  for (Protobuf file(model); !file.at_end();) {
    const Protobuf::Field field = file.next();
    for (Protobuf inner(field.bytes); field.number == kTrainer && !inner.at_end();) {
      const Protobuf::Field part = inner.next();
      if (part.number == kModelType && !part.is_bytes) type = part.value;
    }
  }
  return type == kUnigram;
}

class SentencePieceTokenizer : public Tokenizer {
 public:
  explicit SentencePieceTokenizer(std::string model) : model_(std::move(model)) {
    check_model(model_);
    const auto status = processor_.LoadFromSerializedProto(model_);
    if (!status.ok()) fail("it is not a SentencePiece model: ", status.ToString());
    std::vector<AddedToken> specials;
    std::vector<std::string> pieces;
    for (int id = 0; id < processor_.GetPieceSize(); ++id) {
      const std::string& piece = processor_.IdToPiece(id);
      if (!processor_.IsControl(id)) pieces.push_back(piece);
      if (processor_.IsControl(id)) {
        specials_.push_back({piece, id});
        specials.push_back({.content = piece, .id = id, .special = true});
      }
      // Whether it is told from a text's other blanks that one was put before it.
      if (!asked_ && piece.size() > kBlankMark.size() && piece.starts_with(kBlankMark)) {
        asked_ = true;
        std::string text;
        if (processor_.Decode(std::vector<int>{id}, &text).ok()) strips_ = !text.starts_with(' ');
      }
    }
    finder_ = std::make_unique<AddedFinder>(std::move(specials));
    std::string unknown;
    const int id = processor_.unk_id();
    if (id >= 0 && processor_.Decode(std::vector<int>{id}, &unknown).ok()) unknown_ = unknown;
    cuts_ = is_unigram(model_) ? LineCuts::never() : LineCuts(*this, pieces, processor_.unk_id());
  }

  std::string kind() const override { return "sentencepiece"; }
  int64_t vocab_size() const override { return processor_.GetPieceSize(); }
  std::optional<int32_t> end_of_text() const override {
    const int id = processor_.eos_id();
    return id >= 0 ? std::optional<int32_t>(id) : std::nullopt;
  }
  std::vector<SpecialToken> special_tokens() const override { return specials_; }

  std::vector<int32_t> encode(std::string_view text) const override {
    std::vector<int> ids;
    const auto status = processor_.Encode({text.data(), text.size()}, &ids);
    if (!status.ok()) fail("SentencePiece cannot encode the text: ", status.ToString());
    return ids;
  }
  std::vector<int32_t> encode_piece(std::string_view text, PieceOfText where) const override {
    return cuts_.encode(*this, text, where);
  }
  bool cuts_at_lines() const override { return cuts_.may_cut(); }
  std::vector<int32_t> encode_with_specials(std::string_view text) const override {
    std::vector<int32_t> ids;
    finder_->for_each_part(text, true, [&](std::string_view part, size_t, const AddedToken* token) {
      if (token) {
        ids.push_back(token->id);
        return;
      }
      const std::vector<int32_t> more = encode(part);
      ids.insert(ids.end(), more.begin(), more.end());
    });
    return ids;
  }

  std::string bytes_of(int32_t token, bool first) const override {
    if (token < 0 || token >= processor_.GetPieceSize()) {
      fail("token ", token, " is outside the vocabulary of ", processor_.GetPieceSize(), " tokens");
    }
    if (processor_.IsUnknown(token)) return unknown_;
    std::string piece = processor_.IdToPiece(token);
    if (processor_.IsControl(token)) return piece;
    if (processor_.IsByte(token)) {
      return {static_cast<char>(std::stoi(piece.substr(3, 2), nullptr, 16))};  // <0x0A>
    }
    if (first && strips_ && piece.starts_with(kBlankMark)) piece.erase(0, kBlankMark.size());
    for (size_t at = piece.find(kBlankMark); at != piece.npos; at = piece.find(kBlankMark, at)) {
      piece.replace(at, kBlankMark.size(), " ");
    }
    return piece;
  }

  nlohmann::json to_json() const override {
    return {{"kind", "sentencepiece"}, {"model", to_base64(model_)}};
  }

 private:
  std::string model_;
  sentencepiece::SentencePieceProcessor processor_;
  std::vector<SpecialToken> specials_;
  std::unique_ptr<AddedFinder> finder_;
  std::string unknown_;
  bool asked_ = false, strips_ = false;
  LineCuts cuts_;
};

}  // namespace

std::unique_ptr<Tokenizer> make_sentencepiece_tokenizer(std::string model) {
  return std::make_unique<SentencePieceTokenizer>(std::move(model));
}

}  // namespace adjoint
