// A chat template and lines of JSON. However the lines come in chunks, the tokens are the same.
#include <vector>

#include "data/documents.h"
#include "fuzz/fuzz_target.h"

namespace adjoint {

namespace {

TokenizedChunk all_of(const DataFile& file, const DocumentOptions& options, size_t chunk_bytes) {
  TokenizedChunk all;
  ChunkReader reader(std::span(&file, 1), chunk_bytes);
  while (const auto chunk = reader.next()) {
    const TokenizedChunk made = tokenize(*chunk, options);
    const auto before = static_cast<int64_t>(all.tokens.size());
    all.tokens.insert(all.tokens.end(), made.tokens.begin(), made.tokens.end());
    for (const int64_t end : made.ends) {
      CHECK(before + end > (all.ends.empty() ? 0 : all.ends.back()), "documents have tokens");
      all.ends.push_back(before + end);
    }
    all.bytes += made.bytes;
    all.bad_lines += made.bad_lines;
  }
  return all;
}

}  // namespace

FUZZ_TARGET(json_lines) {
  const std::filesystem::path path = fuzz_folder() / "data.jsonl";
  put_file(path, part_of(input, 1));
  const DataFile file{.path = path, .kind = DataKind::kJsonLines};
  static const auto tokenizer = make_tokenizer("byte", "");
  DocumentOptions options{.tokenizer = tokenizer.get(), .skip_bad = true};
  const auto both_ways = [&] {
    const TokenizedChunk whole = all_of(file, options, size_t{1} << 16);
    const TokenizedChunk pieces = all_of(file, options, 16);
    CHECK(whole.tokens == pieces.tokens && whole.ends == pieces.ends &&
              whole.bytes == pieces.bytes && whole.bad_lines == pieces.bad_lines,
          "chunks change nothing");
    options.skip_bad = false;
    refuse_or([&] {
      CHECK(all_of(file, options, size_t{1} << 16).tokens == whole.tokens, "no line was skipped");
    });
    options.skip_bad = true;
  };
  both_ways();
  const ChatTemplate chat("my.template", part_of(input, 0));
  options.chat = &chat;
  both_ways();
}

}  // namespace adjoint
