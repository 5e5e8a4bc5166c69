// The documents of text and JSON lines, in pieces that are tokenized one by one, on any thread:
//
//   {"text": "..."}                                        all of it is trained
//   {"prompt": "...", "completion": "..."}                 the completion is trained
//   {"messages": [{"role": "...", "content": "..."}, ..]}  what the assistant says is trained
//
// A message may say "weight": 0 or "train": false; then nothing of it is trained.
//
// A text file is one document. Its pieces end where a line does and the next begins with a word,
// and are encoded as pieces, so the tokens are those of the whole text.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "data/byte_reader.h"
#include "data/chat_template.h"
#include "data/source.h"
#include "data/tokenizer.h"

namespace adjoint {

// As many bytes of a file as one thread tokenizes at a time.
struct Chunk {
  const DataFile* file = nullptr;
  std::string bytes;      // whole lines of JSON, or a piece of a text
  int64_t begin = 0;      // where in the file they begin: a line from 0, or a byte of a text
  bool ends_file = true;  // the file has no more chunks
};

// The chunks of files, one after another. The cuts depend on nothing but the files.
class ChunkReader {
 public:
  static constexpr size_t kUsualChunk = size_t{1} << 20;

  // The files must outlive this and the chunks. Texts that may not be cut are one chunk each.
  explicit ChunkReader(std::span<const DataFile> files, size_t chunk_bytes = kUsualChunk,
                       bool cuts_texts = true);
  std::optional<Chunk> next();
  int64_t bytes_read() const { return bytes_read_; }  // as they are when they are not compressed

 private:
  std::span<const DataFile> files_;
  size_t chunk_bytes_, at_ = 0;
  bool cuts_texts_;
  std::unique_ptr<ByteReader> bytes_;   // of files_[at_], once it is open
  std::string rest_;                    // was read and not given yet
  int64_t begin_ = 0, bytes_read_ = 0;  // begin_ is rest_'s
};

// A line of JSON as a document. An Error says what was wanted and found; `chat` may be null.
std::vector<TextPiece> document_of_json(std::string_view line, const ChatTemplate* chat);

// How documents become tokens.
struct DocumentOptions {
  const Tokenizer* tokenizer = nullptr;
  const ChatTemplate* chat = nullptr;  // of messages; null: they are refused
  bool skip_bad = false;               // lines of JSON that are broken are counted and left out
};

constexpr uint32_t kNotTrained = uint32_t{1} << 31;  // a bit of a token, beside its id

struct TokenizedChunk {
  std::vector<uint32_t> tokens;  // ids, with kNotTrained where the model does not write it
  std::vector<int64_t> ends;     // in tokens of this chunk: behind the last one of a document
  std::vector<int64_t> lines;    // of JSON lines: for each end, the document's line, from 1
  int64_t bytes = 0;             // of text that is trained
  int64_t bad_lines = 0;
};
TokenizedChunk tokenize(const Chunk& chunk, const DocumentOptions& options);

// The text of documents up to about `most` bytes, for a tokenizer to learn from.
std::string text_to_learn_from(std::span<const DataSource> sources, const ChatTemplate* chat,
                               bool skip_bad, size_t most);

}  // namespace adjoint
