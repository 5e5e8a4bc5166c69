// carry_positions holds its law: positions that come a few at a time give the logits of the whole
// sequence, up to the order of sums; all at once they give the same bits.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "base/error.h"
#include "device/parallel.h"
#include "functors/carry_positions.h"
#include "functors/evaluation.h"
#include "functors/pipeline.h"
#include "models/test_models.h"
#include "run/parameters.h"
#include "train/cached_model.h"
#include "train/fed_inputs.h"

namespace adjoint {
namespace {

constexpr int64_t kBatch = 3;

// In its own small sizes.
Scheme logits_scheme(const ModelText& text) {
  const ModelConfig config{.preset = text.preset,
                           .settings = {{"batch", static_cast<double>(kBatch)}}};
  return logits_of(elaborate(parse_document(text.text, text.file), text.file, config));
}
Scheme logits_scheme(const std::string& model) { return logits_scheme(find_model(model)); }

struct Whole {
  std::vector<int32_t> tokens;  // [batch, context]
  std::vector<double> logits;   // [batch, context, vocab]
  int64_t context = 0, vocab = 0;

  std::vector<double> row(int64_t sample, int64_t position) const {
    const auto* first = logits.data() + (sample * context + position) * vocab;
    return {first, first + vocab};
  }
};

// Every position from all before it, as training sees them.
Whole whole_of(const Scheme& forward, const std::string& stack) {
  const Scheme s = evaluation_scheme(forward, parse_stack(stack), {});
  Run run(s, make_plan(s, {.threads = num_threads()}), {.poison = true});
  initialize(run, 7);
  Whole whole;
  const Value tokens = input_named(s, "tokens"), logits = s.outputs[0];
  whole.context = s[tokens].type.dim(1);
  whole.vocab = s[logits].type.dim(-1);
  std::mt19937 random(3);
  for (int64_t i = 0; i < kBatch * whole.context; ++i) {
    whole.tokens.push_back(static_cast<int32_t>(random() % 37));
  }
  for (const Value in : s.inputs) {
    if (s[in].role == Role::kInput) run.clear(in);
  }
  run.write(tokens, whole.tokens.data());
  run.step();
  whole.logits = run.values(logits);
  return whole;
}

double distance(const std::vector<float>& got, const std::vector<double>& want) {
  double difference = 0, size = 1e-3;
  for (size_t i = 0; i < want.size(); ++i) {
    difference = std::max(difference, std::abs(got[i] - want[i]));
    size = std::max(size, std::abs(want[i]));
  }
  return difference / size;
}

// Feeds every sample its tokens, `counts` at a time, sample b from position b on by itself: first
// its own first b tokens, one by one, while the others repeat theirs. The largest distance of any
// logits.
double worst_of(const Whole& whole, CachedModel& model, const std::vector<int64_t>& counts) {
  double worst = 0;
  std::vector<int32_t> at(kBatch, 0), rows(kBatch, 0);
  const auto token = [&](int64_t b, int64_t position) {
    return whole.tokens[b * whole.context + std::min(position, whole.context - 1)];
  };
  const auto step = [&](int64_t count, const std::vector<int32_t>& moves) {
    std::vector<int32_t> tokens;
    for (int64_t b = 0; b < kBatch; ++b) {
      for (int64_t i = 0; i < count; ++i) tokens.push_back(token(b, at[b] + i));
      rows[b] = static_cast<int32_t>(std::min(count - 1, whole.context - 1 - at[b]));
    }
    model.step(tokens, at, rows);
    for (int64_t b = 0; b < kBatch; ++b) {
      worst =
          std::max(worst, distance(model.logits(b, whole.vocab), whole.row(b, at[b] + rows[b])));
      at[b] += moves[b];
    }
  };
  for (int i = 0; i + 1 < kBatch; ++i) step(1, {0, i < 1, 1});
  for (size_t i = 0; *std::min_element(at.begin(), at.end()) < whole.context; ++i) {
    const int64_t count = counts[i % counts.size()];
    std::vector<int32_t> moves(kBatch);
    for (int64_t b = 0; b < kBatch; ++b) {
      moves[b] = static_cast<int32_t>(std::min(count, whole.context - at[b]));
      if (at[b] >= whole.context) at[b] = static_cast<int32_t>(whole.context - 1), moves[b] = 1;
    }
    step(count, moves);
  }
  return worst;
}

std::vector<std::string> cached_models() {
  std::vector<std::string> all = {"char"};
  for (const std::string& preset : known_presets()) {
    if (preset.ends_with("-tiny")) all.push_back(preset);
  }
  for (const char* name : kTestModels) all.push_back(test_model_file(name));
  return all;
}

class CacheLaw : public testing::TestWithParam<std::string> {};

TEST_P(CacheLaw, AFewPositionsAtATimeGiveTheWhole) {
  const Scheme forward = logits_scheme(GetParam());
  const Whole whole = whole_of(forward, "");
  CachedModel model(forward, {}, {.threads = num_threads()}, {2, 5});
  initialize(model.run(), 7);
  for (const std::vector<int64_t>& counts :
       std::vector<std::vector<int64_t>>{{1}, {5, 1, 2}, {5}}) {
    EXPECT_LT(worst_of(whole, model, counts), 2e-5) << counts.size() << " counts";
  }
}

// What the readout reads; the readout itself is of one position, and so of other products.
Scheme before_readout(Scheme forward) {
  const std::vector<int> made_by = producers(forward);
  for (Value& v = forward.outputs[0];;) {
    const Morphism& m = forward.morphisms[made_by[v]];
    const auto computed = [&](Value in) { return made_by[in] >= 0; };
    if (std::count_if(m.inputs.begin(), m.inputs.end(), computed) != 1) break;
    v = *std::find_if(m.inputs.begin(), m.inputs.end(), computed);
  }
  return without_dead(std::move(forward));
}

// Prefill of a whole sequence has the shapes of training, and so its bits.
TEST_P(CacheLaw, AllPositionsAtOnceGiveTheSameBits) {
  for (const char* stack : {"", "bf16"}) {
    const Scheme forward = before_readout(logits_scheme(GetParam()));
    const Whole whole = whole_of(forward, stack);
    CachedModel model(forward, {.stack = stack}, {.threads = num_threads()}, {whole.context});
    initialize(model.run(), 7);
    for (int32_t row = 0; row < whole.context; ++row) {
      model.step(whole.tokens, std::vector<int32_t>(kBatch, 0), std::vector<int32_t>(kBatch, row));
      for (int64_t b = 0; b < kBatch; ++b) {
        const std::vector<float> got = model.logits(b, whole.vocab);
        ASSERT_EQ(std::vector<double>(got.begin(), got.end()), whole.row(b, row))
            << "'" << stack << "' sample " << b << ", position " << row;
      }
    }
  }
}

TEST_P(CacheLaw, HoldsInBf16) {
  const Scheme forward = logits_scheme(GetParam());
  const Whole whole = whole_of(forward, "bf16");
  CachedModel model(forward, {.stack = "bf16"}, {.threads = num_threads()}, {5});
  initialize(model.run(), 7);
  EXPECT_LT(worst_of(whole, model, {5, 1}), 0.06);
}

ModelText model_of(const std::string& block) {
  return {.file = "model.scheme",
          .text =
              "axes layers=2 hidden=32 heads=4 context=16 vocab=37\n"
              "block x[batch, seq, hidden]:\n" +
              block +
              "model tokens[batch, seq], targets[batch, seq]:\n"
              "  x = block^layers(embed(tokens, vocab, name=wte))\n"
              "  logits = linear(rms_norm(x, 1e-5), vocab, bias=no, name=readout)\n"
              "  loss = cross_entropy(logits, targets)\n"};
}

// Rows of earlier positions, positions as numbers, and every option of attention.
TEST(CacheRules, EveryRuleGivesTheWhole) {
  for (const char* block :
       {"  x = x + linear(shift(x, 1, axis=1), hidden, name=a)\n",
        "  x = x + linear(shift(x, 3, axis=1, fill=0.5), hidden, name=a)\n",
        "  x = x + linear(conv(x, 4), hidden, name=a)\n",
        "  x = x + sin(0.1*index(x, 1))*linear(x, hidden, name=a)\n",
        "  x = x + linear(attention(linear(x, 3*hidden, name=qkv), heads, alibi=yes), hidden, "
        "name=o)\n",
        "  s = param(heads, init=normal(1))\n"
        "  b = param(heads, 5, init=normal(1))\n"
        "  x = x + linear(attention(linear(x, 3*hidden, name=qkv), heads, window=6, cap=2, bias=b, "
        "sinks=s), hidden, name=o)\n"}) {
    const Scheme forward = logits_scheme(model_of(block));
    const Whole whole = whole_of(forward, "");
    CachedModel model(forward, {}, {.threads = num_threads()}, {2, 5});
    initialize(model.run(), 7);
    for (const std::vector<int64_t>& counts :
         std::vector<std::vector<int64_t>>{{1}, {5, 1, 2}, {5}}) {
      EXPECT_LT(worst_of(whole, model, counts), 2e-5) << block;
    }
  }
}

// A step of one token multiplies codes, and one of several tokens the numbers that they stand for.
TEST(CacheRules, CodesAreMultipliedAsTheyAre) {
  for (const auto& [stack, tolerance] : {std::pair("quantize(int8, group=16)", 1e-5),
                                         {"quantize(int8, per=channel)", 1e-5},
                                         {"quantize(int8, per=tensor)", 1e-5},
                                         {"quantize(int8, group=16) | bf16", 0.05},
                                         {"quantize(int4, group=16)", 1e-5}}) {
    for (const char* name : {"char", "llama-tiny"}) {
      CachedModel model(logits_scheme(name), {.stack = stack}, {.threads = num_threads()}, {4},
                        /*all_frozen=*/true);
      initialize(model.run(), 7);
      const std::string_view text = stack;
      const Scheme& one = model.one().scheme();
      for (const Morphism& m : one.morphisms) {
        if (!op_named(m.op).decodes || text.find("int8") == text.npos) continue;
        EXPECT_LE(one[m.outputs[0]].type.num_elements(), kBatch * 128) << stack << print(one);
      }
      const std::vector<int32_t> tokens = {3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8};
      const std::vector<int32_t> begin(kBatch, 0);
      model.step(tokens, begin, std::vector<int32_t>(kBatch, 3));
      std::vector<std::vector<float>> want;
      for (int64_t b = 0; b < kBatch; ++b) want.push_back(model.logits(b, 37));
      for (int32_t i = 0; i < 4; ++i) {
        std::vector<int32_t> next;
        for (int64_t b = 0; b < kBatch; ++b) next.push_back(tokens[b * 4 + i]);
        model.step(next, std::vector<int32_t>(kBatch, i), begin);
      }
      for (int64_t b = 0; b < kBatch; ++b) {
        const std::vector<double> whole(want[b].begin(), want[b].end());
        EXPECT_LT(distance(model.logits(b, 37), whole), tolerance) << stack << " of " << name;
      }
    }
  }
}

TEST(CacheRules, RefusesByNameWhatHasNoRule) {
  const auto complaint = [](const char* block) -> std::string {
    try {
      carry_positions(logits_scheme(model_of(block)), 2);
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  };
  const std::pair<const char*, const char*> cases[] = {
      {"  x = x + shift(x, -1)\n",
       "pad: only rows before the first position can be earlier positions (at block[0]."},
      {"  x = x + linear(attention(linear(x, 3*hidden, name=a), heads, causal=no), hidden, "
       "name=o)\n",
       "attention: its queries see later keys, too (at block[0]."},
      {"  x = x + transpose(softmax(transpose(x)))\n",
       ": needs all positions at once, and has no rule for a few of them"},
      {"  p = param(seq, hidden)\n  x = x + p\n",
       ": pairs positions with the axis seq of 'block[0].p"},
      {"  x = x + transpose(linear(transpose(x), seq, bias=no, name=mix))\n",
       ": pairs positions with the axis seq of 'block[0].mix.weight'"},
      {"  x = x + transpose(sum(transpose(x), keep))\n", ": needs all positions at once"}};
  for (const auto& [block, want] : cases) {
    EXPECT_NE(complaint(block).find(want), std::string::npos) << block << complaint(block);
  }
}

INSTANTIATE_TEST_SUITE_P(All, CacheLaw, testing::ValuesIn(cached_models()), [](const auto& info) {
  std::string name = info.param.substr(info.param.rfind('/') + 1);
  if (info.param.find('/') != std::string::npos) name = "test_" + name;
  std::replace_if(
      name.begin(), name.end(), [](char c) { return !std::isalnum(c); }, '_');
  return name;
});

}  // namespace
}  // namespace adjoint
