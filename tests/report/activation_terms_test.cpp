// The bytes that a block keeps for its backward pass, term by term: the sum that follows from the
// shapes must be what plans hold, and each term stands beside the one that Korthikanti et al.
// (2022, sections 4.1 and 4.2) count for the same tensor. docs/rank_accounts.md has the table that
// is made here.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "base/error_text.h"
#include "base/file.h"
#include "base/text.h"
#include "report/keep_sums.h"
#include "report/planned.h"
#include "report/timeline.h"

namespace adjoint {
namespace {

// s, b, h and a of the paper; t is the number of ranks.
struct Sizes {
  int64_t s, b, h, a, t;
};
constexpr Sizes kPaper = {.s = 2048, .b = 4, .h = 6144, .a = 64, .t = 8};  // its 22 B model
constexpr Sizes kSmall = {.s = 48, .b = 3, .h = 96, .a = 6, .t = 3};

// How ranks share a tensor. With sequence parallelism what is between the maps is in shards.
enum class Share : uint8_t { kWhole, kShard };
enum class Sequence : uint8_t { kNo, kYes, kShards };
struct Ways {
  bool tensor = false;
  Sequence sequence = Sequence::kNo;
};

// A formula in bytes for each element of a state, as the paper writes them: "8 + 24/t + 4a/(ht)".
double value(const std::string& formula, const Sizes& z) {
  const auto s = static_cast<double>(z.s), h = static_cast<double>(z.h),
             a = static_cast<double>(z.a), t = static_cast<double>(z.t);
  const std::map<std::string, double> factors = {
      {"", 1},        {"/t", 1 / t},        {"as/h", a * s / h}, {"as/(ht)", a * s / h / t},
      {"a/h", a / h}, {"a/(ht)", a / h / t}};
  double sum = 0;
  for (size_t begin = 0; begin < formula.size();) {
    const size_t end = std::min(formula.find(" + ", begin), formula.size());
    const std::string term = formula.substr(begin, end - begin);
    size_t digits = 0;
    const double number = std::stod(term, &digits);
    sum += number * factors.at(term.substr(digits));
    begin = end + 3;
  }
  return sum;
}

// A tensor that a block may keep: what the paper counts for it, what we store, and how ranks share
// it.
struct Tensor {
  const char *name, *published, *ours;
  Share (*shared)(const Ways&);
};

// Between the maps around attention or inside the feed-forward: by heads or width.
Share inside(const Ways& ways) { return ways.tensor ? Share::kShard : Share::kWhole; }
// Between an output map and the next input map: by positions, where these are split.
Share between(const Ways& ways) {
  return ways.sequence == Sequence::kNo ? Share::kWhole : Share::kShard;
}
// What an input map reads: gathered, and kept so unless only shards are.
Share read(const Ways& ways) {
  return ways.sequence == Sequence::kShards ? Share::kShard : Share::kWhole;
}

enum Which : uint8_t {
  kNorm1In,
  kQkvIn,
  kQk,
  kV,
  kSoftmax,
  kProjIn,
  kMask1,
  kNorm2In,
  kUpIn,
  kGeluIn,
  kDownIn,
  kMask2
};
constexpr Tensor kTensors[] = {
    {"input of the first norm: the state", "2", "2", between},
    {"input of the map to Q, K and V", "2", "2", read},
    {"Q and K", "4", "4", inside},
    {"V", "2", "2", inside},
    {"softmax, its mask, what dropout leaves of it", "5as/h", "4a/h", inside},
    {"input of the output map", "2", "2", inside},
    {"mask of the dropout behind it", "1", "0", between},
    {"input of the second norm", "2", "2", between},
    {"input of the feed-forward's first map", "2", "2", read},
    {"input of GELU", "8", "8", inside},
    {"input of the feed-forward's second map", "8", "8", inside},
    {"mask of the dropout behind it", "1", "0", between},
};

double in_bytes(const Sizes& z, double per_element) {
  return per_element * static_cast<double>(z.s * z.b * z.h);
}

// Bytes of what is kept, where `recomputed` is not.
struct Sums {
  double published = 0, ours = 0;
};
Sums sum_of(const Sizes& z, const Ways& ways, const std::set<Which>& recomputed) {
  Sums sums;
  for (size_t i = 0; i < std::size(kTensors); ++i) {
    const Tensor& tensor = kTensors[i];
    if (recomputed.count(static_cast<Which>(i))) continue;
    const double share = tensor.shared(ways) == Share::kShard ? static_cast<double>(z.t) : 1.0;
    sums.published += in_bytes(z, value(tensor.published, z)) / share;
    sums.ours += in_bytes(z, value(tensor.ours, z)) / share;
  }
  return sums;
}

// Bytes of activations of the second of three blocks that are alive when the last block's forward
// pass is done. A block's state is what it gives to the next.
int64_t planned_bytes(const Sizes& z, const Stack& stack, double dropout = 0) {
  StepOptions options;
  options.on_mesh = true;
  const auto number = [](int64_t n) { return static_cast<double>(n); };
  const std::map<std::string, double> sizes = {{"layers", 3},
                                               {"hidden", number(z.h)},
                                               {"heads", number(z.a)},
                                               {"batch", number(z.b)},
                                               {"seq", number(z.s)},
                                               {"context", number(z.s)},
                                               {"vocab", number(z.t * 32)},
                                               {"dropout", dropout}};
  const Scheme step = build_step(elaborate_preset("char", sizes), stack, options).scheme;
  const Plan plan = make_plan(step, {.threads = 1});
  int end = 0;
  for (size_t at = 0; at < plan.calls.size(); ++at) {
    const Morphism& m = step.morphisms[plan.calls[at].morphism];
    if (m.phase == Phase::kForward && m.epoch == 0 && !block_of(m.source).empty()) {
      end = static_cast<int>(at) + 1;
    }
  }
  int64_t bytes = 0;
  for (const Alive& alive : plan.alive_at(end)) {
    const Value v = alive.tenant.object;
    if (v < 0 || alive.tenant.category != Category::kActivations) continue;
    if (block_of(step[v].source) == "block[1]") bytes += alive.tenant.size.count;
  }
  return bytes;
}

struct Row {
  const char* name;     // as in table 2 of the paper
  const char* formula;  // published
  const char* stack;    // beside bf16; {t} is the number of ranks
  const char* ours;     // the formula
  Ways ways = {};
  std::set<Which> theirs = {}, recomputed = {};  // what they recompute; what we do
};

const std::set<Which> kAllBut = {kQkvIn,   kQk,   kV,      kSoftmax, kProjIn, kMask1,
                                 kNorm2In, kUpIn, kGeluIn, kDownIn,  kMask2};

std::vector<Row> rows() {
  const Ways tensor = {.tensor = true};
  const Ways yes = {.tensor = true, .sequence = Sequence::kYes};
  const Ways shards = {.tensor = true, .sequence = Sequence::kShards};
  const std::set<Which> core = {kSoftmax}, attention = {kSoftmax, kProjIn};
  const std::set<Which> cheap = {kQkvIn, kUpIn, kDownIn};
  return {
      {"no parallelism", "34 + 5as/h", "-recompute_cheap", "32 + 4a/h"},
      {"tensor", "10 + 24/t + 5as/(ht)", "-recompute_cheap | tensor_parallel({t})",
       "8 + 24/t + 4a/(ht)", tensor},
      {"tensor and sequence", "34/t + 5as/(ht)",
       "-recompute_cheap | tensor_parallel({t}, sequence=shards)", "32/t + 4a/(ht)", shards},
      {"the same, gathered inputs kept", "",
       "-recompute_cheap | tensor_parallel({t}, sequence=yes)", "4 + 28/t + 4a/(ht)", yes},
      {"tensor, selective", "10 + 24/t",
       "-recompute_cheap | tensor_parallel({t}) | checkpoint(selective)", "8 + 22/t", tensor, core,
       attention},
      {"tensor and sequence, selective", "34/t",
       "-recompute_cheap | tensor_parallel({t}, sequence=shards) | checkpoint(selective)", "30/t",
       shards, core, attention},
      {"full", "2", "checkpoint(block)", "2", {}, kAllBut, kAllBut},
      {"full, tensor", "2", "tensor_parallel({t}) | checkpoint(block)", "2", tensor, kAllBut,
       kAllBut},
      {"full, tensor and sequence", "", "tensor_parallel({t}, sequence=yes) | checkpoint(block)",
       "2/t", yes, kAllBut, kAllBut},
      {"our default", "", "", "20 + 4a/h", {}, {}, cheap},
      {"our default, tensor", "", "tensor_parallel({t})", "4 + 16/t + 4a/(ht)", tensor, {}, cheap},
      {"our default, tensor and sequence",
       "",
       "tensor_parallel({t}, sequence=yes)",
       "4 + 20/t + 4a/(ht)",
       yes,
       {},
       {kDownIn}},
      {"our default, only shards kept",
       "",
       "tensor_parallel({t}, sequence=shards)",
       "24/t + 4a/(ht)",
       shards,
       {},
       {kDownIn}},
  };
}

std::string stack_of(const Row& row, const Sizes& z) {
  std::string stack = row.stack;
  if (const size_t at = stack.find("{t}"); at != std::string::npos) {
    stack.replace(at, 3, std::to_string(z.t));
  }
  return stack.empty() ? "bf16" : "bf16 | " + stack;
}

// The terms above are the whole account: they add up to the formulas of the paper's table 2, and to
// ours.
TEST(ActivationTerms, AddUpToTheFormulas) {
  for (const Sizes& z : {kPaper, kSmall}) {
    for (const Row& row : rows()) {
      if (*row.formula) {
        EXPECT_NEAR(sum_of(z, row.ways, row.theirs).published / in_bytes(z, value(row.formula, z)),
                    1, 1e-12)
            << row.name;
      }
      EXPECT_NEAR(sum_of(z, row.ways, row.recomputed).ours / in_bytes(z, value(row.ours, z)), 1,
                  1e-12)
          << row.name;
    }
  }
}

TEST(ActivationTerms, OursAreWhatPlansHold) {
  for (const Sizes& z : {kPaper, kSmall}) {
    for (const Row& row : rows()) {
      // A default takes what is cheap at these sizes; a small model's products are short.
      std::string stack = stack_of(row, z);
      if (z.h == kSmall.h && !has(stack, "recompute_cheap"))
        stack += " | recompute_cheap(within=1)";
      EXPECT_EQ(static_cast<double>(planned_bytes(z, parse_stack(stack))),
                sum_of(z, row.ways, row.recomputed).ours)
          << row.name << ": " << stack;
    }
  }
}

// Masks are drawn again, from the seed and the element's place.
TEST(ActivationTerms, DropoutKeepsNothing) {
  for (const char* stack : {"bf16 | -recompute_cheap", "bf16 | checkpoint(block)"}) {
    const Stack parsed = parse_stack(stack);
    EXPECT_EQ(planned_bytes(kSmall, parsed, 0.1), planned_bytes(kSmall, parsed)) << stack;
  }
}

// Who keeps the sum over ranks of attention's output map keeps one state more than its block's.
TEST(ActivationTerms, KeptSumsAreAStateEach) {
  const double state = in_bytes(kSmall, 2);
  const std::string parallel = "bf16 | tensor_parallel(3)";
  EXPECT_EQ(planned_bytes(kSmall, with_kept_sums(parallel)), 2 * state);
  EXPECT_EQ(planned_bytes(kSmall, parse_stack(parallel + " | checkpoint(block)")), state);
}

std::string gigabytes(double bytes) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3f", bytes / 1e9);
  return text;
}

// The document's rows are these; what is missing is printed.
TEST(ActivationTerms, AreInTheDocument) {
  const std::string page = read_file(std::string(SOURCE_DIR) + "/docs/rank_accounts.md");
  const auto expect = [&](const std::vector<std::string>& cells) {
    const std::string line = "| " + join(cells, " | ") + " |\n";
    EXPECT_TRUE(has(page, line)) << line;
  };
  for (const Tensor& tensor : kTensors) {
    const char* split = tensor.shared == inside    ? "t"
                        : tensor.shared == between ? "1, with sequence t"
                                                   : "1, with shards t";
    expect({tensor.name, tensor.published, tensor.ours, split});
  }
  for (const Row& row : rows()) {
    const bool theirs = *row.formula != 0;
    const double published = sum_of(kPaper, row.ways, row.theirs).published;
    std::string stack;
    for (const char c : stack_of(row, kPaper)) stack += c == '|' ? "\\|" : std::string(1, c);
    expect({row.name, row.formula, theirs ? gigabytes(published) : "", "`" + stack + "`", row.ours,
            gigabytes(sum_of(kPaper, row.ways, row.recomputed).ours)});
  }
}

}  // namespace
}  // namespace adjoint
