#include <algorithm>
#include <bit>

#include "body/facts.h"
#include "kernels/body_readings.h"
#include "kernels/cuda/codegen/body.h"
#include "ops/few_rows.h"

namespace adjoint {

namespace {

constexpr int64_t kMostChunks = 4;      // of a thread, in registers
constexpr int64_t kMostThreads = 1024;  // of a block
constexpr int64_t kTile = 32;           // threads that share a tile
// Sums are shared out so that one wave of blocks does them: 1056 warps with long rows, eight on
// each of 132 multiprocessors, or four times as many with tiles of them.
constexpr int64_t kMostBlocks = 1056;  // of rows; twice as many of short ones
constexpr int64_t kShortRow = 512;     // elements
// Elements of one result's partial sums, at most: rows of 2048 still have all the blocks.
constexpr int64_t kSumElements = kMostBlocks * 2048;
constexpr int64_t kSumBatch = 4;  // rows that are read at a time
// Where a block for each row leaves multiprocessors idle, and a call says that its sums may depend
// on that (ops/few_rows.h), so many threads share a row: it takes one latency of the memory instead
// of several.
constexpr int64_t kThreadsOfFewRows = 256;

}  // namespace

Bytes CudaCut::workspace() const {
  Bytes bytes{0};
  for (size_t k = 0; k < partial_size.size(); ++k) {
    if (partial_size[k] > 0) bytes += partial_bytes(k);
  }
  return bytes;
}

CudaCut cut_for_cuda(const KernelCall& call, bool wide) {
  CudaCut cut{.space = space_layout(call), .in_types = call.call.inputs, .out_types = call.outputs};
  cut.wide = wide || std::any_of(call.outputs.begin(), call.outputs.end(),
                                 [](const Type& t) { return t.dtype == Dtype::kF64; });
  const BodySpace& s = cut.space;
  cut.whole = s.body.needs_whole_rows();
  const int64_t row_chunks = (s.row() + kChunk - 1) / kChunk;
  // Of a short row every thread has one chunk; of a long one, as many as registers hold.
  const auto ceil = [](int64_t n) {
    return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(n)));
  };
  cut.group = ceil(row_chunks);
  if (cut.group > kTile && !cut.whole) {
    cut.group = kTile;
    cut.tiles = (row_chunks + kTile - 1) / kTile;
  } else if (cut.group > kTile) {
    cut.group = std::clamp(ceil((row_chunks + kMostChunks - 1) / kMostChunks), kTile, kMostThreads);
    if (call.call.integer(kFewRows, 0)) {
      cut.group = std::max(cut.group, std::min(ceil(row_chunks), kThreadsOfFewRows));
    }
    cut.chunks = (row_chunks + cut.group - 1) / cut.group;
    cut.loops = cut.chunks > kMostChunks;
  }
  if (s.sums) {
    const int64_t suffix = s.suffix_rows() * s.row();
    const auto share = [](int64_t rows, int64_t blocks) { return (rows + blocks - 1) / blocks; };
    const int64_t most = std::clamp<int64_t>(share(s.summed_rows, kSumBatch), 1,
                                             kMostBlocks * (suffix < kShortRow ? 2 : 1));
    const int64_t wanted = std::clamp<int64_t>(kSumElements / suffix, 1, most);
    cut.block_rows =
        std::max<int64_t>(1, share(share(s.summed_rows, wanted), kSumBatch)) * kSumBatch;
    cut.blocks = std::max<int64_t>(1, share(s.summed_rows, cut.block_rows));
  }
  for (size_t k = 0; k < s.body.outputs.size(); ++k) {
    const BodyOutput& out = s.body.outputs[k];
    const bool row = out.row == BodyOutput::Row::kWhole;
    cut.partial_size.push_back(!is_sum(out) ? 0 : s.suffix_rows() * (row ? s.row() : 1));
  }
  return cut;
}

std::vector<bool> whole_chunks(const CudaCut& cut, const std::vector<Strides>& strides,
                               const std::vector<Type>& types,
                               const std::vector<const void*>& places) {
  std::vector<bool> fits;
  for (size_t i = 0; i < strides.size(); ++i) {
    bool even = cut.space.row() % kChunk == 0 && strides[i].back() == 1;
    for (size_t a = 0; a + 1 < strides[i].size(); ++a) even = even && strides[i][a] % kChunk == 0;
    const int64_t bytes = std::min<int64_t>(16, kChunk * size_of(types[i].dtype).count);
    fits.push_back(even && reinterpret_cast<uintptr_t>(places[i]) % bytes == 0);
  }
  return fits;
}

Bytes body_cuda_workspace(const KernelCall& call) { return cut_for_cuda(call, false).workspace(); }

}  // namespace adjoint
