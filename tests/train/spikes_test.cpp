// Steps that go wrong: what is told of them, and that nothing but them is missing afterwards.
#include "train/spikes.h"

#include <cmath>
#include <deque>
#include <fstream>
#include <numeric>

#include "base/json.h"
#include "data/safetensors.h"
#include "device/parallel.h"
#include "ops/builder.h"
#include "run/parameters.h"
#include "train/train_folder.h"

namespace adjoint {
namespace {

// A hundred documents of one kind, and one of another, which stands out once the run has learned.
class OddDocument : public TrainFolder {
 protected:
  static constexpr int kOdd = 40;  // its line

  void SetUp() override {
    std::string lines;
    for (int i = 1; i <= 100; ++i) {
      const std::string text = i == kOdd ? "9#7@1!5$3%8^6&2*4(0)9#7@1!5$3%8^"
                                         : "the cat sat on mat " + std::to_string(i * 37 % 101);
      lines += json{{"text", text}}.dump() + "\n";
    }
    write_file_atomically(talks(), lines);
  }
  fs::path talks() const { return folder_ / "talks.jsonl"; }
  json run(const std::string& name, json more = json::object()) const {
    json all = {{"data", talks().string()},
                {"steps", 120},
                {"context", 34},
                {"lr", 0.02},
                {"warmup", 0},
                {"packing", "padded"},
                {"spike", 1.6},
                {"on_spike", "skip"},
                {"eval_every", 0}};
    all.update(more);
    return options(name, all);
  }
  std::vector<json> spikes(const std::string& name) const {
    std::vector<json> all;
    std::ifstream in(out(name) / "spikes.jsonl");
    for (std::string line; std::getline(in, line);) all.push_back(json::parse(line));
    return all;
  }
  void expect_same_numbers(const std::string& a, const std::string& b) const {
    for (const char* file : {"model.safetensors", "optimizer.safetensors"}) {
      const SafetensorsFile x(out(a) / file), y(out(b) / file);
      ASSERT_EQ(x.tensors().size(), y.tensors().size());
      for (const SafetensorView& t : x.tensors()) {
        const SafetensorView* other = y.find(t.name);
        ASSERT_TRUE(other && other->size == t.size) << t.name;
        EXPECT_EQ(std::string_view(static_cast<const char*>(t.data), t.size.count),
                  std::string_view(static_cast<const char*>(other->data), t.size.count))
            << t.name;
      }
    }
  }
};

TEST_F(OddDocument, IsSkippedAndNamed) {
  ASSERT_EQ(train(run("whole")).step, 120);
  const std::vector<json> told = spikes("whole");
  ASSERT_FALSE(told.empty());
  const int64_t at = told[0]["step"];
  EXPECT_EQ(told[0]["wrong"], "spike");
  EXPECT_EQ(told[0]["done"], "skipped");
  EXPECT_GT(told[0]["loss"].get<double>(), 1.6 * told[0]["usual"].get<double>());
  // The samples are those of the last one.
  const json samples = read_json(out("whole") / "spike.json");
  EXPECT_EQ(samples["step"], told.back()["step"]);
  bool named = false;
  for (const json& sample : samples["samples"]) {
    ASSERT_EQ(sample["documents"].size(), 1) << "one a row";
    const json& document = sample["documents"][0];
    EXPECT_EQ(document["file"], talks().string());
    const bool odd = sample["text"].get<std::string>().find('#') != std::string::npos;
    EXPECT_EQ(document["line"] == kOdd, odd) << sample;
    named = named || odd;
  }
  EXPECT_TRUE(named) << samples;
  // Everything is as before that step, also what the optimizer counts.
  train(run("before", {{"stop_after", at - 1}}));
  train(run("behind", {{"stop_after", at}}));
  expect_same_numbers("before", "behind");
  train(run("on", {{"stop_after", at + 1}}));
  EXPECT_NE(read_file(out("on") / "model.safetensors"),
            read_file(out("behind") / "model.safetensors"));
  // Who goes on from before skips the same steps.
  train(resume("before"));
  expect_same_numbers("before", "whole");
  EXPECT_EQ(spikes("before").size(), told.size());
  bool logged = false;
  std::ifstream lines(out("whole") / "metrics.jsonl");
  for (std::string line; std::getline(lines, line);) {
    const json entry = json::parse(line);
    if (entry["step"] == at) logged = entry["skipped"] == 1;
  }
  EXPECT_TRUE(logged);
}

TEST_F(OddDocument, IsLeftOutByGoingBack) {
  const json back = {{"on_spike", "back"}, {"save_every", 7}};
  ASSERT_EQ(train(run("whole", back)).step, 120);
  const std::vector<json> told = spikes("whole");
  ASSERT_GE(told.size(), 2) << "it comes once an epoch";
  const json position = read_json(out("whole") / "position.json");
  ASSERT_EQ(position["left_out"].size(), told.size());
  for (size_t i = 0; i < told.size(); ++i) {
    EXPECT_EQ(position["left_out"][i], told[i]["batch"]) << "each only once";
    const int64_t step = told[i]["step"];
    EXPECT_EQ(told[i]["done"], "went back to step " + std::to_string((step - 1) / 7 * 7));
  }
  std::ifstream lines(out("whole") / "metrics.jsonl");
  int64_t count = 0;
  for (std::string line; std::getline(lines, line);) {
    EXPECT_EQ(json::parse(line)["step"], ++count) << "a line a step";
  }
  EXPECT_EQ(count, 120);
  // A run that ends soon after it went back, and is resumed at an earlier save: the batch stays
  // out.
  json parts = back;
  parts["stop_after"] = told[0]["step"].get<int64_t>() + 1;
  parts["keep"] = 2;
  train(run("parts", parts));
  const auto earlier = (told[0]["step"].get<int64_t>() - 1) / 7 * 7;
  train(resume("parts/step-" + std::to_string(earlier)));
  expect_same_numbers("parts/step-" + std::to_string(earlier), "whole");
}

// Any loss is above a thousandth of the mean, so every batch is taken for a spike.
TEST_F(OddDocument, ARunThatOnlySkipsEnds) {
  const std::string skips = error_of(run("skips", {{"spike", 1e-3}}));
  EXPECT_NE(skips.find("at step 20 the loss is "), std::string::npos) << skips;
  EXPECT_EQ(spikes("skips").back()["done"], "stopped");
  const std::string backs =
      error_of(run("backs", {{"spike", 1e-3}, {"on_spike", "back"}, {"save_every", 7}}));
  EXPECT_NE(backs.find("went back to step 7 10 times already"), std::string::npos) << backs;
  EXPECT_EQ(SavedModel(SavePaths(out("backs"))).step(), 7);
}

TEST_F(OddDocument, GuardsAlsoWhatDoesNotClipAndScalesItsLoss) {
  const json more[] = {{{"clip", 0.0}}, {{"stack", "fp16"}}, {{"stack", "ema | accumulate(2)"}}};
  for (const json& one : more) {
    json options = one;
    options["overwrite"] = true;
    ASSERT_EQ(train(run("whole", options)).step, 120) << one;
    const std::vector<json> told = spikes("whole");
    ASSERT_FALSE(told.empty()) << one;
    const int64_t at = told[0]["step"];
    options["stop_after"] = at - 1;
    train(run("before", options));
    options["stop_after"] = at;
    train(run("behind", options));
    const SafetensorsFile x(out("before") / "model.safetensors"),
        y(out("behind") / "model.safetensors");
    EXPECT_EQ(x.metadata().at("checksum"), y.metadata().at("checksum")) << one;
    const SafetensorsFile a(out("before") / "optimizer.safetensors"),
        b(out("behind") / "optimizer.safetensors");
    for (const SafetensorView& t : a.tensors()) {
      if (t.name.starts_with("loss_scale")) continue;  // counts good steps
      EXPECT_EQ(std::string_view(static_cast<const char*>(t.data), t.size.count),
                std::string_view(static_cast<const char*>(b.find(t.name)->data), t.size.count))
          << one << t.name;
    }
  }
}

TEST(Spikes, AreToldFromWhatIsUsual) {
  const auto wrong = [](std::vector<double> outputs, bool scaled = false) {
    const auto found = wrong_with(StepNumbers(outputs, outputs.size() > 3), scaled);
    return found ? name(*found) : "nothing";
  };
  EXPECT_EQ(wrong({2, 8, 1}), "nothing");
  EXPECT_EQ(wrong({NAN, 8, NAN}), "loss");
  EXPECT_EQ(wrong({2, 8, INFINITY}), "gradient");
  EXPECT_EQ(wrong({2, 8, INFINITY}, true), "nothing") << "the scale is halved";
  EXPECT_EQ(wrong({2, 8, 1, 1, 2}), "nothing");
  EXPECT_EQ(wrong({9, 8, 1, 0, 2}), "spike");
  EXPECT_EQ(wrong({0, 0, 0, 0, 2}), "nothing") << "no target was counted";
  EXPECT_EQ(words_for({{"a.jsonl", 3}, {"a.jsonl", 3}, {"b.txt"}, {""}}), "a.jsonl line 3, b.txt");
  EXPECT_EQ(words_for({{"a"}, {"b"}, {"c"}, {"d"}, {"e"}, {"f"}}), "a, b, c, d, and 2 more");
}

// The op beside a plain list of the last losses, longer than it remembers.
TEST(Spikes, AreComparedWithTheLastLosses) {
  Scheme s;
  Builder builder(s);
  const Value loss = builder.control("loss", {Dtype::kF32, {}});
  const Value count = builder.control("count", {Dtype::kF32, {}});
  constexpr int64_t kKept = 12;
  const Value losses = s.add_input({.type = {Dtype::kF32, {{"n", kKept + 1}}},
                                    .source = {"losses"},
                                    .role = Role::kState,
                                    .init = Init{}});
  const auto told = builder.emit_all("watch_loss", {loss, count, losses}, {{"times", 2.0}});
  s[told[1]].role = Role::kState;
  s.carries.push_back({losses, told[1]});
  s.outputs = {told[0], told[2]};
  adjoint::Run run(s, make_plan(s, {.threads = num_threads()}));
  initialize(run, 1);
  std::deque<double> last;
  for (int step = 0; step < 100; ++step) {
    const bool counted = step % 9 != 4;
    const double now = step % 17 == 16 ? 50.0 : step % 23 == 22 ? NAN : 1.0 + step % 5;
    run.set_number(loss, now);
    run.set_number(count, counted ? 8 : 0);
    run.step();
    const double usual =
        std::accumulate(last.begin(), last.end(), 0.0) / std::max<double>(1, last.size());
    const bool far = last.size() >= 10 && now > 2 * usual;
    const bool take = std::isfinite(now) && !far;
    EXPECT_EQ(run.number(told[0]), take) << step;
    EXPECT_NEAR(run.number(told[2]), usual, 1e-5) << step;
    if (!take || !counted) continue;
    last.push_back(now);
    if (last.size() > kKept) last.pop_front();
  }
}

TEST_F(TrainFolder, RefusesAPositionThatIsNone) {
  train(options("run", {{"stop_after", 3}}));
  for (const char* text :
       {"{}", R"({"left_out": [-1], "sizes": []})", R"({"left_out": [], "sizes": [1]})",
        R"({"left_out": [], "sizes": [{"batch": 2, "sample": 4}, {"batch": 1, "sample": 9}]})"}) {
    write_file_atomically(out("run") / "position.json", text);
    const std::string error = error_of(resume("run"));
    EXPECT_NE(error.find("position.json: wanted "), std::string::npos) << error;
  }
  EXPECT_NE(error_of(options("run", {{"overwrite", true}, {"on_spike", "jump"}}))
                .find("option 'on_spike': wanted stop or skip or back, found jump"),
            std::string::npos);
}

}  // namespace
}  // namespace adjoint
