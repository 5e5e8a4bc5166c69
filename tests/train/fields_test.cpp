// Models with inputs beside tokens and targets, trained from a file of fields.
#include <cmath>
#include <fstream>
#include <numeric>

#include "base/half.h"
#include "base/json.h"
#include "data/safetensors.h"
#include "device/parallel.h"
#include "train/generate.h"
#include "train/train_folder.h"

namespace adjoint {
namespace {

constexpr int64_t kTokens = 3000, kVocab = 11;

// Tokens at random, and a teacher that is all but sure of (7 token + 3) mod 11: whoever is fed
// another token's teacher learns nothing.
class TrainOnFields : public TrainFolder {
 protected:
  void SetUp() override {
    write_file_atomically(model(), R"(axes hidden=16 context=8 vocab=11
model tokens[batch, seq], targets[batch, seq], teacher f32[batch, seq, vocab], weights f32[batch, seq]:
  logits = linear(embed(tokens, vocab, name=wte), vocab, name=readout)
  p = softmax(teacher)
  loss = 0.25*cross_entropy(logits, targets) + average(weights*sum(p*log(p/softmax(logits))), targets)
)");
    write_file_atomically(taught(), R"(axes hidden=16 context=8 vocab=11
model tokens[batch, seq], targets[batch, seq], teacher f32[batch, seq, vocab]:
  logits = linear(embed(tokens, vocab, name=wte), vocab, name=readout)
  p = softmax(teacher)
  loss = 0*cross_entropy(logits, targets) + average(sum(p*log(p/softmax(logits))), targets)
)");
    write_data(0);
  }
  fs::path model() const { return folder_ / "distil.scheme"; }
  fs::path taught() const { return folder_ / "taught.scheme"; }
  fs::path fields() const { return folder_ / "data.safetensors"; }

  // `change` makes other data of the same shapes; `odd` is the weight of one token, `id` its id.
  void write_data(int change, std::optional<float> odd = {}, int32_t id = 100) {
    std::vector<uint16_t> tokens(kTokens);
    std::vector<Float16> teacher(kTokens * kVocab);
    std::vector<float> weights(kTokens);
    uint64_t state = 12345;
    for (int64_t i = 0; i < kTokens; ++i) {
      state = state * 6364136223846793005 + 1442695040888963407;
      tokens[i] = static_cast<uint16_t>((state >> 33) % kVocab);
      weights[i] = static_cast<float>(i % 3 + 1) + static_cast<float>(change);
      teacher[i * kVocab + (7 * tokens[i] + 3) % kVocab] = Float16(12.0f);
    }
    if (odd) weights[100] = *odd;
    std::vector<int32_t> ids(kTokens);
    std::iota(ids.begin(), ids.end(), 0);
    ids[100] = id;
    const SafetensorView views[] = {
        {"tokens", "U16", {kTokens}, tokens.data(), {kTokens * 2}},
        {"teacher", "F16", {kTokens, kVocab}, teacher.data(), {kTokens * kVocab * 2}},
        {"weights", "F32", {kTokens}, weights.data(), {kTokens * 4}},
        {"ids", "I32", {kTokens}, ids.data(), {kTokens * 4}}};
    AtomicFile file(fields());
    write_safetensors(file, views, {});
    file.commit();
  }
  json on_fields(const std::string& name, json more = json::object()) const {
    json all = {{"model", model().string()},
                {"data", fields().string()},
                {"out", out(name).string()},
                {"steps", 7},
                {"batch", 4},
                {"eval_batches", 2},
                {"save_every", 0},
                {"log_every", 1}};
    all.update(more);
    return all;
  }
};

TEST_F(TrainOnFields, EveryTokenHasItsOwnTeacher) {
  const TrainResult result = train(on_fields(
      "taught", {{"model", taught().string()}, {"steps", 200}, {"lr", 0.05}, {"eval_batches", 0}}));
  ASSERT_TRUE(result.loss && result.val_loss);
  EXPECT_LT(*result.loss, 0.05) << "all alike are log(11) = 2.4 away";
  EXPECT_LT(*result.val_loss, 0.05);
}

TEST_F(TrainOnFields, ResumeContinuesBitForBit) {
  const TrainResult whole = train(on_fields("whole"));
  train(on_fields("parts", {{"stop_after", 3}}));
  const TrainResult second = train(resume("parts"));
  EXPECT_EQ(second.loss, whole.loss);
  EXPECT_EQ(second.val_loss, whole.val_loss);
  for (const char* file : {"model.safetensors", "optimizer.safetensors"}) {
    EXPECT_EQ(read_file(out("whole") / file), read_file(out("parts") / file)) << file;
  }
}

TEST_F(TrainOnFields, ARunGoesOnWithItsDataOnly) {
  train(on_fields("run", {{"stop_after", 3}}));
  write_data(1);
  const std::string error = error_of(resume("run"));
  EXPECT_NE(error.find("these data have changed since the run began"), std::string::npos) << error;
  EXPECT_EQ(error_of(resume("run", {{"data", fields().string()}})), "no error");
}

TEST_F(TrainOnFields, AStackReadsTheSameBatches) {
  const TrainResult plain = train(on_fields("plain"));
  for (const char* stack : {"accumulate(2)", "accumulate(3)", "bf16"}) {
    const TrainResult other = train(on_fields("other", {{"stack", stack}, {"overwrite", true}}));
    ASSERT_TRUE(other.loss && plain.loss);
    EXPECT_NEAR(*other.loss, *plain.loss, *plain.loss * (stack[0] == 'b' ? 0.02 : 1e-5)) << stack;
  }
}

// 3000 tokens are 300 to validate on: 37 windows of 8, so the last batch of 5 is not full. The mean
// of the weights is 2 only if the windows that are not there count for nothing.
TEST_F(TrainOnFields, OnceThroughCountsEveryWindowOnce) {
  write_file_atomically(model(), R"(axes hidden=16 context=8 vocab=11
model tokens[batch, seq], targets[batch, seq], weights f32[batch, seq]:
  logits = linear(embed(tokens, vocab, name=wte), vocab, name=readout)
  loss = 0*cross_entropy(logits, targets) + average(weights, targets)
)");
  double sum = 0;
  for (int64_t i = 2700; i < 2700 + 37 * 8; ++i) sum += static_cast<double>(i % 3 + 1);
  const TrainResult result = train(on_fields("once", {{"batch", 5}, {"eval_batches", 0}}));
  ASSERT_TRUE(result.val_loss);
  EXPECT_NEAR(*result.val_loss, sum / (37 * 8), 1e-6);
}

TEST_F(TrainOnFields, SamplesAreIds) {
  train(on_fields("run", {{"steps", 100}, {"lr", 0.05}}));
  Generator generator(out("run"), {.threads = num_threads()});
  // 3 -> 2 -> 6 -> 1 -> 10 by 7 token + 3.
  EXPECT_EQ(generator.generate("4 3", {.tokens = 4, .temperature = 0}, nullptr), " 2 6 1 10");
  const auto error = [&](const std::string& prompt) {
    try {
      generator.generate(prompt, {.tokens = 1}, nullptr);
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string("no error");
  };
  EXPECT_EQ(error("4 11"),
            "this model was trained on ids without a tokenizer: wanted ids from 0 to 10 with "
            "blanks between them, found '11'");
  EXPECT_NE(error("the"), "no error");
}

// No rate helps against data that are no numbers.
TEST_F(TrainOnFields, ANumberThatIsNoneIsToldByItsField) {
  write_data(0, NAN);
  EXPECT_EQ(error_of(on_fields("nan")),
            fields().string() + ": field 'weights' holds nan at token 100, wanted numbers");
  EXPECT_FALSE(fs::exists(out("nan")));
  for (const float odd : {INFINITY, -INFINITY}) {
    write_data(0, odd);
    EXPECT_EQ(error_of(on_fields("inf")), fields().string() + ": field 'weights' holds " +
                                              (odd < 0 ? "-" : "") +
                                              "inf at token 100, wanted finite numbers");
    EXPECT_FALSE(fs::exists(out("inf")));
  }
}

// A weight of -inf in a softmax is a token that is left out, so a mask may hold it, and +inf not.
TEST_F(TrainOnFields, AMaskMayHoldMinusInfinity) {
  write_file_atomically(model(), R"(axes hidden=16 context=8 vocab=11
model tokens[batch, seq], targets[batch, seq], weights f32[batch, seq]:
  x = embed(tokens, vocab, name=wte)
  seen = softmax(contract(x, x, "bsh,bth->bst") + unsqueeze(weights, 1))
  logits = linear(x + contract(seen, x, "bst,bth->bsh"), vocab, name=readout)
  loss = cross_entropy(logits, targets)
)");
  write_data(0, -INFINITY);
  EXPECT_EQ(error_of(on_fields("mask")), "no error");
  write_data(0, INFINITY);
  EXPECT_EQ(error_of(on_fields("odd")), fields().string() +
                                            ": field 'weights' holds inf at token "
                                            "100, wanted finite numbers or -inf");
}

// A batch whose loss is infinite is no reason to end where the user says so, also without --spike.
TEST_F(TrainOnFields, WhatIsNoNumberIsSkippedOrLeftOut) {
  write_data(0, 3e38f);
  for (const char* what : {"skip", "back"}) {
    const json run = {{"steps", 500}, {"on_spike", what}, {"eval_every", 0}, {"save_every", 50}};
    EXPECT_EQ(train(on_fields(what, run)).step, 500) << what;
    std::ifstream in(out(what) / "spikes.jsonl");
    std::string line;
    ASSERT_TRUE(std::getline(in, line)) << what;
    EXPECT_EQ(json::parse(line)["wrong"], "loss") << line;
    EXPECT_EQ(read_json(out(what) / "spike.json")["samples"].size(), 4);
  }
}

// 2^24 + 1 is 2^24 to a body, so that two ids would be one.
TEST_F(TrainOnFields, IdsThatABodyReadsFitFloat32) {
  const auto error = [&](const std::string& read) {
    write_file_atomically(model(), R"(axes hidden=16 context=8 vocab=11
model tokens[batch, seq], targets[batch, seq], ids[batch, seq]:
  logits = linear(embed(tokens, vocab), vocab)
  loss = cross_entropy(logits, targets))" +
                                       read + "\n");
    return error_of(on_fields("ids", {{"steps", 1}, {"overwrite", true}}));
  };
  const std::string again = " + 0*average(where(ids == shift(ids, 1), 1.0, 0.0), targets)";
  EXPECT_EQ(error(again), "no error");
  write_data(0, {}, (1 << 24) + 1);
  EXPECT_EQ(error(again), fields().string() +
                              ": field 'ids' holds 16777217 at token 100, wanted -16777216 to "
                              "16777216: the model computes with it in float32, which has no "
                              "others");
  EXPECT_EQ(error(""), "no error") << "nothing computes with them";
}

// What a loss ignores may be looked up as something else.
TEST_F(TrainOnFields, WhatIsIgnoredMayBeLookedUpAsSomethingElse) {
  write_data(0, {}, -1);
  const auto error = [&](const std::string& looked_up) {
    write_file_atomically(model(), R"(axes hidden=16 context=8 vocab=11
model tokens[batch, seq], targets[batch, seq], ids[batch, seq]:
  logits = linear(embed(tokens, vocab) + embed(LOOKED_UP, 4000, name=seen), 4000)
  loss = cross_entropy(logits, ids)
)");
    std::string text = read_file(model());
    write_file_atomically(model(), text.replace(text.find("LOOKED_UP"), 9, looked_up));
    return error_of(on_fields("ids", {{"steps", 2}, {"overwrite", true}}));
  };
  EXPECT_EQ(error("where(ids == -1, 0, ids)"), "no error");
  EXPECT_EQ(error("where(ids < 0, tokens, ids)"), "no error");
  const std::string refused =
      fields().string() + ": field 'ids' holds -1 at token 100, wanted 0 to 3999";
  EXPECT_EQ(error("ids"), refused);
  EXPECT_EQ(error("where(ids == -2, 0, ids)"), refused);
  EXPECT_EQ(error("shift(where(ids == -1, 4000, ids), 1)"), refused);
}

// What is wrong is said before anything is written.
TEST_F(TrainOnFields, RefusesWhatDoesNotFit) {
  const auto refused = [&](const std::string& head, const std::string& wanted,
                           const std::string& vocab = "11") {
    write_file_atomically(
        model(), "axes hidden=16 context=8 vocab=" + vocab + "\nmodel " + head +
                     ":\n  loss = cross_entropy(linear(embed(tokens, vocab), vocab), targets)\n");
    const std::string error = error_of(on_fields("refused"));
    EXPECT_NE(error.find(wanted), std::string::npos) << error;
    EXPECT_FALSE(fs::exists(out("refused"))) << head;
  };
  const std::string two = "tokens[batch, seq], targets[batch, seq], ";
  refused(two + "segments[batch, seq]",
          "there is no field 'segments', wanted as whole numbers [3000]; there are ");
  refused(two + "teacher f32[batch, seq, hidden]",
          "field 'teacher' is wanted as floating numbers [3000,16], found F16[3000,11]");
  refused(two + "weights[batch, seq]",
          "field 'weights' is wanted as whole numbers [3000], found F32[3000]");
  refused(two + "weights f32[seq, batch]", "'weights' is f32[seq=8, batch=4]");
  refused("tokens[batch, seq], targets[batch, seq]", "field 'tokens' holds ", "9");
  // The same model on a text.
  TrainFolder::SetUp();
  write_file_atomically(model(), "axes hidden=16 context=8 vocab=64\nmodel " + two +
                                     "teacher f32[batch, seq, vocab]:\n  loss = cross_entropy("
                                     "linear(embed(tokens, vocab), vocab), targets)\n");
  const std::string text = error_of(on_fields("refused", {{"data", data().string()}}));
  EXPECT_NE(text.find("'teacher' is given by nobody"), std::string::npos) << text;
}

}  // namespace
}  // namespace adjoint
