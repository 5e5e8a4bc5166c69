// Jobs: a small model is trained, watched, stopped and resumed.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <thread>

#include "studio/metrics_tail.h"
#include "studio/running_studio.h"

namespace adjoint {
namespace {

using nlohmann::json;

std::vector<std::string> train_words(const std::string& steps) {
  return {"train", "--model",      "tiny.scheme", "--data",    "text.txt", "--tokenizer",
          "char",  "--batch",      "2",           "--threads", "1",        "--log-every",
          "1",     "--eval-every", "0",           "--steps",   steps,      "--out",
          "runs/a"};
}

void add_inputs(const RunningStudio& studio) {
  studio.write("tiny.scheme", kTiny);
  studio.write("text.txt", small_text());
}

std::string start(const RunningStudio& studio, const std::vector<std::string>& words) {
  const Reply reply = studio.client.post("api/jobs", {{"args", words}});
  EXPECT_EQ(reply.status, 200) << reply.body;
  return reply.json().value("id", "");
}

json job_of(const RunningStudio& studio, const std::string& id) {
  return studio.client.get("api/jobs/" + id).json();
}

// All events of a job up to its end.
std::vector<json> all_events(const RunningStudio& studio, const std::string& id, int64_t from = 0) {
  EventReader reader(studio.client, "api/jobs/" + id + "/events?from=" + std::to_string(from));
  std::vector<json> events;
  for (json event; !(event = reader.next()).is_null();) events.push_back(event);
  return events;
}

std::vector<int64_t> steps_of(const std::vector<json>& events) {
  std::vector<int64_t> steps;
  for (const json& event : events) {
    if (event["kind"] == "metrics") steps.push_back(event["line"]["step"]);
  }
  return steps;
}

TEST(Job, TellsItsMetricsAndItsEnd) {
  const RunningStudio studio;
  add_inputs(studio);
  EventReader page(studio.client, "api/events");
  EXPECT_EQ(page.next()["kind"], "beat");  // from now on it hears all
  const std::string id = start(studio, train_words("20"));
  const std::vector<json> events = all_events(studio, id);
  ASSERT_GE(events.size(), 22);
  EXPECT_EQ(events.front()["state"], "running");
  EXPECT_EQ(events.back()["state"], "done") << events.back();
  const std::vector<int64_t> steps = steps_of(events);
  ASSERT_EQ(steps.size(), 20);
  for (int64_t i = 0; i < 20; ++i) EXPECT_EQ(steps[i], i + 1);
  std::string said;
  for (const json& event : events) {
    if (event["kind"] == "out") said += event["text"].get<std::string>() + "\n";
  }
  EXPECT_NE(said.find("saved step 20 of 20 to runs/a"), std::string::npos) << said;
  // A second tab sees the same, and a part of it.
  const std::vector<json> again = all_events(studio, id);
  EXPECT_EQ(again, events);
  const int64_t middle = events[10]["n"];
  EXPECT_EQ(all_events(studio, id, middle), std::vector<json>(events.begin() + 10, events.end()));
  EXPECT_EQ(studio.client.get("api/jobs/" + id + "/events?from=100000").status, 204);
  const Reply after_all = studio.client.raw(
      studio.client.head("GET", studio.client.prefix + "api/jobs/" + id + "/events") +
      "Last-Event-ID: 9223372036854775807\r\n\r\n");
  EXPECT_EQ(after_all.status, 204) << after_all.head;
  const json job = studio.client.get("api/jobs").json()["jobs"][0];
  EXPECT_EQ(job["state"], "done");
  EXPECT_EQ(job["folder"], "runs/a");
  EXPECT_EQ(job["code"], 0);
  std::vector<std::string> states;
  while (states.size() < 2) {
    const json event = page.next();
    ASSERT_FALSE(event.is_null());
    if (event["kind"] == "job") states.push_back(event["job"]["state"]);
  }
  EXPECT_EQ(states, (std::vector<std::string>{"running", "done"}));
  // The run that it left.
  const json run = studio.client.get("api/runs").json()["runs"][0];
  EXPECT_EQ(run["path"], "runs/a");
  EXPECT_EQ(run["step"], 20);
  EXPECT_EQ(run["steps"], 20);
  EXPECT_GT(run["loss"], 0);
  const json metrics = studio.client.get("api/runs/metrics?path=runs/a&from=0").json();
  EXPECT_EQ(metrics["lines"].size(), 20);
  EXPECT_EQ(metrics["next"], std::filesystem::file_size(studio / "runs/a/metrics.jsonl"));
  const std::string rest =
      "api/runs/metrics?path=runs/a&from=" + std::to_string(metrics["next"].get<int64_t>());
  EXPECT_EQ(studio.client.get(rest).json()["lines"].size(), 0);
}

// Whoever trains into a folder holds its lock, the studio's job or a command line.
TEST(Runs, SayWhetherSomebodyWrites) {
  const RunningStudio studio;
  studio.write("runs/a/run.json", R"({"options": {"model": "tiny.scheme", "steps": 5}})");
  studio.write("runs/a/.lock", "");
  const auto live = [&] { return studio.client.get("api/runs").json()["runs"][0]["live"]; };
  EXPECT_EQ(live(), false);
  const int file = ::open((studio / "runs/a/.lock").c_str(), O_RDWR | O_CLOEXEC);
  ASSERT_EQ(::flock(file, LOCK_EX | LOCK_NB), 0);
  EXPECT_EQ(live(), true);
  ::close(file);
  EXPECT_EQ(live(), false);
}

TEST(Job, IsStoppedAndResumed) {
  const RunningStudio studio;
  add_inputs(studio);
  const std::string id = start(studio, train_words("100000"));
  {
    EventReader reader(studio.client, "api/jobs/" + id + "/events");
    json event;
    do {
      event = reader.next();
      ASSERT_FALSE(event.is_null());
    } while (event["kind"] != "metrics");
  }
  EXPECT_EQ(studio.client.post("api/jobs/" + id + "/stop", {}).status, 200);
  ASSERT_TRUE(comes_true([&] { return job_of(studio, id)["state"] != "running"; }));
  EXPECT_EQ(job_of(studio, id)["state"], "stopped");
  EXPECT_TRUE(std::filesystem::exists(studio / "runs/a/model.safetensors"));
  const int64_t reached = steps_of(all_events(studio, id)).back();
  const std::string more = std::to_string(reached + 3);
  const std::string next =
      start(studio, {"train", "--resume", "--out", "runs/a", "--steps", more, "--log-every", "1"});
  const std::vector<json> events = all_events(studio, next);
  EXPECT_EQ(events.back()["state"], "done") << events.back();
  const std::vector<int64_t> steps = steps_of(events);
  ASSERT_FALSE(steps.empty());
  EXPECT_EQ(steps.back(), reached + 3);
  EXPECT_GE(steps.front(), 2);  // none of the first run's lines comes again
  EXPECT_LE(steps.size(), 4);
}

TEST(Job, ThatFailsSaysWhy) {
  const RunningStudio studio;
  add_inputs(studio);
  std::vector<std::string> words = train_words("5");
  words[4] = "../elsewhere.txt";
  const std::vector<json> events = all_events(studio, start(studio, words));
  EXPECT_EQ(events.back()["state"], "failed");
  EXPECT_EQ(events.back()["code"], 1);
  bool told = false;
  for (const json& event : events) {
    told |= event["kind"] == "err" &&
            event["text"].get<std::string>().find("outside the folder") != std::string::npos;
  }
  EXPECT_TRUE(told);
  EXPECT_FALSE(std::filesystem::exists(studio / "runs/a"));
  words = train_words("5");
  words.back() = "../outside";
  EXPECT_EQ(studio.client.post("api/jobs", {{"args", words}}).status, 400);
  words.back() = (studio.folder / "outside").string();
  EXPECT_EQ(all_events(studio, start(studio, words)).back()["state"], "failed");
  EXPECT_FALSE(std::filesystem::exists(studio.folder / "outside"));
  words.resize(words.size() - 2);
  EXPECT_EQ(studio.client.post("api/jobs", {{"args", words}}).status, 400);
}

// Starts a script that says that it is ready.
std::string start_ready(const RunningStudio& studio) {
  const std::string id = start(studio, {"plan"});
  EventReader reader(studio.client, "api/jobs/" + id + "/events");
  for (json event; !(event = reader.next()).is_null();) {
    if (event["kind"] == "out") return id;
  }
  ADD_FAILURE() << "it never said anything";
  return id;
}

TEST(Job, ThatDoesNotStopIsKilledWhenItIsAskedAgain) {
  const Script deaf("trap '' INT\necho ready\nwhile :; do sleep 0.05; done\n");
  const RunningStudio studio({.program = deaf.path()});
  const std::string id = start_ready(studio);
  const auto stop = [&] { return studio.client.post("api/jobs/" + id + "/stop", json::object()); };
  const auto asked = std::chrono::steady_clock::now();
  EXPECT_EQ(stop().status, 200);
  EXPECT_EQ(stop().status, 200);
  // Too soon to mean it, unless this machine stood still in between.
  if (std::chrono::steady_clock::now() - asked < std::chrono::seconds(2)) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2100));
    EXPECT_EQ(job_of(studio, id)["state"], "running");
    EXPECT_EQ(stop().status, 200);
  }
  EXPECT_TRUE(comes_true([&] { return job_of(studio, id)["state"] == "stopped"; }));
  EXPECT_EQ(job_of(studio, id)["code"], 128 + SIGKILL);
}

// It was asked more than two seconds ago, and has not saved yet when the studio ends.
TEST(Job, ThatIsSavingWhenTheStudioEndsSaves) {
  const TempFolder folder;
  const std::string saved = (folder / "saved").string(), go = (folder / "go").string();
  const Script slow("trap 'while [ ! -e " + go + " ]; do sleep 0.05; done; echo done > " + saved +
                    "; exit 0' INT\necho ready\nwhile :; do sleep 0.05; done\n");
  std::thread disk;  // is slow, and done while the studio ends
  {
    const RunningStudio studio({.program = slow.path()});
    const std::string id = start_ready(studio);
    EXPECT_EQ(studio.client.post("api/jobs/" + id + "/stop", json::object()).status, 200);
    std::this_thread::sleep_for(std::chrono::milliseconds(2200));
    EXPECT_FALSE(std::filesystem::exists(saved));
    disk = std::thread([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(500));
      write_file_atomically(go, "");
    });
  }
  disk.join();
  EXPECT_TRUE(std::filesystem::exists(saved));
}

TEST(Job, AreSixteenAtMostAndReadSavedFilesOnly) {
  const Script waits("exec sleep 1000\n");
  const RunningStudio studio({.program = waits.path()});
  for (int i = 0; i < 16; ++i) start(studio, {"plan"});
  const Reply more = studio.client.post("api/jobs", {{"args", {"plan"}}});
  EXPECT_EQ(more.status, 429);
  EXPECT_TRUE(more.sentence().starts_with("16 jobs are running")) << more.body;
  EXPECT_EQ(studio.client.post("api/jobs/3/stop", json::object()).status, 200);
  EXPECT_TRUE(comes_true([&] { return job_of(studio, "3")["state"] == "stopped"; }));
  const json drafted = {{"args", {"plan"}}, {"drafts", {{"a.scheme", "x"}}}};
  const Reply refused = studio.client.post("api/jobs", drafted);
  EXPECT_EQ(refused.status, 400);
  EXPECT_NE(refused.sentence().find("save the text first"), std::string::npos) << refused.body;
  EXPECT_EQ(start(studio, {"plan"}), "17");
}

TEST(Job, SaysThatItPrintedTooMuch) {
  const Script loud("echo '['\nhead -c 17000000 /dev/zero | tr '\\0' 1\necho ']'\n");
  const RunningStudio studio({.program = loud.path()});
  const std::string id = start(studio, {"plan"});
  ASSERT_TRUE(comes_true([&] { return job_of(studio, id)["state"] == "done"; }));
  const json job = job_of(studio, id);
  EXPECT_EQ(job["result"], nullptr);
  EXPECT_EQ(job["truncated"], true);
}

TEST(Job, IsAlsoHeardInThePagesOwnStream) {
  const RunningStudio studio;
  add_inputs(studio);
  EventReader page(studio.client, "api/events?jobs=1");
  EXPECT_EQ(page.next()["kind"], "beat");
  const std::string id = start(studio, train_words("3"));
  std::vector<json> said;
  while (said.empty() || said.back()["kind"] != "state" || said.back()["state"] == "running") {
    const json event = page.next();
    ASSERT_FALSE(event.is_null());
    if (event["kind"] == "said") said.push_back(event["event"]);
  }
  EXPECT_EQ(steps_of(said), (std::vector<int64_t>{1, 2, 3}));
  EventReader before(studio.client, "api/jobs/" + id + "/events?wait=0");
  EXPECT_EQ(before.next()["n"], 0);
}

TEST(Job, GivesItsJsonAsAResult) {
  const RunningStudio studio;
  add_inputs(studio);
  const std::string id = start(studio, {"plan", "--model", "tiny.scheme", "--json"});
  ASSERT_TRUE(comes_true([&] { return job_of(studio, id)["state"] == "done"; }));
  EXPECT_TRUE(job_of(studio, id)["result"].is_object());
  EXPECT_EQ(job_of(studio, id)["truncated"], false);
}

TEST(MetricsTail, FollowsAFileThatIsCutAndGrows) {
  const TempFolder folder;
  const auto file = folder / "metrics.jsonl";
  const auto line = [](int step) { return "{\"step\": " + std::to_string(step) + "}\n"; };
  const auto steps = [](const std::vector<json>& lines) {
    std::vector<int> all;
    for (const json& each : lines) all.push_back(each["step"]);
    return all;
  };
  write_file_atomically(file, line(1) + line(2) + line(3));
  MetricsTail tail(file);
  EXPECT_EQ(steps(tail.next()), (std::vector<int>{}));
  write_file_atomically(file, line(1) + line(2) + line(3) + line(4) + "{\"step\"");
  EXPECT_EQ(steps(tail.next()), (std::vector<int>{4}));
  write_file_atomically(file, line(1) + line(2));  // back to a save
  EXPECT_EQ(steps(tail.next()), (std::vector<int>{}));
  write_file_atomically(file, line(1) + line(2) + line(30));
  EXPECT_EQ(steps(tail.next()), (std::vector<int>{30}));
  write_file_atomically(file, line(7));  // begun anew
  EXPECT_EQ(steps(tail.next()), (std::vector<int>{7}));
  const auto write_in_place = [&](const std::string& text) { std::ofstream(file) << text; };
  write_in_place(line(8));  // begun anew, and as long
  EXPECT_EQ(steps(tail.next()), (std::vector<int>{8}));
  write_in_place(line(9) + line(10));  // begun anew, and longer
  EXPECT_EQ(steps(tail.next()), (std::vector<int>{9, 10}));
  std::filesystem::remove(file);
  EXPECT_EQ(steps(tail.next()), (std::vector<int>{}));
  write_in_place(line(9));
  EXPECT_EQ(steps(tail.next()), (std::vector<int>{9}));
}

// No run writes such a line, and a stranger's must not hold up those behind it.
TEST(MetricsTail, ComesPastALineThatIsTooLong) {
  const TempFolder folder;
  const auto file = folder / "metrics.jsonl";
  std::ofstream(file) << "{\"step\": 1}\n{\"x\": \"" << std::string(9'000'000, 'x')
                      << "\"}\n{\"step\": 2}\n";
  const int64_t size = static_cast<int64_t>(std::filesystem::file_size(file));
  int64_t from = 0;
  std::vector<int> steps;
  for (int asked = 0; from < size && asked < 20; ++asked) {
    const MetricsPart part = read_metrics(file, from, 4 << 20);
    for (const json& line : part.lines) {
      if (line.contains("step")) steps.push_back(line["step"]);
    }
    from = part.next;
  }
  EXPECT_EQ(from, size);
  EXPECT_EQ(steps, (std::vector<int>{1, 2}));
}

}  // namespace
}  // namespace adjoint
