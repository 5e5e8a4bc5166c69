// Text from a run: what it has learnt, in whatever precision its stack computes.
#include "train/generate.h"

#include "base/note.h"
#include "comm/threads.h"
#include "device/parallel.h"
#include "train/train_folder.h"

namespace adjoint {
namespace {

TEST_F(TrainFolder, GeneratesWhatItHasLearnt) {
  for (const char* stack : {"", "bf16", "fp16"}) {
    train(options("run", {{"stack", stack},
                          {"steps", 150},
                          {"batch", 8},
                          {"lr", 0.01},
                          {"log_every", 1000},
                          {"overwrite", true}}));
    Generator generator(out("run"), {.threads = num_threads()});
    const std::string text =
        generator.generate("the cat", {.tokens = 12, .temperature = 0}, nullptr);
    EXPECT_EQ(text, " sat on mat ") << "'" << stack << "'";
  }
}

// One prompt cannot come in as many parts as a batch did.
TEST_F(TrainFolder, GeneratesFromRunsThatSplitTheirBatch) {
  for (const char* stack : {"accumulate(2)", "bf16 | accumulate(2) | lora(rank=2)"}) {
    train(options("run", {{"stack", stack}, {"overwrite", true}}));
    Generator generator(out("run"), {.threads = num_threads()});
    EXPECT_EQ(generator.generate("the", {.tokens = 5, .temperature = 0}, nullptr).size(), 5u);
  }
}

TEST_F(TrainFolder, TextsOfABatchAreAsTheyAreAlone) {
  train(options("run", {{"steps", 40}, {"batch", 8}, {"lr", 0.01}, {"context", 48}}));
  Generator generator(out("run"), {.threads = num_threads()});
  const SampleOptions sample{.tokens = 20, .temperature = 1};
  const std::vector<std::string> prompts = {"the", "the cat sat on mat the cat sat on", "s", ""};
  std::vector<std::vector<int32_t>> tokens;
  for (const std::string& prompt : prompts) tokens.push_back(generator.tokenizer().encode(prompt));
  const std::vector<Generated> together = generator.generate(tokens, sample, 0, nullptr);
  for (size_t i = 0; i < prompts.size(); ++i) {
    Generator alone(out("run"), {.threads = num_threads()});
    EXPECT_EQ(alone.generate({tokens[i]}, sample, static_cast<int64_t>(i), nullptr)[0].text,
              together[i].text)
        << prompts[i];
  }
  // A second call begins with what the first one has seen, and gives the same.
  EXPECT_EQ(generator.generate(tokens, sample, 0, nullptr)[1].text, together[1].text);
}

TEST_F(TrainFolder, GeneratesPastItsContext) {
  train(options("run", {{"steps", 150}, {"batch", 8}, {"lr", 0.01}, {"log_every", 1000}}));
  Generator generator(out("run"), {.threads = num_threads()});
  const std::string text =
      generator.generate("the cat sat on mat 3", {.tokens = 80, .temperature = 0}, nullptr);
  EXPECT_EQ(text.size(), 80u);
  // Lines go on long after the sixteen positions that it was trained with.
  EXPECT_NE(text.find("sat on mat", 50), std::string::npos) << text;
}

// A mean over positions so far is written as a sum over all of them, for which there is no rule.
TEST_F(TrainFolder, ModelsWithoutARuleRunTheWholeWindow) {
  const fs::path file = folder_ / "mixed.scheme";
  write_file_atomically(file,
                        "axes hidden=16 context=16 vocab=37\n"
                        "model tokens[batch, seq], targets[batch, seq]:\n"
                        "  x = embed(tokens, vocab, name=wte)\n"
                        "  y = transpose(linear(transpose(x), seq, bias=no, name=mix))\n"
                        "  logits = linear(x + y, vocab, name=readout)\n"
                        "  loss = cross_entropy(logits, targets)\n");
  json flags = options("run", {{"model", file.string()}});
  flags["set"] = json::object();
  train(flags);
  std::string noted;
  set_note_writer([&](const std::string& text) { noted += text; });
  Generator generator(out("run"), {.threads = num_threads()});
  EXPECT_EQ(generator.generate("the", {.tokens = 5, .temperature = 0}, nullptr).size(), 5u);
  set_note_writer(nullptr);
  EXPECT_NE(noted.find("generate runs the whole window instead"), std::string::npos) << noted;
}

// Nor do several texts come in the parts of a batch: their logits leave with their samples.
TEST_F(TrainFolder, WholeWindowsOfSeveralTextsComeInOnePart) {
  const fs::path file = folder_ / "mixed.scheme";
  write_file_atomically(file,
                        "axes layers=2 hidden=16 context=16 vocab=37\n"
                        "block x[batch, seq, hidden]:\n"
                        "  x = x + transpose(linear(transpose(x), seq, bias=no, name=mix))\n"
                        "model tokens[batch, seq], targets[batch, seq]:\n"
                        "  x = block^layers(embed(tokens, vocab, name=wte))\n"
                        "  logits = linear(x, vocab, name=readout)\n"
                        "  loss = cross_entropy(logits, targets)\n");
  json flags =
      options("run", {{"model", file.string()}, {"steps", 2}, {"batch", 4}, {"overwrite", true}});
  flags["set"] = json::object();
  const SampleOptions sample{.tokens = 5, .temperature = 0};
  for (const std::string stack : {"", "accumulate(2)", "pipeline(2, parts=4)"}) {
    flags["stack"] = stack;
    if (stack.starts_with("pipeline")) {
      flags["threads"] = 1;
      run_ranks(2, [&](const Communicator& world) {
        Trainer(resolve_config({}, flags), world).train(std::atomic<bool>(false));
      });
    } else {
      train(flags);
    }
    set_note_writer([](const std::string&) {});
    Generator generator(out("run"), {.threads = num_threads()});
    const std::vector<int32_t> the = generator.tokenizer().encode("the"),
                               sat = generator.tokenizer().encode("sat on");
    const std::vector<Generated> together = generator.generate({the, sat}, sample, 0, nullptr);
    EXPECT_EQ(together[0].text, generator.generate({the}, sample, 0, nullptr)[0].text) << stack;
    EXPECT_EQ(together[1].text, generator.generate({sat}, sample, 1, nullptr)[0].text) << stack;
    set_note_writer(nullptr);
  }
}

TEST_F(TrainFolder, GeneratesInAnotherPrecisionThanItsOwn) {
  train(options("run", {{"steps", 150}, {"batch", 8}, {"lr", 0.01}, {"log_every", 1000}}));
  for (const char* stack : {"bf16", "quantize(int8, per=channel)",
                            "quantize(int8, group=16) | bf16", "quantize(nf4, group=16)"}) {
    Generator generator(out("run"),
                        {.plan = {.threads = num_threads()}, .stack = stack, .own_stack = false});
    EXPECT_EQ(generator.generate("the cat", {.tokens = 12, .temperature = 0}, nullptr),
              " sat on mat ")
        << stack;
  }
}

// A step that begins before the last token is known, as on a GPU, changes no text: not where texts
// end at different places, by a stop or by their length, nor past the context, nor when a call goes
// on from the last one.
TEST_F(TrainFolder, GoingAheadChangesNoText) {
  train(options("run", {{"steps", 60}, {"batch", 8}, {"lr", 0.01}, {"log_every", 1000}}));
  const auto texts = [&](bool ahead, const SampleOptions& sample) {
    Generator generator(out("run"), {.plan = {.threads = num_threads()}, .ahead = ahead});
    std::vector<std::vector<int32_t>> prompts;
    for (const char* prompt : {"the cat sat on mat the cat", "s", ""}) {
      prompts.push_back(generator.tokenizer().encode(prompt));
    }
    std::vector<std::string> all;
    for (int call = 0; call < 2; ++call) {
      for (const Generated& made : generator.generate(prompts, sample, 0, nullptr)) {
        all.push_back(made.text + "/" + std::to_string(made.tokens));
      }
    }
    return all;
  };
  for (const SampleOptions& sample :
       {SampleOptions{.tokens = 9, .temperature = 0},
        {.tokens = 60, .temperature = 1},
        {.tokens = 60, .temperature = 1, .top_k = 5, .stops = {"t o", "7"}},
        {.tokens = 30, .temperature = 1, .top_p = 0.8, .min_p = 0.01, .repetition = 1.3},
        {.tokens = 1}}) {
    EXPECT_EQ(texts(true, sample), texts(false, sample)) << sample.tokens << " tokens";
  }
}

// A reply that somebody has read enough of; the next one is as if it had been asked for first.
TEST_F(TrainFolder, TextsEndWhenTheyAreAskedTo) {
  train(options("run", {{"steps", 40}, {"batch", 8}, {"lr", 0.01}, {"context", 48}}));
  for (const bool ahead : {false, true}) {
    Generator generator(out("run"), {.plan = {.threads = num_threads()}, .ahead = ahead});
    const SampleOptions sample{.tokens = 30, .temperature = 1};
    const std::string whole = generator.generate("the cat", sample, nullptr);
    ASSERT_EQ(whole.size(), 30u);
    std::atomic<bool> stop = false;
    generator.stop_when(&stop);
    std::string shown;
    const std::string text = generator.generate("the cat", sample, [&](std::string_view grown) {
      shown += grown;
      stop = shown.size() >= 5;
    });
    EXPECT_EQ(text, whole.substr(0, 5));
    EXPECT_EQ(shown, text);
    stop = false;
    EXPECT_EQ(generator.generate("the cat", sample, nullptr), whole);
  }
}

// What is before the last tokens that there is room for is as if it were not there.
TEST_F(TrainFolder, APromptLongerThanTheContextIsItsEnd) {
  train(options("run", {{"steps", 40}, {"batch", 8}, {"lr", 0.01}}));
  const std::string line = "the cat sat on mat 74\nthe cat sat on mat 10\nthe cat sat on";
  const auto text = [&](const std::string& prompt) {
    Generator generator(out("run"), {.threads = num_threads()});
    return generator.generate(prompt, {.tokens = 30, .temperature = 1}, nullptr);
  };
  EXPECT_EQ(text(line), text(line.substr(line.size() - 12)));
}

// What codes stand for can be held in any other way, too; adapters are no part of the model.
TEST_F(TrainFolder, GeneratesFromCodesInAnotherPrecision) {
  train(options("base", {{"steps", 150}, {"batch", 8}, {"lr", 0.01}, {"log_every", 1000}}));
  train(tuned("codes", "quantize(int8, per=channel) | freeze(attention)", {{"lr", 1e-4}}));
  for (const char* stack : {"bf16", "", "quantize(int8, per=channel)", "quantize(nf4, group=16)"}) {
    Generator generator(out("codes"),
                        {.plan = {.threads = num_threads()}, .stack = stack, .own_stack = false});
    EXPECT_EQ(generator.generate("the cat", {.tokens = 12, .temperature = 0}, nullptr),
              " sat on mat ")
        << stack;
  }
  train(tuned("adapted", "quantize(int8, per=channel) | lora(rank=2)"));
  try {
    Generator generator(out("adapted"),
                        {.plan = {.threads = num_threads()}, .stack = "bf16", .own_stack = false});
    generator.generate("the", {.tokens = 1}, nullptr);
    ADD_FAILURE() << "adapters were left out";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("lora"), std::string::npos) << e.what();
  }
}

}  // namespace
}  // namespace adjoint
