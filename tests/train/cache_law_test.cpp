// carry_positions holds its law: positions that come a few at a time give the logits of the whole
// sequence, up to the order of sums; all at once they give the same bits.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

#include "base/error.h"
#include "device/parallel.h"
#include "functors/carry_positions.h"
#include "functors/evaluation.h"
#include "functors/pipeline.h"
#include "kernels/token_choice.h"
#include "models/test_models.h"
#include "run/parameters.h"
#include "train/cached_model.h"
#include "train/fed_inputs.h"

namespace adjoint {
namespace {

constexpr int64_t kBatch = 3;

// In its own small sizes, but for these.
Scheme logits_scheme(const ModelText& text, std::map<std::string, double> settings = {}) {
  settings["batch"] = static_cast<double>(kBatch);
  const ModelConfig config{.preset = text.preset, .settings = std::move(settings)};
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

// What each block keeps of a position and a sample, in the order of blocks: how many rows of keys.
std::vector<int64_t> rows_of_keys(const Scheme& scheme) {
  std::vector<int64_t> rows;
  for (const Value in : scheme.inputs) {
    if (scheme[in].source.facet == "keys") rows.push_back(scheme[in].type.dim(1));
  }
  return rows;
}

// A block with a window keeps as many positions as its window and a step need, the others all; a
// sequence that goes round the ring many times gives what it gives as a whole, also where samples
// stand at different positions, and where steps are shorter than the longest.
TEST(CacheRing, AWindowKeepsItsOwnPositionsAndGivesTheWhole) {
  struct Case {
    const char* model;
    std::vector<int64_t> rows;  // of steps of up to 3 positions
  };
  for (const Case& c : {Case{"mistral-tiny", {7, 7}},
                        {"gemma2-tiny", {8, 70, 8}},
                        {"gemma3-tiny", {8, 8, 70, 8}}}) {
    const Scheme forward = logits_scheme(find_model(c.model), {{"context", 70}});
    const Whole whole = whole_of(forward, "");
    CachedModel model(forward, {}, {.threads = num_threads()}, {3});
    EXPECT_EQ(rows_of_keys(model.one().scheme()), c.rows) << c.model;
    initialize(model.run(), 7);
    for (const std::vector<int64_t>& counts :
         std::vector<std::vector<int64_t>>{{1}, {3, 1, 1}, {3}}) {
      EXPECT_LT(worst_of(whole, model, counts), 2e-5) << c.model << ", " << counts.size();
    }
  }
}

// What a ring keeps is what the plan has bytes for.
TEST(CacheRing, PlannedBytesAreThoseOfTheWindow) {
  const auto state_of = [](const char* model, double window) {
    const Scheme forward = logits_scheme(find_model(model), {{"context", 512}, {"window", window}});
    const CachedModel cached(forward, {}, {.threads = num_threads()}, {4});
    return cached.one().plan().state_end.count;
  };
  // Two blocks, keys and values, of 2 heads of 8 numbers of 4 bytes.
  const int64_t a_row = 2 * 2 * 2 * 8 * 4 * kBatch;
  EXPECT_EQ(state_of("mistral-tiny", 0) - state_of("mistral-tiny", 20), (512 - 23) * a_row);
  EXPECT_EQ(state_of("mistral-tiny", 600), state_of("mistral-tiny", 0));
}

// A ring forgets. What it may have forgotten is not gone back to.
TEST(CacheRing, GoesBackAsFarAsNothingIsForgotten) {
  const Scheme forward = logits_scheme(find_model("mistral-tiny"), {{"context", 70}});
  const Whole whole = whole_of(forward, "");
  CachedModel model(forward, {}, {.threads = num_threads()}, {3});
  initialize(model.run(), 7);
  const auto step = [&](int32_t at) {
    std::vector<int32_t> tokens;
    for (int64_t b = 0; b < kBatch; ++b) tokens.push_back(whole.tokens[b * whole.context + at]);
    model.step(tokens, std::vector<int32_t>(kBatch, at), std::vector<int32_t>(kBatch, 0));
    return distance(model.logits(0, whole.vocab), whole.row(0, at));
  };
  for (int32_t at = 0; at < 40; ++at) step(at);
  EXPECT_TRUE(model.may_go_back(37, 40));
  EXPECT_LT(step(37), 2e-5);
  EXPECT_FALSE(model.may_go_back(36, 40));
  EXPECT_GT(step(34), 1e-3) << "it could go back further than it says";
  EXPECT_TRUE(model.may_go_back(0, 40));
  EXPECT_LT(step(0), 2e-5);
}

// `choose` changes no logits, draws what they say, and hands the token to the next step: one that
// is given no token is the step that is given this one, also behind a step of several.
TEST(CacheChoice, ADrawnTokenIsTheNextStepsOwn) {
  for (const char* name : {"char", "gemma2-tiny", "mixtral-tiny"}) {
    const Scheme forward = logits_scheme(find_model(name), {{"context", 40}});
    CachedModel on(forward, {}, {.threads = num_threads()}, {3}, false, 30);
    CachedModel given(forward, {}, {.threads = num_threads()}, {3}, false, 30);
    initialize(on.run(), 7), initialize(given.run(), 7);
    std::vector<int32_t> tokens = {3, 1, 4, 1, 5, 9, 2, 6, 5};
    const std::vector<int32_t> first(kBatch, 0), last(kBatch, 2);
    std::set<int32_t> seen;
    for (int32_t at = 0; at < 36; at = at == 0 ? 3 : at + 1) {
      const std::vector<int32_t> origins(kBatch, at);
      std::vector<TokenChoice> choices;
      for (int64_t b = 0; b < kBatch; ++b) {
        const auto number = static_cast<float>((at * 7 + b * 3) % 20) / 20;
        choices.push_back({.temperature = b == 0 ? 0.0f : 2.0f,
                           .top_k = b == 1 ? 9.0f : 0.0f,
                           .top_p = 0.95f,
                           .number = number});
      }
      if (at == 0) {
        on.step(tokens, origins, last, choices);
      } else {
        on.step_on(origins, choices);
      }
      given.step(tokens, origins, at == 0 ? last : first, choices);
      on.ask_drawn(), given.ask_drawn();
      tokens = given.take_drawn();
      ASSERT_EQ(on.take_drawn(), tokens) << name << ", position " << at;
      for (int64_t b = 0; b < kBatch; ++b) {
        ASSERT_EQ(tokens[b], drawn_token(given.logits(b, 30), choices[b])) << name;
        seen.insert(tokens[b]);
      }
    }
    EXPECT_GT(seen.size(), 10u) << name;
  }
}

TEST(CacheFunctor, HasANameAndALawAndNoPlaceInAStep) {
  const Scheme forward = logits_scheme("char");
  EXPECT_EQ(find_functor(all_functors(), "cache")->law, Law::kReassociating);
  const auto complaint = [](const auto& act) -> std::string {
    try {
      act();
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  };
  const std::string in_a_step =
      complaint([&] { training_step(test_model("odd"), {.stack = "cache(positions=2) | bf16"}); });
  EXPECT_EQ(in_a_step,
            "cache: is of a forward scheme, and generation applies it by itself; a step that "
            "trains has all positions at once");
  EXPECT_EQ(
      complaint([&] { generation_scheme(forward, parse_stack("cache"), {}, {.positions = 1}); }),
      "cache: generation applies it by itself");
  // Named in the stack of an evaluation, it is what generation has.
  const Scheme named = evaluation_scheme(
      forward, with_forward_functors(parse_stack(""), "hold_narrow | cache(2, most=5)"), {});
  EXPECT_EQ(print(named),
            print(generation_scheme(forward, parse_stack(""), {}, {.positions = 2, .most = 5})));
}

// Queries and keys of one token are turned in one call.
TEST(CacheFunctor, ATokenTurnsOnceABlock) {
  const Scheme forward = logits_scheme("llama-tiny");
  const auto turns = [&](int64_t positions) {
    const Scheme scheme =
        generation_scheme(forward, parse_stack("-fuse"), {}, {.positions = positions, .most = 4});
    return std::count_if(scheme.morphisms.begin(), scheme.morphisms.end(),
                         [](const Morphism& m) { return m.op == "rotary"; });
  };
  EXPECT_GT(turns(1), 0);
  EXPECT_EQ(turns(2), 2 * turns(1));
}

// Every model of the library is held to the law in some small size.
TEST(CacheFunctor, EveryModelIsHeldToItsLaw) {
  std::set<std::string> held, all;
  for (const std::string& model : cached_models()) held.insert(find_model(model).file);
  for (const std::string& preset : known_presets()) all.insert(find_model(preset).file);
  EXPECT_GE(all.size(), 15u);
  for (const std::string& file : all) EXPECT_TRUE(held.count(file)) << file;
}

TEST(CacheRules, RefusesByNameWhatHasNoRule) {
  const auto complaint = [](const char* block) -> std::string {
    try {
      carry_positions(logits_scheme(model_of(block)), 2, 2);
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
