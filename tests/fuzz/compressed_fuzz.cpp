// g and a gzip file, or z and a zstd file: what is read of it is refused where it is broken. An
// input of another kind is the text that was compressed: cut in two chunks, it is the same text.
#include <array>

#include "data/documents.h"
#include "fuzz/fuzz_target.h"

namespace adjoint {

FUZZ_TARGET(compressed) {
  if (input.empty()) return;
  const char kind = input[0];
  const std::filesystem::path path = fuzz_folder() / (kind == 'g'   ? "a.txt.gz"
                                                      : kind == 'z' ? "a.txt.zst"
                                                                    : "a.txt");
  put_file(path, kind == 'g' || kind == 'z' ? input.substr(1) : input);
  // A small file may hold much; a reader keeps nothing of it.
  constexpr size_t kEnough = size_t{1} << 24;
  const auto bytes = open_bytes(path);
  std::array<char, 1 << 14> piece;
  size_t read = 0;
  for (size_t got = piece.size(); got == piece.size() && read < kEnough; read += got) {
    got = bytes->read(piece.data(), piece.size());
  }
  if (read >= kEnough) return;
  const DataFile file{.path = path, .kind = DataKind::kText};
  ChunkReader reader(std::span(&file, 1), 64);
  std::string text;
  while (const auto chunk = reader.next()) text += chunk->bytes;
  CHECK(text.size() == read, "chunks are the whole text");
}

}  // namespace adjoint
