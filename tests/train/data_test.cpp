// Runs on every kind of data: what they read, that a stop changes nothing, and what is refused.
#include <fmt/format.h>

#include <cmath>
#include <fstream>

#include "base/error_text.h"
#include "base/note.h"
#include "data/bpe_train.h"
#include "data/safetensors.h"
#include "ops/segments.h"
#include "train/convert.h"
#include "train/train_folder.h"

namespace adjoint {
namespace {

class TrainOnData : public TrainFolder {
 protected:
  fs::path put(const std::string& name, const std::string& text) const {
    const fs::path path = folder_ / name;
    fs::create_directories(path.parent_path());
    write_file_atomically(path, text);
    return path;
  }
  // Sums, a line each: what is asked is not trained.
  fs::path sums() const {
    std::string lines;
    for (int i = 0; i < 300; ++i) {
      const int a = i * 37 % 50, b = i * 11 % 23;
      lines +=
          fmt::format("{{\"prompt\": \"{} + {} =\", \"completion\": \" {}.\"}}\n", a, b, a + b);
    }
    return put("sums.jsonl", lines);
  }
  // Without --steps where --epochs says how long a run is.
  json flags(const std::string& name, const json& more) const {
    json all = options(name, more);
    if (more.contains("epochs")) all.erase("steps");
    return all;
  }
  // Rotary positions, so that where in a row a document begins makes no difference.
  json with_llama(const std::string& name, json more) const {
    json all = options(name, {{"model", "llama-tiny"},
                              {"tokenizer", "byte"},
                              {"set", json::object()},
                              {"context", 24},
                              {"batch", 4}});
    all.update(more);
    return all;
  }
  std::vector<json> metrics(const std::string& name) const {
    std::ifstream in(out(name) / "metrics.jsonl");
    std::vector<json> lines;
    for (std::string line; std::getline(in, line);) lines.push_back(json::parse(line));
    return lines;
  }
  void expect_same(const std::string& a, const std::string& b, const std::string& why) const {
    for (const char* file : {"model.safetensors", "optimizer.safetensors"}) {
      EXPECT_EQ(read_file(out(a) / file), read_file(out(b) / file)) << why << ", " << file;
    }
  }
};

TEST_F(TrainOnData, ResumesAtTheExactSample) {
  const std::string text = data().string(), lines = sums().string();
  const std::string cache = (folder_ / "cache").string();
  const json kinds[] = {
      {{"packing", "windows"}},
      {{"packing", "crops"}, {"data", {text + ":1", lines + ":3"}}},
      {{"packing", "windows"}, {"data", {text + ":1", lines + ":3"}}, {"cache", cache}},
      {{"packing", "documents"}, {"data", lines}, {"documents", "apart"}},
      {{"packing", "padded"}, {"data", {text, lines}}, {"cache", cache}},
      {{"data", lines}, {"epochs", 0.05}}};
  for (const json& kind : kinds) {
    json begun = kind;
    begun.update({{"overwrite", true}, {"set", {{"layers", 1}, {"hidden", 32}, {"heads", 2}}}});
    const TrainResult whole = train(flags("whole", begun));
    begun["stop_after"] = 3;
    train(flags("parts", begun));
    const TrainResult second = train(resume("parts"));
    EXPECT_EQ(second.step, whole.step);
    EXPECT_EQ(second.loss, whole.loss) << kind;
    EXPECT_EQ(second.val_loss, whole.val_loss) << kind;
    expect_same("whole", "parts", kind.dump());
  }
}

// The same tokens as a field of a file, which are read as they were before there were shards.
TEST_F(TrainOnData, CropsOfATextAreThoseOfItsTokens) {
  const std::string text = read_file(data());
  const SafetensorView view{.name = "tokens",
                            .dtype = "U8",
                            .shape = {static_cast<int64_t>(text.size())},
                            .data = text.data(),
                            .size = {static_cast<int64_t>(text.size())}};
  AtomicFile file(folder_ / "f.safetensors");
  write_safetensors(file, std::span(&view, 1), {});
  file.commit();
  std::vector<uint16_t> ids(text.begin(), text.end());
  put("t.bin", {reinterpret_cast<const char*>(ids.data()), 2 * ids.size()});
  put("t.txt", text);
  const json more = {{"set", {{"layers", 1}, {"hidden", 32}, {"heads", 2}, {"vocab", 256}}}};
  json of_text = more;
  of_text.update({{"tokenizer", "byte"}, {"set", {{"layers", 1}, {"hidden", 32}, {"heads", 2}}}});
  const TrainResult plain = train(options("plain", of_text));
  for (const auto& [name, data] : {std::pair("fields", "f.safetensors"), {"bin", "t.bin"}}) {
    json other = more;
    other["data"] = (folder_ / data).string();
    EXPECT_EQ(train(options(name, other)).loss, plain.loss) << name;
    expect_same(name, "plain", name);
  }
  of_text["cache"] = (folder_ / "cache").string();
  train(options("cached", of_text));
  expect_same("cached", "plain", "cache");
  EXPECT_FALSE(fs::is_empty(folder_ / "cache"));
}

// Who keeps documents apart sees each as if it were alone in its row.
TEST_F(TrainOnData, DocumentsApartAreAsIfEachHadARow) {
  json run = {
      {"data", sums().string()}, {"eval_batches", 0}, {"steps", 1}, {"lr", 0}, {"min_lr", 0}};
  run["packing"] = "padded";
  const TrainResult alone = train(with_llama("alone", run));
  run["packing"] = "documents";
  const TrainResult together = train(with_llama("together", run));
  run["documents"] = "apart";
  const TrainResult apart = train(with_llama("apart", run));
  ASSERT_TRUE(alone.val_loss && together.val_loss && apart.val_loss);
  EXPECT_NEAR(*apart.val_loss, *alone.val_loss, 1e-5);
  EXPECT_GT(std::abs(*together.val_loss - *alone.val_loss), 1e-4);
}

// So it does where positions are learned: each document has the table's first rows.
TEST_F(TrainOnData, LearnedPositionsRestartWithADocumentApart) {
  json run = {{"data", sums().string()},
              {"model", "char"},
              {"tokenizer", "byte"},
              {"set", {{"layers", 2}, {"hidden", 16}, {"heads", 2}}},
              {"context", 40},
              {"eval_batches", 0},
              {"steps", 3},
              {"lr", 0.01}};
  // Trained a little, so that rows of the table differ; then all look at the same parameters.
  run["packing"] = "padded";
  train(options("base", run));
  run.update({{"init", out("base").string()}, {"steps", 1}, {"lr", 0}, {"min_lr", 0}});
  const TrainResult alone = train(options("alone", run));
  run["packing"] = "documents";
  const TrainResult together = train(options("together", run));
  run["documents"] = "apart";
  const TrainResult apart = train(options("apart", run));
  ASSERT_TRUE(alone.val_loss && together.val_loss && apart.val_loss);
  EXPECT_NEAR(*apart.val_loss, *alone.val_loss, 1e-5);
  EXPECT_GT(std::abs(*together.val_loss - *alone.val_loss), 1e-4);
}

TEST_F(TrainOnData, PositionsAreAnInputWhereATableIsReadByThem) {
  const BoundModel model(find_model("char"), {.settings = {{"layers", 2}}});
  const Scheme forward = model.forward(3, 8), apart = with_segments(forward);
  verify(apart);
  EXPECT_EQ(apart.inputs.size(), forward.inputs.size() + 2);
  const Value positions = *apart.find({.path = "positions"});
  EXPECT_EQ(apart[positions].type, apart[*apart.find({.path = "tokens"})].type);
  EXPECT_EQ(with_segments(apart), apart) << "once is enough";
}

TEST_F(TrainOnData, SegmentsReachEveryAttention) {
  json run = {{"data", sums().string()}};
  const Trainer trainer(resolve_config({}, with_llama("run", run)));
  const Scheme forward = trainer.model().forward();
  const Scheme apart = with_segments(forward);
  verify(apart);
  EXPECT_EQ(apart.inputs.size(), forward.inputs.size() + 1);
  EXPECT_EQ(with_segments(apart), apart) << "who has segments keeps them";
  size_t readers = 0;
  const Value segments = *apart.find({.path = "segments"});
  for (const Morphism& m : apart.morphisms) {
    readers += std::count(m.inputs.begin(), m.inputs.end(), segments);
  }
  EXPECT_EQ(readers, 2u) << "llama-tiny has two blocks";
}

// Prompts at random and answers that are all alike: who is asked for answers alone is sure of them.
TEST_F(TrainOnData, WhatIsAskedIsNotTrained) {
  std::string lines;
  uint64_t state = 5;
  for (int i = 0; i < 200; ++i) {
    std::string prompt;
    for (int k = 0; k < 12; ++k) {
      state = state * 6364136223846793005 + 1442695040888963407;
      prompt += static_cast<char>('a' + (state >> 40) % 26);
    }
    lines += "{\"prompt\": \"" + prompt + "\", \"completion\": \"!!!!\"}\n";
  }
  const std::string file = put("same.jsonl", lines).string();
  const json run = {{"data", file}, {"steps", 60}, {"lr", 0.02}, {"eval_batches", 0}};
  const TrainResult result = train(with_llama("run", run));
  ASSERT_TRUE(result.val_loss);
  EXPECT_LT(*result.val_loss, 0.05);
}

TEST_F(TrainOnData, MessagesAreWrittenByATemplate) {
  std::string lines;
  for (int i = 0; i < 60; ++i) {
    lines += fmt::format(
        "{{\"messages\": [{{\"role\": \"user\", \"content\": \"{}?\"}}, {{\"role\": "
        "\"assistant\", \"content\": \"{}\"}}]}}\n",
        i, i * i);
  }
  json run = {{"data", put("talk.jsonl", lines).string()}, {"context", 128}};
  EXPECT_NE(error_of(with_llama("none", run)).find("say which with --template"), std::string::npos);
  run["template"] = "chatml";
  EXPECT_EQ(error_of(with_llama("run", run)), "no error");
  EXPECT_EQ(error_of(resume("run", {{"steps", 9}})), "no error");
}

// Tokens in a cache are named after what made them: also by what a user's own template says.
TEST_F(TrainOnData, ATemplateThatChangedIsReadAnew) {
  std::string lines;
  for (int i = 0; i < 60; ++i) {
    lines += fmt::format(
        "{{\"messages\": [{{\"role\": \"user\", \"content\": \"{}?\"}}, {{\"role\": "
        "\"assistant\", \"content\": \"{}\"}}]}}\n",
        i, i * i);
  }
  const fs::path cache = folder_ / "cache";
  const json run = {{"data", put("talk.jsonl", lines).string()},
                    {"template", (folder_ / "my.template").string()},
                    {"cache", cache.string()},
                    {"overwrite", true}};
  const auto shards = [&] {
    return std::count_if(fs::directory_iterator(cache), fs::directory_iterator(),
                         [](const auto& entry) { return entry.path().extension() == ".tokens"; });
  };
  put("my.template", "user = \"Q {}\\n\"\nassistant = \"A {}\\n{end}\"\n");
  train(with_llama("run", run));
  train(with_llama("run", run));
  EXPECT_EQ(shards(), 1);
  put("my.template", "user = \"Question {}\\n\"\nassistant = \"A {}\\n{end}\"\n");
  train(with_llama("run", run));
  EXPECT_EQ(shards(), 2);
}

TEST_F(TrainOnData, EpochsAndStallsAreInTheMetrics) {
  // 300 documents in 270 rows to train on at most; as many steps as an epoch has.
  json run = with_llama(
      "run", {{"data", sums().string()}, {"packing", "padded"}, {"epochs", 2}, {"batch", 30}});
  run.erase("steps");
  const TrainResult result = train(run);
  EXPECT_EQ(result.step, 18);
  const std::vector<json> lines = metrics("run");
  ASSERT_EQ(lines.size(), 18);
  EXPECT_NEAR(lines[8]["epoch"].get<double>(), 1, 0.02);
  EXPECT_NEAR(lines[17]["epoch"].get<double>(), 2, 0.04);
  for (const json& line : lines) EXPECT_GE(line["stall_s"].get<double>(), 0);
}

TEST_F(TrainOnData, BrokenLinesAreNamedOrLeftOut) {
  std::string said;
  set_note_writer([&](const std::string& text) { said = text; });
  const std::string file = put("b.jsonl", read_file(sums()) + "{\"prompt\": \"x\n").string();
  EXPECT_EQ(error_of(with_llama("run", {{"data", file}})),
            file + ": line 301: this is not JSON at column 14; --skip-bad leaves such lines out");
  EXPECT_FALSE(fs::exists(out("run"))) << "nothing was written";
  EXPECT_EQ(error_of(with_llama("run", {{"data", file}, {"skip_bad", true}})), "no error");
  set_note_writer(nullptr);
  EXPECT_EQ(said, file + ": 1 broken lines were left out");
}

// Conversations in which nobody answers, answers that say that they are not learned, fields whose
// targets are all ignored: such a run would end as it began.
TEST_F(TrainOnData, RefusesDataInWhichNothingIsLearned) {
  const auto talks = [&](const std::string& name, const std::string& answer) {
    std::string lines;
    for (int i = 0; i < 40; ++i) {
      lines += fmt::format(
          "{{\"messages\": [{{\"role\": \"user\", \"content\": \"say {}\"}}{}]}}\n", i, answer);
    }
    return put(name, lines).string();
  };
  const std::string none = talks("none.jsonl", "");
  const std::string unsaid =
      talks("unsaid.jsonl", R"(, {"role": "assistant", "content": "so", "weight": 0})");
  for (const std::string& file : {none, unsaid}) {
    for (const char* packing : {"documents", "padded", "crops"}) {
      const json run = with_llama(
          "run", {{"data", file}, {"template", "chatml"}, {"packing", packing}, {"context", 64}});
      EXPECT_EQ(error_of(run),
                file +
                    ": no token of the training part is learned, because all of it is read "
                    "alone: prompts, what others than the assistant say, and messages with "
                    "\"weight\": 0 or \"train\": false")
          << packing;
      EXPECT_FALSE(fs::exists(out("run")));
    }
  }
  std::vector<int32_t> tokens(400), ignored(400, -1);
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<int32_t>(i % 7);
  const auto view = [](const char* name, const std::vector<int32_t>& numbers) {
    return SafetensorView{.name = name,
                          .dtype = "I32",
                          .shape = {std::ssize(numbers)},
                          .data = numbers.data(),
                          .size = {4 * std::ssize(numbers)}};
  };
  const fs::path fields = folder_ / "fields.safetensors";
  AtomicFile file(fields);
  const std::vector<SafetensorView> views = {view("tokens", tokens), view("targets", ignored)};
  write_safetensors(file, views, {});
  file.commit();
  EXPECT_EQ(error_of(options("run", {{"data", fields.string()}, {"set", {{"vocab", 7}}}})),
            fields.string() +
                ": no token of the training part is learned, because all of its "
                "targets are the one that the loss ignores");
}

TEST_F(TrainOnData, TellsWhatIsNotLearnedAndWhatIsLonger) {
  std::vector<std::string> said;
  set_note_writer([&](const std::string& text) { said.push_back(text); });
  std::string lines = read_file(sums());
  lines += "{\"prompt\": \"a question\", \"completion\": \"\"}\n";
  lines = "{\"prompt\": \"another question\", \"completion\": \"\"}\n" + lines;
  lines += "{\"text\": \"this is one text that is longer than a row is\"}\n";
  const std::string file = put("mixed.jsonl", lines + read_file(sums())).string();
  train(with_llama("run", {{"data", file}}));
  set_note_writer(nullptr);
  const auto tells = [&](const std::string& words) {
    return std::any_of(said.begin(), said.end(),
                       [&](const std::string& text) { return has(text, words); });
  };
  EXPECT_TRUE(tells("2 of 542 documents (0.369%) hold nothing that is learned; " + file +
                    ": line 1, " + file + ": line 302"))
      << (said.empty() ? "" : said[0]);
  EXPECT_TRUE(tells("1 of 542 documents are longer than a sample of 24 tokens (--seq), and "));
}

// Ids of one tokenizer are rows of tables that were trained with them.
TEST_F(TrainOnData, TellsOfATokenizerAndATemplateThatAreNotTheFolders) {
  const auto bpe = [&](const std::string& name, const std::string& special) {
    const std::string text = read_file(data());
    const std::vector<std::string_view> texts = {text};
    const auto made = train_bpe(texts, {.vocab = 270, .specials = {special}});
    return put(name, byte_level_json(made)).string();
  };
  const std::string own = bpe("own.json", "<|im_start|>"), other = bpe("other.json", "<|other|>");
  train(with_llama("run", {{"tokenizer", own}}));
  const std::string model = out("model").string();
  convert(out("run"), model, {});
  std::string lines;
  for (int i = 0; i < 40; ++i) {
    lines += R"({"messages": [{"role": "user", "content": "cat"}, )"
             R"({"role": "assistant", "content": "sat"}]})"
             "\n";
  }
  const std::string talks = put("talks.jsonl", lines).string();
  const auto told = [&](const json& more) {
    std::string said;
    set_note_writer([&](const std::string& text) { said += text + "\n"; });
    json run = with_llama("again", {{"model", model}, {"overwrite", true}, {"steps", 1}});
    run.erase("tokenizer");
    run.update(more);
    const std::string error = error_of(run);
    set_note_writer(nullptr);
    return error == "no error" ? said : error;
  };
  EXPECT_EQ(told(json::object()), "");
  EXPECT_EQ(told({{"tokenizer", own}}), "");
  EXPECT_EQ(
      told({{"tokenizer", other}}),
      "--tokenizer " + other + ": it is not the tokenizer of " + model +
          ", by whose ids the weights were trained: 1 of 270 ids stand for other texts, and it "
          "has 270 ids where the folder's has 270\n");
  const json chat = {{"data", talks}, {"template", "chatml"}};
  const std::string spelled_out = "the template chatml writes <|im_end|>, and the tokenizer of " +
                                  model + " (bpe) has no such token: the model reads it as text\n";
  EXPECT_EQ(told(chat).substr(0, spelled_out.size()), spelled_out);
  write_file_atomically(fs::path(model) / "chat_template.jinja", "{{ '<|im_start|>' + messages }}");
  EXPECT_FALSE(has(told(chat), "the chat template of"));
  write_file_atomically(fs::path(model) / "chat_template.jinja", "{{ '[INST] ' + messages }}");
  EXPECT_TRUE(has(told(chat),
                  "the template chatml writes <|im_start|>, which the chat "
                  "template of " +
                      model + " does not"));
}

TEST_F(TrainOnData, RefusesWhatCannotBeRead) {
  const auto refused = [&](const json& more, const std::string& wanted) {
    json run = more;
    run["overwrite"] = true;
    const std::string error = error_of(with_llama("refused", run));
    EXPECT_NE(error.find(wanted), std::string::npos) << error;
    EXPECT_FALSE(fs::exists(out("refused")));
  };
  const std::string text = data().string(), bin = put("t.bin", std::string(4000, '\7')).string();
  refused({{"data", put("empty.jsonl", "\n").string()}}, "empty.jsonl: this source is empty");
  refused({{"data", {text + ":2", sums().string()}}}, "either all sources have a weight");
  refused({{"data", bin}}, "t.bin: it holds the token 1799, wanted 0 to 100");
  refused({{"data", put("u.bin", std::string(4000, '\0')).string()}, {"packing", "documents"}},
          "u.bin: it is not known where its documents end: say --end-of-text ID");
  refused({{"data", text}, {"packing", "documents"}}, "part of the data has no whole document");
  refused({{"data", put("short.txt", "short").string()}}, "a context of 24 needs at least 25");
  refused({{"data", (folder_ / "no*").string()}}, "no file is called so");
  refused({{"data", sums().string()}, {"template", "chatlm"}}, "did you mean 'chatml'?");
  refused({{"data", text}, {"steps", 3}, {"epochs", 1}}, "--steps and --epochs contradict");
}

TEST_F(TrainOnData, ARunGoesOnWithItsFolderOnly) {
  put("d/a.txt", read_file(data()));
  put("d/b.txt", "and more\n");
  const json run = {{"data", (folder_ / "d").string()}, {"stop_after", 3}};
  train(options("run", run));
  put("d/b.txt", "and less\n");
  EXPECT_NE(error_of(resume("run")).find("has changed since the run began"), std::string::npos);
  put("d/b.txt", "and more\n");
  EXPECT_EQ(error_of(resume("run")), "no error");
}

}  // namespace
}  // namespace adjoint
