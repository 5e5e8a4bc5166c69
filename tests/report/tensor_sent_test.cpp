// What a rank of tensor_parallel sends in a step, held to the known counts (Shoeybi et al., 2019;
// Korthikanti et al., 2022): four all-reduces of a state for each block, as many bytes where
// positions are split beside, and what recomputation adds. Everything is counted: what a block
// sends, and what the rest of the step sends.
#include <gtest/gtest.h>

#include "cost/collective.h"
#include "report/keep_sums.h"
#include "report/planned.h"
#include "scheme/shards.h"

namespace adjoint {
namespace {

constexpr int64_t kBatch = 8, kSeq = 32, kHidden = 128, kVocab = 64, kContext = 64;
constexpr int64_t kState = kBatch * kSeq * kHidden;  // elements
constexpr Fabric kFabric;

Scheme step_of(const Stack& stack, int layers) {
  StepOptions options;
  options.on_mesh = true;
  const std::map<std::string, double> sizes = {
      {"layers", layers}, {"hidden", kHidden}, {"heads", 4},          {"batch", kBatch},
      {"seq", kSeq},      {"vocab", kVocab},   {"context", kContext},
  };
  return build_step(elaborate_preset("char", sizes), stack, options).scheme;
}

// Elements that a rank sends, by collective and dtype.
using Counts = std::map<std::pair<Collective, Dtype>, int64_t>;

Counts sent(const Scheme& step) {
  Counts counts;
  for (const Sent& row : sent_in_step(step, kFabric)) {
    EXPECT_EQ(row.mesh_axis, "tensor");
    counts[{row.collective, row.dtype}] += row.elements;
  }
  return counts;
}

struct SentBy {
  Counts block, rest;  // one block; all that is outside of blocks
};

SentBy counted(const Stack& stack) {
  constexpr int kLayers = 2, kMore = 4;
  SentBy by;
  by.rest = sent(step_of(stack, kLayers));
  for (const auto& [what, elements] : sent(step_of(stack, kMore))) {
    const int64_t more = elements - by.rest[what];
    EXPECT_EQ(more % (kMore - kLayers), 0);
    by.block[what] = more / (kMore - kLayers);
    by.rest[what] -= kLayers * by.block[what];
  }
  for (Counts* counts : {&by.block, &by.rest}) {
    std::erase_if(*counts, [](const auto& entry) { return entry.second == 0; });
  }
  return by;
}
SentBy counted(const std::string& stack) { return counted(parse_stack(stack)); }

// Of `elements` in all, which `ranks` have in pieces, what a rank sends: to gather them, or to add
// up its piece. An all-reduce is both.
int64_t once(int64_t elements, int ranks) { return elements * (ranks - 1) / ranks; }
// A single number has no pieces: every rank adds up the terms of all, in their order.
int64_t numbers(int64_t count, int ranks) { return count * (ranks - 1); }

constexpr auto kSum = std::pair(Collective::kAllReduce, Dtype::kF32);
constexpr auto kGather = std::pair(Collective::kAllGather, Dtype::kF32);
constexpr auto kScatter = std::pair(Collective::kReduceScatter, Dtype::kF32);
constexpr auto kSum16 = std::pair(Collective::kAllReduce, Dtype::kBF16);
constexpr auto kGather16 = std::pair(Collective::kAllGather, Dtype::kBF16);
constexpr auto kScatter16 = std::pair(Collective::kReduceScatter, Dtype::kBF16);

std::string parallel(int ranks, const std::string& rest = "") {
  return "tensor_parallel(" + std::to_string(ranks) + rest + ")";
}

// Of a block, the squares of the gradients of four matrices and of the biases of qkv and up, for
// the norm of the gradient.
constexpr int64_t kCut = 6;
// The gradients of two norms' weights and biases and of the biases of proj and down, which are sums
// over positions.
constexpr int64_t kVectors = 6 * kHidden;
// The loss over classes in pieces: of each row a rank's log-sum, and the target's logit.
int64_t of_loss(int ranks) { return (ranks - 1) * 2 * kBatch * kSeq; }

TEST(SentElements, TensorParallelSendsFourAllReducesABlock) {
  for (const int ranks : {2, 4}) {
    for (const char* rest : {"", " | checkpoint(selective)", " | recompute([attention])",
                             " | recompute([attention, feed_forward])"}) {
      SCOPED_TRACE(parallel(ranks) + rest);
      const SentBy by = counted(parallel(ranks) + rest);
      EXPECT_EQ(by.block, (Counts{{kSum, 4 * 2 * once(kState, ranks) + numbers(kCut, ranks)}}));
      // The embedding's rows, the gradient of what the readout reads, and the table's squares.
      EXPECT_EQ(by.rest, (Counts{{kSum, 2 * 2 * once(kState, ranks) + numbers(1, ranks)},
                                 {kGather, of_loss(ranks)}}));
    }
  }
}

// The same sums are a reduce-scatter before a norm and a gather behind it. Where the gathered
// inputs of maps are kept, that is exactly as much; where only shards are, two gathers a block
// more.
TEST(SentElements, SequenceParallelismSendsAsMuchOrAQuarterMore) {
  for (const int ranks : {2, 4}) {
    SCOPED_TRACE(ranks);
    const int64_t state = once(kState, ranks), vectors = once(kVectors, ranks);
    const int64_t norm = once(2 * kHidden, ranks);
    const int64_t tokens = once(kVocab * kHidden, ranks);
    const int64_t positions = once(kContext * kHidden, ranks);
    const SentBy kept = counted(parallel(ranks, ", sequence=yes"));
    EXPECT_EQ(kept.block,
              (Counts{{kGather, 4 * state + vectors}, {kScatter, 4 * state + vectors}}));
    // Outside: the embedding's rows and the gradient of what the readout reads are scattered, what
    // it reads is gathered; and sums over positions are the gradients of the last norm, of the
    // table of positions, and of the table of tokens, whose pieces stay where they are.
    const Counts rest = {{kScatter, 2 * state + norm + positions + tokens},
                         {kGather, state + norm + positions + of_loss(ranks)},
                         {kSum, numbers(1, ranks)}};
    EXPECT_EQ(kept.rest, rest);

    SentBy shards = counted(parallel(ranks, ", sequence=shards"));
    const int64_t four = 4 * 2 * state, five = shards.block[kGather] + shards.block[kScatter];
    EXPECT_EQ(five - 2 * vectors, four + four / 4);
    shards.block[kGather] -= 2 * state;
    EXPECT_EQ(shards.block, kept.block);
    shards.rest[kGather] -= state;  // what the readout reads
    EXPECT_EQ(shards.rest, kept.rest);
  }
}

// States travel as they are stored; squares, losses and gradients of parameters stay float32.
TEST(SentElements, StatesTravelIn16BitsWhereTheyAre) {
  const int ranks = 2;
  const int64_t state = once(kState, ranks), vectors = once(kVectors, ranks);
  EXPECT_EQ(counted("bf16 | " + parallel(ranks)).block,
            (Counts{{kSum16, 4 * 2 * state}, {kSum, kCut}}));
  EXPECT_EQ(counted("bf16 | " + parallel(ranks, ", sequence=yes")).block,
            (Counts{{kGather16, 4 * state},
                    {kScatter16, 4 * state},
                    {kGather, vectors},
                    {kScatter, vectors}}));
}

// A recomputed block makes its sums again. Published are two more for each block, six in all. We
// make one less for each segment: the last one makes the state that the next segment begins with,
// which is kept, so nothing of the backward pass reads it.
TEST(SentElements, RecomputedSumsAreMadeAgain) {
  for (const int ranks : {2, 4}) {
    const int64_t all_reduce = 2 * once(kState, ranks), squares = numbers(kCut, ranks);
    EXPECT_EQ(counted(parallel(ranks) + " | checkpoint(block)").block,
              (Counts{{kSum, (6 - 1) * all_reduce + squares}}));
    EXPECT_EQ(counted(parallel(ranks) + " | checkpoint(2)").block,
              (Counts{{kSum, (2 * 6 - 1) * all_reduce / 2 + squares}}));
    const int64_t state = once(kState, ranks), vectors = once(kVectors, ranks);
    EXPECT_EQ(counted(parallel(ranks, ", sequence=yes") + " | checkpoint(block)").block,
              (Counts{{kGather, 6 * state + vectors}, {kScatter, (6 - 1) * state + vectors}}));
  }
}

// Who would rather keep the sums says so, and sends four again.
TEST(SentElements, SumsThatAreSaidToBeKeptAreNot) {
  const Stack stack = with_kept_sums(parallel(2));
  EXPECT_EQ(counted(stack).block, (Counts{{kSum, 4 * 2 * once(kState, 2) + kCut}}));
}

// Parameters lie as their readers want them, also where those read a 16-bit copy.
TEST(SentElements, CopiesOfParametersLieAsTheParametersDo) {
  const auto placed = [](const std::string& stack) {
    std::map<std::string, std::string> types;
    const Scheme step = step_of(parse_stack(stack), 2);
    for (const Value in : step.inputs) {
      if (step[in].role == Role::kParameter) {
        types[to_string(step[in].source)] = to_string(step[in].type);
      }
    }
    return types;
  };
  const auto plain = placed("tensor_parallel(2)");
  EXPECT_EQ(plain.at("block[0].down.weight"), "f32[hidden=128, ffn=256]");
  for (const char* rest : {"bf16", "fp16", "bf16 | checkpoint(block)"}) {
    EXPECT_EQ(placed(std::string("tensor_parallel(2) | ") + rest), plain) << rest;
    EXPECT_EQ(placed(std::string("tensor_parallel(2, sequence=yes) | ") + rest), plain) << rest;
  }
}

}  // namespace
}  // namespace adjoint
