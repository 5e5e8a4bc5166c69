// A and a shard of ours, or B and a file of nanoGPT's or llm.c's: it is refused, or gives rows
// whose ids are no larger than it says.
#include <cstring>
#include <vector>

#include "base/hash.h"
#include "data/text_rows.h"
#include "data/token_stream.h"
#include "fuzz/fuzz_target.h"

namespace adjoint {

namespace {

// A mutation would never find the hash of what it changed.
std::string with_hash(std::string_view shard) {
  constexpr size_t kHeader = 64, kHash = 56;
  std::string fixed(shard);
  if (fixed.size() < kHeader) return fixed;
  uint16_t bytes_per_token = 0;
  int64_t tokens = 0;
  std::memcpy(&bytes_per_token, &fixed[8], sizeof bytes_per_token);
  std::memcpy(&tokens, &fixed[16], sizeof tokens);
  const auto size = static_cast<size_t>(tokens) * bytes_per_token;
  if (tokens < 0 || tokens > 1 << 20 || kHeader + (size + 7) / 8 * 8 > fixed.size()) return fixed;
  uint64_t hash = hash_of(fixed.data(), kHash);
  hash = hash_of(fixed.data() + kHeader, size, hash);
  const size_t ends = kHeader + (size + 7) / 8 * 8;
  hash = hash_of(fixed.data() + ends, fixed.size() - ends, hash);
  std::memcpy(&fixed[kHash], &hash, sizeof hash);
  return fixed;
}

void read_rows(const TokenStream& stream, Packing packing) {
  using Entry = TextRows::Entry;
  constexpr int64_t kContext = 5;
  const TextRows rows(stream,
                      {.packing = packing, .begin = 0, .end = stream.size(), .context = kContext},
                      {Entry::kTokens, Entry::kTargets, Entry::kSegments});
  for (int64_t i = 0; i < std::min<int64_t>(rows.count(), 64); ++i) {
    int32_t row[3][kContext];
    std::byte* const to[] = {reinterpret_cast<std::byte*>(row[0]),
                             reinterpret_cast<std::byte*>(row[1]),
                             reinterpret_cast<std::byte*>(row[2])};
    rows.fill(i, to);
    for (int64_t k = 0; k < kContext; ++k) {
      CHECK(row[0][k] >= 0 && row[0][k] <= stream.largest(), "a token is an id");
      CHECK(row[1][k] >= -1 && row[1][k] <= stream.largest(), "a target is an id or none");
      CHECK(row[2][k] >= 0 && row[2][k] <= k, "a row has no more documents than tokens");
    }
  }
}

}  // namespace

FUZZ_TARGET(token_shard) {
  if (input.empty()) return;
  const std::filesystem::path path = fuzz_folder() / "a.bin";
  const bool ours = input[0] == 'A';
  put_file(path, ours ? with_hash(input.substr(1)) : std::string(input.substr(1)));
  TokenStream stream;
  stream.add(ours ? std::make_shared<const TokenShard>(path)
                  : std::make_shared<const TokenShard>(path, 2));
  if (stream.size() == 0) return;
  for (const Packing packing :
       {Packing::kCrops, Packing::kWindows, Packing::kDocuments, Packing::kPadded}) {
    read_rows(stream, packing);
  }
}

}  // namespace adjoint
