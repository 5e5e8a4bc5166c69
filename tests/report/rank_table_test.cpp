// What a step on a mesh sends, held to the counts that are known of data parallelism and ZeRO, and
// what the table of `adjoint plan` says of it.
#include "report/rank_table.h"

#include <gtest/gtest.h>

#include "analysis/totals.h"
#include "base/error_text.h"
#include "comm/threads.h"
#include "cost/sheet.h"
#include "device/parallel.h"
#include "report/planned.h"
#include "scheme/shards.h"

namespace adjoint {
namespace {

// A model whose q, k and v are one map, and one whose are three, which are joined.
constexpr const char* kModels[] = {"char", "llama-tiny"};

// All axes are even, so that no piece is padded.
Scheme step_of(const std::string& stack, int batch = 8, int vocab = 64,
               const std::string& preset = "char") {
  StepOptions options;
  options.on_mesh = true;
  const std::map<std::string, double> sizes = {
      {"layers", 2}, {"hidden", 32},
      {"heads", 4},  {"batch", static_cast<double>(batch)},
      {"seq", 16},   {"vocab", static_cast<double>(vocab)}};
  return build_step(elaborate_preset(preset, sizes), parse_stack(stack), options).scheme;
}

constexpr Fabric kFabric;

// Elements that a rank sends by collectives of one kind, in one dtype.
int64_t elements(const Scheme& step, Collective collective, Dtype dtype = Dtype::kF32) {
  int64_t all = 0;
  for (const Sent& row : sent_in_step(step, kFabric)) {
    if (row.collective == collective && row.dtype == dtype) all += row.elements;
  }
  return all;
}

// How many parameters' worth of elements are sent in all, in units of (n-1)/n: 1 for a gather or a
// reduce-scatter of each, 2 for an all-reduce.
double times_parameters(const Scheme& step, int ranks) {
  int64_t all = 0;
  for (const Dtype dtype : {Dtype::kF32, Dtype::kBF16}) {
    all += elements(step, Collective::kReduceScatter, dtype);
    all += elements(step, Collective::kAllGather, dtype);
  }
  return static_cast<double>(all) * ranks / (ranks - 1) / static_cast<double>(num_parameters(step));
}

// Of up to four ranks even small vectors take the fewest bytes; of more they take fewer messages.
TEST(SentElements, DataParallelSendsOneAllReduceOfEveryParameter) {
  for (const std::string model : kModels) {
    for (const int ranks : {2, 4}) {
      const std::string dp = "data_parallel(" + std::to_string(ranks) + ")";
      for (const char* rest :
           {"", " | zero(1)", " | zero(2)", " | accumulate(2)", " | checkpoint(all)",
            " | zero(2) | checkpoint(block)", " | zero(2) | -join_projections"}) {
        SCOPED_TRACE(model + ": " + dp + rest);
        const Scheme step = step_of(dp + rest, 16, 64, model);
        const int64_t parameters = num_parameters(step);
        EXPECT_EQ(elements(step, Collective::kReduceScatter) * ranks, parameters * (ranks - 1));
        EXPECT_EQ(elements(step, Collective::kAllGather) * ranks, parameters * (ranks - 1));
        EXPECT_EQ(times_parameters(step, ranks), 2);
        // Loss, count and squares of the norm are three numbers.
        EXPECT_LE(elements(step, Collective::kAllReduce), 3 * 2 * (ranks - 1));
      }
    }
  }
}

// zero(3) gathers what both passes read twice: 1.5 times an all-reduce. Biases, shifts of norms and
// the table of positions are read by the forward pass alone, so once, and so is a table of tokens
// that is no readout.
TEST(SentElements, ZeroThreeSendsHalfAsMuchMore) {
  for (const std::string model : kModels) {
    for (const int ranks : {2, 4}) {
      SCOPED_TRACE(model + ": " + std::to_string(ranks));
      const Scheme step =
          step_of("data_parallel(" + std::to_string(ranks) + ") | zero(3)", 8, 64, model);
      int64_t once = 0;
      for (const Value in : step.inputs) {
        if (step[in].role != Role::kParameter) continue;
        const std::string& path = step[in].source.path;
        const bool untied = model == "llama-tiny" && path.starts_with("wte");
        if (path.ends_with("bias") || path.starts_with("wpe") || untied) {
          once += whole_type(step[in]).num_elements();
        }
      }
      const int64_t parameters = num_parameters(step);
      ASSERT_GT(once, 0);
      EXPECT_EQ(elements(step, Collective::kReduceScatter) * ranks, parameters * (ranks - 1));
      EXPECT_EQ(elements(step, Collective::kAllGather) * ranks,
                (2 * parameters - once) * (ranks - 1));
      EXPECT_LE(elements(step, Collective::kAllReduce), 3 * 2 * (ranks - 1));
    }
    // With recomputation a block's biases are read by both passes, too. What is recomputed shares
    // its gathers with the backward pass.
    const Scheme again = step_of("data_parallel(4) | zero(3) | checkpoint(block)", 8, 64, model);
    EXPECT_GT(times_parameters(again, 4), 2.9) << model;
    EXPECT_LE(times_parameters(again, 4), 3) << model;
  }
}

// Joined maps of odd sizes, whose pieces have no segments, are gathered in 16 bits as others are.
TEST(SentElements, JoinedMapsSendWhatTheySendApart) {
  const Fabric fabric = find_device("h100").fabric;
  for (const int ranks : {2, 3, 5}) {
    for (const char* rest : {"", " | zero(1)", " | zero(2)", " | zero(3)", " | zero(3) | bf16",
                             " | zero(2) | bf16 | accumulate(2)", " | zero(3) | lora(2) | bf16"}) {
      const std::string stack = "data_parallel(" + std::to_string(ranks) + ")" + rest;
      const auto sent = [&](const std::string& text) {
        int64_t bytes = 0;
        for (const Sent& row : sent_in_step(step_of(text, 30, 65, "llama-tiny"), fabric)) {
          bytes += row.bytes.count;
        }
        return bytes;
      };
      EXPECT_LE(sent(stack), sent(stack + " | -join_projections")) << stack;
    }
  }
}

// Sums of every part of a batch are sent by itself; whole sums of all parts once.
TEST(SentElements, EveryPartCounts) {
  const Scheme once = step_of("data_parallel(4) | accumulate(2)");
  const Scheme every = step_of("data_parallel(4, reduce=part) | accumulate(2)");
  const Scheme three = step_of("data_parallel(4) | zero(3) | accumulate(2)");
  const int64_t one = elements(once, Collective::kReduceScatter);
  // The table of positions is summed over samples first, and that is summed over parts.
  EXPECT_GT(elements(every, Collective::kReduceScatter), one + 9 * one / 10);
  EXPECT_LE(elements(every, Collective::kReduceScatter), 2 * one);
  EXPECT_EQ(elements(every, Collective::kAllGather), elements(once, Collective::kAllGather));
  EXPECT_EQ(elements(three, Collective::kAllGather),
            2 * elements(step_of("data_parallel(4) | zero(3)"), Collective::kAllGather));
}

// What was cast travels as it was cast.
TEST(SentElements, TheDtypeIsSaid) {
  const Scheme step = step_of("data_parallel(4) | zero(3) | bf16");
  EXPECT_GT(elements(step, Collective::kAllGather, Dtype::kBF16),
            5 * elements(step, Collective::kAllGather, Dtype::kF32));
  EXPECT_EQ(elements(step, Collective::kReduceScatter, Dtype::kBF16), 0);
  const Scheme narrow = step_of("data_parallel(4) | zero(3) | bf16(gradients=bf16)");
  EXPECT_GT(elements(narrow, Collective::kReduceScatter, Dtype::kBF16), 0);
  const std::string table = rank_table(step, kFabric);
  EXPECT_TRUE(has(table, "all_gather       bf16")) << table;
  EXPECT_TRUE(has(table, "over data (4)")) << table;
}

TEST(RankTable, SaysWhatIsPadding) {
  const Scheme even = step_of("data_parallel(2) | zero(1)");
  EXPECT_EQ(padding_of(even).state.count, 0);
  EXPECT_EQ(padding_of(even).samples, padding_of(even).last_samples);
  // Where samples are not dealt out every rank has them all.
  for (const char* stack : {"tensor_parallel(2)", "pipeline(2)"}) {
    const Scheme all = step_of(stack, 6);
    EXPECT_EQ(padding_of(all).samples, 6) << stack;
    EXPECT_EQ(padding_of(all).last_samples, 6) << stack;
  }
  EXPECT_FALSE(has(rank_table(even, kFabric), "uneven"));
  // 7 samples are 3, 3 and 1; 65 rows of two moments are 22, 22 and 21, and 32 and 16 do not divide
  // either.
  const Scheme uneven = step_of("data_parallel(3) | zero(1)", 7, 65);
  EXPECT_EQ(padding_of(uneven).samples, 3);
  EXPECT_EQ(padding_of(uneven).last_samples, 1);
  EXPECT_GE(padding_of(uneven).state.count, 2 * 32 * 4);
  const std::string table = rank_table(uneven, kFabric);
  EXPECT_TRUE(has(table, "the last rank has 1 of the 3 samples")) << table;
  EXPECT_TRUE(has(table, "of parameters and state on the last rank are padding")) << table;
  EXPECT_EQ(rank_table(step_of(""), kFabric), "");
}

// By the sheet of the CPU, the bytes are those of the algorithms that the engine of threads
// chooses.
TEST(RankTable, BytesAreThoseThatThreadsSend) {
  const Fabric sheet = find_device("cpu").fabric;
  for (const int ranks : {2, 3, 5, 8}) {
    const Communicator world = thread_world(ranks)[0];
    for (const Collective c :
         {Collective::kAllReduce, Collective::kAllGather, Collective::kReduceScatter}) {
      for (int64_t bytes = 4; bytes < 1 << 24; bytes *= 5) {
        int64_t sent = 0;
        for (int rank = 0; rank < ranks; ++rank) {
          sent = std::max(sent, sent_bytes(make_route({.collective = c,
                                                       .algorithm = world.choice(c, bytes),
                                                       .rank = rank,
                                                       .ranks = ranks,
                                                       .whole = bytes,
                                                       .element = 4})));
        }
        EXPECT_EQ(cost_of_collective(c, {bytes}, Dtype::kF32, ranks, sheet).sent.count, sent)
            << name(c) << ", " << bytes << " bytes, " << ranks << " ranks";
      }
    }
  }
}

TEST(RankTable, OfAMeasuredRun) {
  const Scheme step = step_of("data_parallel(3) | zero(2)", 7, 65);
  const Plan plan = make_plan(step, {.threads = num_threads()});
  const std::vector<Measured> ranks = measure_ranks(step, plan, {.steps = 1});
  ASSERT_EQ(ranks.size(), 3u);
  for (const Measured& m : ranks) {
    EXPECT_EQ(m.touched, plan.arena);
    EXPECT_EQ(m.losses, ranks[0].losses);
    EXPECT_GT(seconds_in_collectives(step, plan, m).all, 0);
  }
  // One rank that does all has the same loss: ranks have their pieces of one batch.
  const Scheme alone = step_of("", 7, 65);
  const Measured one =
      measure_step(alone, make_plan(alone, {.threads = num_threads()}), {.steps = 1});
  ASSERT_EQ(one.losses.size(), ranks[0].losses.size());
  for (size_t i = 0; i < one.losses.size(); ++i) {
    EXPECT_NEAR(one.losses[i], ranks[0].losses[i], 1e-5);
  }
  const std::string table = measured_ranks_table(step, plan, ranks);
  EXPECT_TRUE(has(table, "planned for each")) << table;
  EXPECT_TRUE(has(table, "2 (measured)")) << table;
}

}  // namespace
}  // namespace adjoint
