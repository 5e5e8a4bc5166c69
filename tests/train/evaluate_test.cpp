// Losses of texts and answers to questions, beside what is computed by hand or token by token.
#include "train/evaluate.h"

#include <cmath>
#include <cstring>
#include <numbers>

#include "base/error_text.h"
#include "train/generate.h"
#include "train/huggingface_folders.h"
#include "train/save.h"
#include "train/train_folder.h"

namespace adjoint {
namespace {

// How often each token is predicted.
std::vector<int> times_predicted(const std::vector<int64_t>& ends, int64_t context,
                                 int64_t stride) {
  std::vector<int> times(ends.back(), 0);
  for (const TextWindow& window : windows_over(ends, context, stride)) {
    EXPECT_GT(window.end, window.first);
    EXPECT_LE(window.end - 1 - window.begin, context) << "that it reads";
    EXPECT_LT(window.begin, window.first) << "something stands before what is predicted";
    for (int64_t t = window.first; t < window.end; ++t) ++times[t];
  }
  return times;
}

TEST(TextWindows, PredictEveryTokenButTheFirstOnce) {
  for (int64_t length = 1; length < 40; ++length) {
    for (const int64_t context : {1, 2, 7, 8}) {
      for (int64_t stride = 1; stride <= context; ++stride) {
        std::vector<int> wanted(length + 5, 1);
        wanted[0] = wanted[length] = 0;
        EXPECT_EQ(times_predicted({length, length + 5}, context, stride), wanted)
            << length << ", " << context << ", " << stride;
      }
    }
  }
}

TEST(TextWindows, BeginAStrideApart) {
  EXPECT_EQ(windows_over(std::vector<int64_t>{12}, 8, 3),
            (std::vector<TextWindow>{{0, 1, 9}, {3, 9, 12}}));
  EXPECT_EQ(windows_over(std::vector<int64_t>{12}, 8, 8),
            (std::vector<TextWindow>{{0, 1, 9}, {8, 9, 12}}));
  EXPECT_EQ(windows_over(std::vector<int64_t>{1, 3}, 8, 8), (std::vector<TextWindow>{{1, 2, 3}}));
}

double log_softmax(std::span<const double> logits, int64_t at) {
  double sum = 0;
  for (const double x : logits) sum += std::exp(x);
  return logits[at] - std::log(sum);
}

// A folder of Hugging Face's format with a tokenizer of a few letters.
class EvaluatedFolder : public testing::Test {
 protected:
  static constexpr const char* kText = "a bad cab had a fed bee; dead beef faced a fab cafe";

  fs::path folder(const std::string& family) {
    const fs::path to = folder_ / family;
    fs::copy(family_folder(family), to);
    tokenizer_ = make_tokenizer("char", kText);
    save_tokenizer(*tokenizer_, to / "tokenizer.json");
    return to;
  }
  std::string write(const std::string& name, std::string_view text) const {
    fs::create_directories((folder_ / name).parent_path());
    write_file_atomically(folder_ / name, text);
    return (folder_ / name).string();
  }
  // The log probability of the last of these tokens, by a forward of those before it alone.
  static double last_of(const fs::path& folder, std::span<const int32_t> tokens) {
    const std::vector<int32_t> before(tokens.begin(), tokens.end() - 1);
    const Numbers logits = logits_for(folder, before, 1);
    const size_t vocab = logits.size() / before.size();
    return log_softmax(std::span(logits).last(vocab), tokens.back());
  }
  static EvaluateResult evaluated(const fs::path& folder, const EvaluateOptions& options) {
    return evaluate(folder, options, {.threads = num_threads()});
  }
  static std::string error_of(const fs::path& folder, const EvaluateOptions& options) {
    try {
      evaluated(folder, options);
    } catch (const Error& e) {
      return e.what();
    }
    return "no error";
  }

  TempFolder folder_;
  std::unique_ptr<Tokenizer> tokenizer_;
};

TEST_F(EvaluatedFolder, LossIsThatOfAForwardForEachToken) {
  for (const std::string family : {"gpt2", "mixtral"}) {
    const fs::path model = folder(family);
    const std::string text = write("text.txt", kText);
    const std::vector<int32_t> tokens = tokenizer_->encode(kText);
    const auto length = static_cast<int64_t>(tokens.size());
    constexpr int64_t kContext = 8;
    for (const int64_t stride : {1, 3, 8}) {
      double sum = 0;
      for (int64_t t = 1; t < length; ++t) {
        // The first window that reaches the token begins so many strides behind the beginning.
        const int64_t begin = std::max<int64_t>(0, t - kContext + stride - 1) / stride * stride;
        sum -= last_of(model, std::span(tokens).subspan(begin, t - begin + 1));
      }
      const EvaluateResult result =
          evaluated(model, {.data = {text}, .stride = stride, .seq = kContext, .batch = 3});
      EXPECT_EQ(result.text->tokens, length - 1);
      EXPECT_EQ(result.text->bytes, length);
      EXPECT_NEAR(result.text->loss, sum / static_cast<double>(length - 1), 1e-5)
          << family << ", " << stride;
      EXPECT_NEAR(*result.text->bits_per_byte(),
                  sum / static_cast<double>(length) / std::numbers::ln2, 1e-5);
      EXPECT_FALSE(result.step);
    }
  }
}

TEST_F(EvaluatedFolder, SourcesAndFilesHaveResultsOfTheirOwn) {
  const fs::path model = folder("gpt2");
  const std::string a = write("texts/a.txt", "a bad cab had a fed bee");
  const std::string b = write("texts/b.jsonl",
                              "{\"text\": \"dead beef\"}\n\n{\"text\": \"a\"}\n"
                              "{\"prompt\": \"a fab \", \"completion\": \"cafe\"}\n");
  const std::string both = (folder_ / "texts").string();
  const EvaluateResult files = evaluated(model, {.data = {both}, .by_file = true, .seq = 8});
  ASSERT_EQ(files.sources.size(), 2u);
  EXPECT_EQ(files.sources[0].source, a);
  EXPECT_EQ(files.sources[0].tokens, 22);
  EXPECT_EQ(files.sources[0].bytes, 23);
  // Documents do not see each other, nothing stands before their first tokens, and of the last line
  // the completion counts.
  EXPECT_EQ(files.sources[1].source, b);
  EXPECT_EQ(files.sources[1].tokens, 8 + 0 + 4);
  EXPECT_EQ(files.sources[1].bytes, 9 + 1 + 4);
  double sum = 0;
  const auto add = [&](const std::string& text, int64_t first) {
    const std::vector<int32_t> tokens = tokenizer_->encode(text);
    for (int64_t t = first; t < static_cast<int64_t>(tokens.size()); ++t) {
      const int64_t begin = t > 8 ? 8 : 0;
      sum -= last_of(model, std::span(tokens).subspan(begin, t - begin + 1));
    }
  };
  add("dead beef", 1);
  add("a fab cafe", 6);
  EXPECT_NEAR(files.sources[1].loss, sum / 12, 1e-5);

  const EvaluateResult apart = evaluated(model, {.data = {a, b}, .seq = 8});
  const EvaluateResult one = evaluated(model, {.data = {both}, .seq = 8});
  ASSERT_EQ(apart.sources.size(), 2u);
  ASSERT_EQ(one.sources.size(), 1u);
  EXPECT_EQ(apart.sources[1].loss, files.sources[1].loss);
  const double all = (22 * files.sources[0].loss + sum) / 34;
  for (const EvaluateResult& result : {files, apart, one}) {
    EXPECT_EQ(result.text->tokens, 34);
    EXPECT_EQ(result.text->bytes, 37);
    EXPECT_NEAR(result.text->loss, all, 1e-5);
    EXPECT_NEAR(result.text->perplexity(), std::exp(all), 1e-3);
  }
}

TEST_F(EvaluatedFolder, TokensHaveTheLossOfTheirTextAndNoBytes) {
  const fs::path model = folder("gpt2");
  const auto bin = [&](std::vector<uint16_t> ids) {
    return write("ids.bin", {reinterpret_cast<const char*>(ids.data()), 2 * ids.size()});
  };
  const std::vector<int32_t> ids = tokenizer_->encode(kText);
  const EvaluateOptions of_text{.data = {write("text.txt", kText)}, .stride = 5, .seq = 8};
  EvaluateOptions of_ids = of_text;
  of_ids.data = {bin({ids.begin(), ids.end()})};
  const Likelihood text = *evaluated(model, of_text).text, tokens = *evaluated(model, of_ids).text;
  EXPECT_EQ(tokens.loss, text.loss);
  EXPECT_EQ(tokens.tokens, text.tokens);
  EXPECT_FALSE(tokens.bytes);
  EXPECT_FALSE(tokens.bits_per_byte());
  EXPECT_EQ(error_of(model, {.data = {bin({1, 40, 2})}}),
            (folder_ / "ids.bin").string() + ": wanted tokens below " +
                std::to_string(tokenizer_->vocab_size()) + ", found 40");
}

// Ids need nobody who knows what they stand for; texts do.
TEST_F(EvaluatedFolder, TokensNeedNoTokenizer) {
  const fs::path model = folder("gpt2");
  const std::vector<int32_t> text = tokenizer_->encode(kText);
  const std::vector<uint16_t> ids(text.begin(), text.end());
  const auto bin = [&](const std::vector<uint16_t>& all) {
    return write("ids.bin", {reinterpret_cast<const char*>(all.data()), 2 * all.size()});
  };
  const EvaluateOptions of_ids{.data = {bin(ids)}, .seq = 8};
  const double with = evaluated(model, of_ids).text->loss;
  fs::remove(model / "tokenizer.json");
  EXPECT_EQ(evaluated(model, of_ids).text->loss, with);
  EXPECT_TRUE(has(error_of(model, {.data = {write("text.txt", kText)}, .seq = 8}), "tokenizer"));
  EXPECT_TRUE(has(error_of(model, {.data = {bin({1, 5000, 2})}, .seq = 8}), "found 5000"));
}

// Such weights have no loss, and who asks for it is told which ones they are.
TEST_F(EvaluatedFolder, WeightsThatAreNoNumbersAreRefused) {
  const fs::path model = folder("gpt2"), weights = model / "model.safetensors";
  {
    const std::string bytes = read_file(weights);
    write_file_atomically(folder_ / "copy.safetensors", bytes);
    const SafetensorsFile file(folder_ / "copy.safetensors");
    std::vector<SafetensorView> views = file.tensors();
    std::vector<float> norm(file.find("transformer.ln_f.weight")->shape[0], NAN);
    for (SafetensorView& view : views) {
      if (view.name != "transformer.ln_f.weight") continue;
      view.dtype = "F32";
      view.data = norm.data();
      view.size = {4 * std::ssize(norm)};
    }
    AtomicFile out(weights);
    write_safetensors(out, views, {});
    out.commit();
  }
  const std::string text = write("text.txt", kText);
  const std::string which = "' holds numbers that are not finite", because = "; '";
  const auto refused = [&](const std::string& error, const std::string& begin) {
    EXPECT_TRUE(error.starts_with(begin + because) && error.ends_with(which)) << error;
  };
  refused(error_of(model, {.data = {text}, .seq = 8}), text + ": the loss is nan");
  const std::string questions =
      write("q.jsonl", R"({"prompt": "a ", "choices": ["bee", "cab"], "answer": 1})");
  refused(error_of(model, {.choices = questions, .seq = 8}),
          questions + ": line 1: the likelihood of choice 0 is no number");
  Generator generator(model, {.threads = num_threads()});
  refused(error_text([&] { generator.generate("a bad", {.tokens = 2}, nullptr); }),
          model.string() + ": its logits are no numbers");
}

TEST_F(EvaluatedFolder, ChoicesAreAsLikelyAsTheirTokens) {
  const fs::path model = folder("gpt2");
  const std::vector<Question> questions = {
      {.prompt = "a bad ", .choices = {"cab", "bee", "a fed beef"}},
      {.prompt = "a bad cab had a fed bee; dead beef faced a ", .choices = {"fab cafe", "cab"}},
      {.prompt = "f", .choices = {"ed", "ab"}}};
  EvaluatedModel evaluated(model, {.plan = {.threads = num_threads()}, .seq = 16, .batch = 3});
  const auto found = choice_likelihoods(evaluated, questions);
  for (size_t q = 0; q < questions.size(); ++q) {
    for (size_t c = 0; c < questions[q].choices.size(); ++c) {
      std::vector<int32_t> tokens =
          tokenizer_->encode(questions[q].prompt + questions[q].choices[c]);
      const auto own = static_cast<int64_t>(questions[q].choices[c].size());
      // The model reads sixteen tokens, so of a long prompt the last ones.
      const auto kept = std::min<int64_t>(static_cast<int64_t>(tokens.size()), 17);
      tokens.erase(tokens.begin(), tokens.end() - kept);
      double sum = 0;
      for (int64_t t = kept - own; t < kept; ++t) {
        sum += last_of(model, std::span(tokens).first(t + 1));
      }
      EXPECT_NEAR(found[q][c], sum, 1e-4) << q << ", " << c;
    }
  }
}

TEST_F(EvaluatedFolder, WhatIsWrongIsNamed) {
  const fs::path model = folder("gpt2");
  const std::string text = write("text.txt", kText);
  EXPECT_EQ(error_of(model, {}), model.string() +
                                     ": a folder without a run has no data; say what to evaluate "
                                     "on: --data PATH");
  EXPECT_EQ(error_of(model, {.data = {text}, .stride = 9, .seq = 8}),
            "--stride: wanted at most the window's 8 tokens, found 9");
  EXPECT_EQ(error_of(model, {.data = {text + ":2"}}),
            "--data " + text + ":2: weights are for training; wanted a path alone");
  EXPECT_EQ(error_of(model, {.data = {write("one.txt", "a")}}),
            (folder_ / "one.txt").string() +
                ": wanted a text of two tokens or more, found none to predict");
  EXPECT_NE(error_of(model, {.data = {text}, .weights = "ema.average"}).find("parameters alone"),
            std::string::npos);
  EXPECT_NE(error_of(folder_ / "nowhere", {}).find("there is no such folder"), std::string::npos);
  const std::string good = R"({"prompt": "a ", "choices": ["bee", "cab"], "answer": 1})";
  const std::pair<const char*, const char*> kBroken[] = {
      {R"({"prompt": "a ", )", "this is not JSON at column 18"},
      {R"([])", R"(wanted {"prompt", "choices", "answer"}, found array)"},
      {R"({"choices": ["a", "b"], "answer": 0})", R"(wanted a text as "prompt", found none)"},
      {R"({"prompt": "a", "choices": "b", "answer": 0})",
       R"(wanted a list of texts as "choices", found string)"},
      {R"({"prompt": "a", "choices": ["b"], "answer": 0})", "wanted two choices or more, found 1"},
      {R"({"prompt": "a", "choices": ["b", 3], "answer": 0})",
       "wanted a text as choice 1, found number"},
      {R"({"prompt": "a", "choices": ["b", ""], "answer": 0})",
       "wanted a text as choice 1, found an empty one"},
      {R"({"prompt": "a", "choices": ["b", "c"]})",
       R"(wanted a choice or its number as "answer", found none)"},
      {R"({"prompt": "a", "choices": ["b", "c"], "answer": 2})",
       R"(wanted a choice or its number, 0 to 1, as "answer", found 2)"},
      {R"({"prompt": "a", "choices": ["b", "c"], "answer": "d"})",
       R"(wanted one of the choices as "answer", found "d")"},
      {R"({"prompt": "", "choices": ["b", "c"], "answer": 0})",
       "wanted a prompt of one token or more before choice 0"}};
  for (const auto& [line, wanted] : kBroken) {
    const std::string file = write("choices.jsonl", good + "\n\n" + line + "\n");
    EXPECT_EQ(error_of(model, {.choices = file}), file + ": line 3: " + wanted);
  }
  EXPECT_EQ(error_of(model, {.choices = write("choices.jsonl", good), .seq = 2}),
            (folder_ / "choices.jsonl").string() +
                ": line 1: choice 0 has 3 tokens, and the model sees 2");
}

// A model whose next letter depends on the last one alone, with a table that is known.
class KnownModel : public TrainFolder {
 protected:
  static constexpr double kNext[4][4] = {{0.5, 0.25, 0.125, 0.125},
                                         {0.125, 0.125, 0.25, 0.5},
                                         {0.25, 0.25, 0.25, 0.25},
                                         {0.75, 0.125, 0.0625, 0.0625}};

  void SetUp() override {
    std::string text;
    for (int i = 0; i < 100; ++i) text += "abcd";
    write_file_atomically(data(), text);
    // Smoothing, which makes training better and is no part of a likelihood.
    write_file_atomically(folder_ / "known.scheme",
                          "axes hidden=4 context=8 vocab=4\n"
                          "model tokens[batch, seq], targets[batch, seq]:\n"
                          "  x = embed(tokens, vocab, name=wte)\n"
                          "  logits = linear(x, vocab, bias=no, name=readout)\n"
                          "  loss = cross_entropy(logits, targets, smoothing=0.1, z=0.01)\n");
    json flags = options("run", {{"model", (folder_ / "known.scheme").string()}, {"context", 8}});
    flags["set"] = json::object();
    train(flags);
    // A letter's vector is the letter, and a column of the readout is what it says of the next one.
    const SavedModel saved{SavePaths(out("run"))};
    std::vector<std::vector<float>> numbers;
    std::vector<SafetensorView> views;
    for (const SafetensorView& t : saved.file().tensors()) {
      ASSERT_EQ(t.shape, (std::vector<int64_t>{4, 4})) << t.name;
      const bool table = t.name.find("wte") != std::string::npos;
      numbers.emplace_back();
      for (int row = 0; row < 4; ++row) {
        for (int column = 0; column < 4; ++column) {
          const double number = table ? row == column : std::log(kNext[column][row]);
          numbers.back().push_back(static_cast<float>(number));
        }
      }
      views.push_back(t);
    }
    for (size_t i = 0; i < views.size(); ++i) views[i].data = numbers[i].data();
    save_model(SavePaths(out("run")), views, saved.step(), saved.file().metadata().at("model"));
  }
  static double nats(const std::string& text) {
    double sum = 0;
    for (size_t i = 1; i < text.size(); ++i) {
      sum -= std::log(kNext[text[i - 1] - 'a'][text[i] - 'a']);
    }
    return sum;
  }
  EvaluateResult evaluated(const EvaluateOptions& options) const {
    return evaluate(out("run"), options, {.threads = num_threads()});
  }
};

TEST_F(KnownModel, LossesAreThoseOfItsTable) {
  const std::string text = "abcdaabbccddbadcabdcabcc";
  write_file_atomically(folder_ / "test.txt", text);
  const std::string file = (folder_ / "test.txt").string();
  for (const int64_t stride : {0, 1, 5}) {
    const EvaluateResult result = evaluated({.data = {file}, .stride = stride});
    EXPECT_EQ(result.text->tokens, 23);
    EXPECT_NEAR(result.text->loss, nats(text) / 23, 1e-6);
    EXPECT_NEAR(result.text->perplexity(), std::exp(nats(text) / 23), 1e-5);
    EXPECT_NEAR(*result.text->bits_per_byte(), nats(text) / 24 / std::numbers::ln2, 1e-6);
    EXPECT_EQ(result.step, 7);
  }
}

TEST_F(KnownModel, ChoosesTheLikeliest) {
  // After a: "a" 1/2; "bd" 1/4 * 1/2, which is 0.35 a byte.
  write_file_atomically(folder_ / "choices.jsonl",
                        "{\"prompt\": \"cca\", \"choices\": [\"a\", \"bd\"], \"answer\": 0}\n"
                        // 1/2 against 1/2 * 3/4, and 0.61 a byte.
                        "{\"prompt\": \"ab\", \"choices\": [\"d\", \"da\"], \"answer\": \"da\"}\n"
                        // 1/8 against 1/4.
                        "{\"prompt\": \"b\", \"choices\": [\"a\", \"c\"], \"answer\": 0}\n");
  const EvaluateResult result = evaluated({.choices = folder_ / "choices.jsonl"});
  EXPECT_FALSE(result.text) << "questions alone were asked";
  EXPECT_EQ(result.choices->questions, 3);
  EXPECT_EQ(result.choices->right, 1);
  EXPECT_EQ(result.choices->right_normalized, 2);
  EXPECT_DOUBLE_EQ(result.choices->accuracy(), 1.0 / 3);

  EvaluatedModel model(out("run"), {.plan = {.threads = num_threads()}});
  const auto questions = read_questions(folder_ / "choices.jsonl");
  const auto found = choice_likelihoods(model, questions);
  EXPECT_NEAR(found[0][0], std::log(0.5), 1e-6);
  EXPECT_NEAR(found[0][1], std::log(0.25 * 0.5), 1e-6);
  EXPECT_NEAR(found[1][1], std::log(0.5 * 0.75), 1e-6);
}

// Without data: what the run itself gives of its validation part.
TEST_F(TrainFolder, EvaluatesTheValidationPartAsTheRunDoes) {
  const auto trained = train(options("run", {{"eval_batches", 0}})).val_loss;
  const EvaluateResult result = evaluate(out("run"), {}, {.threads = num_threads()});
  EXPECT_EQ(result.text->loss, trained);
  EXPECT_EQ(result.text->tokens % 16, 0);
  EXPECT_EQ(result.text->bytes, result.text->tokens) << "letters of one byte";
}

// JSON lines, several sources, tokens, rows of whole documents: whatever the run itself evaluates.
TEST_F(TrainFolder, EvaluatesTheValidationPartOfAnyData) {
  std::string lines, talks;
  std::vector<uint16_t> ids;
  for (int i = 0; i < 200; ++i) {
    const std::string number = std::to_string(i * 37 % 101);
    lines += R"({"prompt": "the cat ", "completion": "sat on )" + number + "\"}\n";
    talks += R"({"messages": [{"role": "user", "content": ")" + number +
             R"("}, {"role": "assistant", "content": "mat"}]})" + "\n";
    for (int k = 0; k < 9; ++k) ids.push_back(static_cast<uint16_t>((i * 31 + k * 7) % 40));
  }
  const auto put = [&](const std::string& name, std::string_view text) {
    write_file_atomically(folder_ / name, text);
    return (folder_ / name).string();
  };
  const std::string asked = put("asked.jsonl", lines), said = put("said.jsonl", talks);
  const std::string bin =
      put("ids.bin", {reinterpret_cast<const char*>(ids.data()), 2 * ids.size()});
  const std::string text = data().string();
  const json kinds[] = {{{"data", asked}, {"tokenizer", "byte"}},
                        {{"data", said}, {"tokenizer", "byte"}, {"template", "chatml"}},
                        {{"data", {text + ":1", asked + ":2"}}, {"packing", "windows"}},
                        {{"data", asked}, {"packing", "padded"}, {"documents", "apart"}},
                        {{"data", bin}}};
  for (const json& kind : kinds) {
    json more = kind;
    more.update({{"eval_batches", 0}, {"overwrite", true}});
    more["set"] = {{"layers", 1}, {"hidden", 32}, {"heads", 2}, {"dropout", 0}};
    if (kind["data"] == bin) more["set"]["vocab"] = 40;
    const auto trained = train(options("run", more)).val_loss;
    const EvaluateResult result = evaluate(out("run"), {}, {.threads = num_threads()});
    EXPECT_EQ(result.text->loss, trained) << kind;
    EXPECT_GT(result.text->tokens, 0) << kind;
    EXPECT_FALSE(result.text->bytes) << kind;
  }
  put("ids.bin", "changed");
  const std::string error =
      error_text([&] { evaluate(out("run"), {}, {.threads = num_threads()}); });
  EXPECT_TRUE(has(error, "this text has changed since the run began")) << error;
}

// What is trained has later tokens, smoothing and weights in it; what is evaluated is how likely
// the next tokens are, with --data and without.
TEST_F(TrainFolder, EvaluatesTheNextTokensAndNotWhatIsTrained) {
  write_file_atomically(
      folder_ / "several.scheme",
      "axes hidden=8 context=16 vocab=40\n"
      "model tokens[batch, seq], targets[batch, seq]:\n"
      "  x = embed(tokens, vocab, name=wte)\n"
      "  later = cross_entropy(linear(x, vocab, name=far), shift(targets, -1, fill=-1))\n"
      "  loss = 3*later + 2*cross_entropy(linear(x, vocab, name=near), targets, "
      "smoothing=0.2, z=0.01)\n");
  json flags = options("run", {{"model", (folder_ / "several.scheme").string()},
                               {"eval_batches", 0},
                               {"set", json::object()}});
  const double trained = train(flags).val_loss.value();
  const std::string all = read_file(data());
  const size_t middle = tokens_to_train_on(static_cast<int64_t>(all.size()), 0.1);
  // As many whole windows as the run evaluates.
  const size_t windows = (all.size() - middle - 1) / 16;
  const std::string part = (folder_ / "part.txt").string();
  write_file_atomically(part, std::string_view(all).substr(middle, 16 * windows + 1));
  const PlanOptions plan{.threads = num_threads()};
  const EvaluateResult own = evaluate(out("run"), {}, plan);
  const EvaluateResult said = evaluate(out("run"), {.data = {part}}, plan);
  EXPECT_NEAR(own.text->loss, said.text->loss, 1e-6);
  EXPECT_EQ(own.text->tokens, said.text->tokens);
  EXPECT_EQ(own.text->bytes, static_cast<int64_t>(16 * windows));
  EXPECT_GT(trained, 2 * own.text->loss) << "which is another number";
}

// Runs trained with 16 tokens are evaluated with fewer.
TEST_F(TrainFolder, EvaluatesWithAnotherLength) {
  train(options("run"));
  const auto loss = [&](int64_t seq) {
    const EvaluateResult result =
        evaluate(out("run"), {.data = {data().string()}, .seq = seq}, {.threads = num_threads()});
    EXPECT_EQ(result.text->tokens, static_cast<int64_t>(fs::file_size(data())) - 1);
    return result.text->loss;
  };
  EXPECT_EQ(loss(0), loss(16));
  EXPECT_NE(loss(4), loss(16));
}

}  // namespace
}  // namespace adjoint
