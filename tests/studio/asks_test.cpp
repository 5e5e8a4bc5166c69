// Questions: a command's JSON, drafts, lanes, and what a question must not reach.
#include "studio/asks.h"

#include <gtest/gtest.h>

#include <atomic>
#include <fstream>
#include <thread>

#include "studio/commands.h"
#include "studio/running_studio.h"

namespace adjoint {
namespace {

using nlohmann::json;

json plan_of(const std::string& model) {
  return {{"args", {"plan", "--model", model, "--batch", "2"}}};
}

TEST(Ask, GivesTheCommandsOwnJson) {
  const RunningStudio studio;
  const json answer = studio.ask({{"args", {"functors"}}});
  ASSERT_EQ(answer["ok"], true) << answer;
  EXPECT_TRUE(answer["result"].is_array() || answer["result"].is_object());
  EXPECT_GT(answer["seconds"], 0);
  EXPECT_TRUE(answer["notes"].is_array());
  EXPECT_EQ(studio.ask({{"args", {"help", "attention", "--json"}}})["result"]["topic"],
            "attention");
}

TEST(Ask, SeesDraftsInsteadOfFiles) {
  const RunningStudio studio;
  studio.write("tiny.scheme", kTiny);
  const json saved = studio.ask(plan_of("tiny.scheme"));
  ASSERT_EQ(saved["ok"], true) << saved;
  std::string wider = kTiny;
  wider.replace(wider.find("hidden=16"), 9, "hidden=64");
  json question = plan_of("tiny.scheme");
  question["drafts"] = {{"tiny.scheme", wider}};
  const json drafted = studio.ask(question);
  ASSERT_EQ(drafted["ok"], true) << drafted;
  EXPECT_NE(drafted["result"].dump(), saved["result"].dump());
  EXPECT_EQ(read_file(studio / "tiny.scheme"), kTiny);
  // A file that was never saved, used by another draft.
  json fresh = plan_of("new.scheme");
  const std::string text = kTiny;
  const size_t model = text.find("model tokens");
  fresh["drafts"] = {{"new.scheme", "use \"parts/block.scheme\"\n" + text.substr(model)},
                     {"parts/block.scheme", text.substr(0, model)}};
  const json used = studio.ask(fresh);
  EXPECT_EQ(used["ok"], true) << used;
}

TEST(Ask, NamesThePlaceOfAMistake) {
  const RunningStudio studio;
  json question = plan_of("a/b.scheme");
  std::string text = kTiny;
  text.replace(text.find("attention("), 10, "atention(");
  question["drafts"] = {{"a/b.scheme", text}};
  const json answer = studio.ask(question);
  EXPECT_EQ(answer["ok"], false);
  EXPECT_EQ(answer["code"], 1);
  const json& error = answer["error"];
  EXPECT_EQ(error["file"], "a/b.scheme") << error;
  EXPECT_EQ(error["line"], 5) << error;
  EXPECT_GT(error["column"], 1) << error;
  EXPECT_NE(error["message"].get<std::string>().find("atention"), std::string::npos) << error;
  // Without a place, and a mistake of usage.
  const json none = studio.ask(plan_of("nothing"));
  EXPECT_FALSE(none["error"].contains("line")) << none;
  EXPECT_NE(none["error"]["message"].get<std::string>().find("there is no model"),
            std::string::npos);
  EXPECT_EQ(studio.ask({{"args", {"plan", "--modle", "x"}}})["code"], 2);
}

// verify says why on standard output.
TEST(Ask, GivesTheReasonOfAVerdict) {
  const RunningStudio studio;
  studio.write("tiny.scheme", kTiny);
  const json answer =
      studio.ask({{"args", {"verify", "--model", "tiny.scheme", "--stack", "zero(2)"}}});
  EXPECT_EQ(answer["ok"], false);
  EXPECT_EQ(answer["code"], 1);
  const std::string message = answer["error"]["message"];
  EXPECT_NE(message.find("there are no ranks of data to shard over"), std::string::npos) << answer;
  EXPECT_EQ(answer["result"]["refused"], true) << answer;
  EXPECT_EQ(answer["result"]["reason"], message) << answer;
}

TEST(Ask, ReadsNothingOutsideAndWritesNothing) {
  const RunningStudio studio;
  studio.write("tiny.scheme", kTiny);
  write_file_atomically(studio.folder / "out.scheme", kTiny);
  write_file_atomically(studio.folder / "out.functor", "functor f: \"x\"\n");
  std::filesystem::create_symlink(studio.folder / "out.scheme", studio / "link.scheme");
  studio.write("uses.scheme", "use \"../out.scheme\"\n");
  const std::string absolute = (studio.folder / "out.scheme").string();
  const auto refused = [&](const json& question) {
    const json answer = studio.ask(question);
    EXPECT_EQ(answer["ok"], false) << question << answer;
    EXPECT_NE(answer["error"]["message"].get<std::string>().find("outside the folder"),
              std::string::npos)
        << question << answer;
  };
  for (const std::string& model :
       {std::string("../out.scheme"), std::string("link.scheme"), absolute}) {
    refused(plan_of(model));
  }
  refused({{"args", {"plan", "--model", "tiny.scheme", "--stack", "../out.functor"}}});
  refused({{"args", {"plan", "--model", "tiny.scheme", "--optimizer", "../out.optimizer"}}});
  refused({{"args", {"plan", "--model", "tiny.scheme", "--device", "../out.device"}}});
  studio.write("x", "a text");
  refused({{"args", {"eval", "--model", "..", "--data", "x"}}});
  refused({{"args", {"tokenizer", "info", "--tokenizer", "../out.json"}}});
  json question = plan_of("tiny.scheme");
  question["drafts"] = {{"../out.scheme", kTiny}};
  refused(question);
  // What is used from outside is not there.
  const json uses = studio.ask(plan_of("uses.scheme"));
  EXPECT_NE(uses["error"]["message"].get<std::string>().find("there is no file"), std::string::npos)
      << uses;
  const json writes =
      studio.ask({{"args", {"plan", "--model", "tiny.scheme", "--chart", "memory.svg"}}});
  EXPECT_EQ(writes["ok"], false) << writes;
  EXPECT_NE(writes["error"]["message"].get<std::string>().find("only reads"), std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(studio / "memory.svg"));
}

// `verify` never ends, and everything else answers at once.
constexpr const char* kEndless = "case \"$*\" in *verify*) exec sleep 1000;; *) echo '{}';; esac\n";

json endless(const std::string& lane) { return {{"args", {"verify"}}, {"lane", lane}}; }

TEST(Ask, ANewerQuestionOfALaneEndsTheOlderOne) {
  const Script program(kEndless);
  const RunningStudio studio({.program = program.path()});
  json first, second;
  std::atomic<bool> answered = false;
  std::thread asker([&] {
    first = studio.ask(endless("a"));
    answered = true;
  });
  // One that comes before the first question ends nothing, so there are several.
  EXPECT_TRUE(comes_true([&] {
    second = studio.ask({{"args", {"ops"}}, {"lane", "a"}});
    return answered.load();
  }));
  asker.join();
  EXPECT_EQ(first, json({{"ok", false}, {"cancelled", true}}));
  EXPECT_EQ(second["ok"], true) << second;
}

TEST(Ask, AQuestionWhoseClientLeftGivesItsPlaceToOthers) {
  // A line in a file says that a question has begun.
  const TempFolder outside;
  const std::string begun = (outside / "begun").string();
  const Script program("case \"$*\" in *verify*) echo one >> " + begun +
                       "; exec sleep 1000;; *) echo '{}';; esac\n");
  const RunningStudio studio({.program = program.path()});  // two at once
  {
    RawSocket one(studio.client.port), two(studio.client.port);
    for (RawSocket* socket : {&one, &two}) {
      const std::string body = endless("").dump();
      socket->send(studio.client.head("POST", studio.client.prefix + "api/ask") +
                   "Content-Type: application/json\r\nContent-Length: " +
                   std::to_string(body.size()) + "\r\n\r\n" + body);
    }
    ASSERT_TRUE(comes_true(
        [&] { return std::filesystem::exists(begun) && read_file(begun) == "one\none\n"; }));
  }
  EXPECT_EQ(studio.ask({{"args", {"ops"}}})["ok"], true);
}

// A page calls its lanes PAGE:NAME, so that two tabs do not end each other's questions.
TEST(Ask, LanesOfTwoPagesAreApart) {
  const Script slow("sleep 0.4\necho '{}'\n");
  const RunningStudio studio({.program = slow.path()});
  const auto ask = [&](const std::string& lane) {
    return studio.ask({{"args", {"ops"}}, {"lane", lane}});
  };
  json one;
  std::thread other([&] { one = ask("9f8e7d6c-5b4a-4321-8765-0123456789ab:plan"); });
  const json two = ask("0a1b2c3d-4e5f-4678-9abc-def012345678:plan");
  other.join();
  EXPECT_EQ(one["ok"], true) << one;
  EXPECT_EQ(two["ok"], true) << two;
  const json longest = {{"args", {"ops"}}, {"lane", std::string(201, 'x')}};
  EXPECT_EQ(studio.client.post("api/ask", longest).status, 400);
  EXPECT_EQ(ask(std::string(200, 'x'))["ok"], true);
}

TEST(Ask, IsEndedWhereItTakesOrPrintsTooMuch) {
  const TempFolder folder;
  const Script slow("sleep 1000\n"), loud("yes\n");
  const auto never = [] { return false; };
  const json question = {{"args", {"ops"}}};
  Children sleepers(folder / "", slow.path()), talkers(folder / "", loud.path());
  Asks patient(sleepers, 1, {.time = std::chrono::milliseconds(1000)});
  const json late = json::parse(patient.ask(question, never));
  EXPECT_EQ(late["ok"], false);
  EXPECT_EQ(late["error"]["message"], "the command took longer than 1 seconds and was ended");
  Asks small(talkers, 1, {.output = 1 << 20});
  const json large = json::parse(small.ask(question, never));
  EXPECT_EQ(large["ok"], false);
  EXPECT_EQ(large["error"]["message"], "the command printed more than 1 MiB and was ended");
  // What documents say of the limits of a studio.
  EXPECT_EQ(AskLimits{}.time, std::chrono::seconds(120));
  EXPECT_EQ(AskLimits{}.output, size_t{64} << 20);
}

TEST(Commands, TellTheSentenceOfAnError) {
  const json place = error_of("adjoint: note: slow\nadjoint: m.scheme:3:17: wanted x\n", 1);
  EXPECT_EQ(place,
            json({{"file", "m.scheme"}, {"line", 3}, {"column", 17}, {"message", "wanted x"}}));
  EXPECT_EQ(error_of("adjoint: warning: 1000 threads: more than cores\n"
                     "adjoint: m.scheme:3:17: wanted x\n",
                     1),
            place);
  EXPECT_EQ(error_of("adjoint: a: b: c\n", 1), json({{"message", "a: b: c"}}));
  EXPECT_EQ(error_of("adjoint: one\nadjoint: two\n", 1), json({{"message", "one\ntwo"}}));
  EXPECT_EQ(error_of("", 3)["message"], "the command ended with code 3");
  EXPECT_EQ(error_of("", 1, R"({"ok":false,"reason":"a.scheme:3:7: no"})"),
            json({{"message", "no"}, {"file", "a.scheme"}, {"line", 3}, {"column", 7}}));
  EXPECT_EQ(error_of("", 1, R"({"reason":"the loss differs","smallest_broken_stack":"a | b"})"),
            json({{"message", "the loss differs; the smallest stack that breaks it: a | b"}}));
  EXPECT_EQ(
      error_of("", 1, R"({"pairs":[{"stack":"a","broken":[]},{"stack":"b","broken":["c"]}]})"),
      json({{"message", "'b': c"}}));
  EXPECT_EQ(error_of("", 1, "[1"), json({{"message", "the command ended with code 1"}}));
  EXPECT_NE(error_of("", 139)["message"].get<std::string>().find("Segmentation"),
            std::string::npos);
  EXPECT_EQ(notes_of("adjoint: note: slow\nx\nadjoint: warning: much\n"),
            (std::vector<std::string>{"slow", "much"}));
  EXPECT_EQ(option_of({"train", "--out", "a"}, "--out"), "a");
  EXPECT_EQ(option_of({"train", "--out=b"}, "--out"), "b");
  EXPECT_EQ(option_of({"train", "--outer", "b"}, "--out"), std::nullopt);
}

}  // namespace
}  // namespace adjoint
