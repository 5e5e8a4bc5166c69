// The binary itself: how it starts and is refused, and what is left when it, or a child, is killed.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <fstream>

#include "base/file.h"
#include "base/temp_folder.h"
#include "cli/outcome.h"
#include "studio/client.h"
#include "studio/running_studio.h"

namespace adjoint {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

// `adjoint studio` as a process.
class Process {
 public:
  // With a desktop: where its programs lie and its files for a session, both in this folder.
  explicit Process(const fs::path& folder, const fs::path& desktop = {}) {
    int ends[2];
    EXPECT_EQ(::pipe(ends), 0);
    pid = ::fork();
    if (pid == 0) {
      ::dup2(ends[1], 1);
      if (desktop.empty()) {
        ::execl(ADJOINT_BINARY, "adjoint", "studio", folder.c_str(), "--json", "--no-open",
                static_cast<char*>(nullptr));
      } else {
        ::setenv("PATH", (desktop.string() + ":/usr/bin:/bin").c_str(), 1);
        ::setenv("DISPLAY", ":0", 1);
        ::setenv("XDG_RUNTIME_DIR", desktop.c_str(), 1);
        ::execl(ADJOINT_BINARY, "adjoint", "studio", folder.c_str(), "--json",
                static_cast<char*>(nullptr));
      }
      ::_exit(9);
    }
    ::close(ends[1]);
    std::string line;
    for (char c; ::read(ends[0], &c, 1) == 1 && c != '\n';) line += c;
    ::close(ends[0]);
    const json about = json::parse(line, nullptr, false);
    EXPECT_TRUE(about.is_object()) << line;
    if (!about.is_object()) return;
    EXPECT_EQ(about["pid"], pid);
    url = about["url"];
    client = Client::of(about["url"]);
  }
  ~Process() { end(SIGKILL); }
  // Its exit code.
  int end(int signal) {
    if (pid < 0) return -1;
    ::kill(pid, signal);
    int status = 0;
    ::waitpid(pid, &status, 0);
    pid = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
  pid_t pid = -1;
  std::string url;
  Client client;
};

json train_request(const std::string& out) {
  return {{"args", {"train",    "--model",      "tiny.scheme", "--data",
                    "text.txt", "--tokenizer",  "char",        "--batch",
                    "2",        "--threads",    "1",           "--log-every",
                    "1",        "--eval-every", "0",           "--steps",
                    "1000000",  "--save-every", "20",          "--out",
                    out}}};
}

void add_inputs(const TempFolder& folder) {
  write_file_atomically(folder / "tiny.scheme", kTiny);
  write_file_atomically(folder / "text.txt", small_text());
}

bool trains(const fs::path& run) {
  return comes_true([&] {
    std::error_code none;
    return fs::exists(run / "save.json", none) && fs::file_size(run / "metrics.jsonl", none) > 2000;
  });
}

// Whether a process with this folder as its --out is there.
bool runs_somewhere(const std::string& out) {
  for (const auto& entry : fs::directory_iterator("/proc")) {
    std::ifstream in(entry.path() / "cmdline");
    const std::string words{std::istreambuf_iterator<char>(in), {}};
    if (words.find(out) != std::string::npos && words.find("train") != std::string::npos)
      return true;
  }
  return false;
}

int64_t last_step(const fs::path& metrics) {
  std::ifstream in(metrics);
  int64_t step = 0;
  for (std::string line; std::getline(in, line);) {
    const json entry = json::parse(line, nullptr, false);
    EXPECT_TRUE(entry.is_object()) << line;
    if (entry.is_object()) step = entry["step"];
  }
  return step;
}

// The run can go on, so its save is whole.
void goes_on(const TempFolder& folder, const std::string& out) {
  const int64_t steps = last_step(folder / out / "metrics.jsonl") + 2;
  const Outcome o = run("train --resume --threads 1 --out " + (folder / out).string() +
                        " --steps " + std::to_string(steps));
  EXPECT_EQ(o.code, 0) << o.text;
}

TEST(StudioProcess, RefusesWithOneSentence) {
  const TempFolder folder;
  const std::string here = (folder / "").string();
  const auto refused = [&](const std::string& words, const std::string& part) {
    const Outcome o = run("studio " + words + " --no-open");
    EXPECT_EQ(o.code, 1) << o.text;
    EXPECT_NE(o.text.find(part), std::string::npos) << o.text;
    EXPECT_EQ(std::count(o.text.begin(), o.text.end(), '\n'), 1) << o.text;
  };
  refused(here + "none", "there is no such folder");
  write_file_atomically(folder / "file", "x");
  refused((folder / "file").string(), "this is no folder");
  refused(here + " --port 70000", "wanted 1 to 65535");
  const Process first(folder / "");
  refused(here + " --port " + std::to_string(first.client.port), "another program has this port");
  const Process second(folder / "");  // takes another port
  EXPECT_NE(first.client.port, second.client.port);
  EXPECT_EQ(second.client.get("api/hello").json()["pid"], second.pid);
}

TEST(StudioProcess, RefusesAFolderThatCannotBeWritten) {
  if (::geteuid() == 0) GTEST_SKIP() << "root writes everywhere";
  const TempFolder folder;
  fs::permissions(folder / "", fs::perms::owner_read | fs::perms::owner_exec);
  const Outcome o = run("studio " + (folder / "").string() + " --no-open");
  fs::permissions(folder / "", fs::perms::owner_all);
  EXPECT_EQ(o.code, 1) << o.text;
  EXPECT_NE(o.text.find("cannot write"), std::string::npos) << o.text;
}

// Whoever is on this machine may read what a program was started with, so the address with its
// token is in a file of ours.
TEST(StudioProcess, OpensTheBrowserWithoutTellingTheToken) {
  const TempFolder folder, desktop;
  const std::string told = (desktop / "told").string();
  write_file_atomically(desktop / "xdg-open", "#!/bin/sh\nprintf '%s\\n' \"$@\" > " + told +
                                                  ".new\nmv " + told + ".new " + told + "\n");
  fs::permissions(desktop / "xdg-open", fs::perms::owner_all);
  Process studio(folder / "", desktop / "");
  ASSERT_TRUE(comes_true([&] { return fs::exists(told); }));
  std::string file = read_file(told);
  ASSERT_TRUE(file.ends_with(".html\n")) << file;
  file.pop_back();
  const std::string token = studio.client.prefix.substr(1, 32);
  EXPECT_EQ(file.find(token), file.npos) << file;
  EXPECT_EQ(fs::path(file).parent_path(), (desktop / "").parent_path()) << file;
  EXPECT_NE(read_file(file).find("0; url=" + studio.url + "\""), std::string::npos);
  EXPECT_EQ(fs::status(file).permissions(), fs::perms::owner_read | fs::perms::owner_write);
  EXPECT_EQ(studio.end(SIGTERM), 0);
  EXPECT_FALSE(fs::exists(file));
}

TEST(StudioProcess, EndsWhenAskedAndItsRunsSave) {
  const TempFolder folder;
  add_inputs(folder);
  Process studio(folder / "");
  const std::string out = (folder / "run").string();
  ASSERT_EQ(studio.client.post("api/jobs", train_request(out)).status, 200);
  ASSERT_TRUE(trains(out));
  EXPECT_EQ(studio.end(SIGTERM), 0);
  EXPECT_FALSE(runs_somewhere(out));
  goes_on(folder, "run");
}

TEST(StudioProcess, KilledItLeavesARunThatSavedAndStopped) {
  const TempFolder folder;
  add_inputs(folder);
  const std::string out = (folder / "killed_run").string();  // found in /proc by its name
  Process studio(folder / "");
  ASSERT_EQ(studio.client.post("api/jobs", train_request(out)).status, 200);
  ASSERT_TRUE(trains(folder / "killed_run"));
  studio.end(SIGKILL);
  EXPECT_TRUE(comes_true([&] { return !runs_somewhere(out); }));
  // It saved the step that it had reached, not the last of every twenty.
  const json save = json::parse(read_file(folder / "killed_run/save.json"));
  EXPECT_EQ(save["step"], last_step(folder / "killed_run/metrics.jsonl")) << save;
  goes_on(folder, "killed_run");
}

TEST(StudioProcess, AKilledChildTakesNothingDown) {
  const TempFolder folder;
  add_inputs(folder);
  const Process studio(folder / "");
  const std::string id = studio.client.post("api/jobs", train_request("run")).json()["id"];
  ASSERT_TRUE(trains(folder / "run"));
  const std::string lock = read_file(folder / "run/.lock");  // "adjoint 4711"
  ASSERT_EQ(::kill(std::stoi(lock.substr(8)), SIGKILL), 0) << lock;
  const std::string about = "api/jobs/" + id;
  EXPECT_TRUE(comes_true([&] { return studio.client.get(about).json()["state"] == "failed"; }));
  EXPECT_EQ(studio.client.get(about).json()["code"], 128 + SIGKILL);
  EXPECT_EQ(studio.client.get("api/hello").status, 200);
  goes_on(folder, "run");
}

TEST(StudioProcess, KilledWhileItWritesItLeavesWholeFiles) {
  const TempFolder folder;
  const std::string one(2 << 20, '1'), two(2 << 20, '2');
  write_file_atomically(folder / "text.txt", one);
  for (int round = 0; round < 4; ++round) {
    Process studio(folder / "");
    std::atomic<int> written = 0;
    std::thread writer([&] {
      for (int i = 0; i < 1000; ++i) {
        const json seen = studio.client.get("api/file?path=text.txt").json();
        if (!seen.is_object()) return;
        const json request = {
            {"path", "text.txt"}, {"text", i % 2 ? one : two}, {"etag", seen["etag"]}};
        if (studio.client.put("api/file", request).status != 200) return;
        ++written;
      }
    });
    // Somewhere between two writes that follow each other without a pause.
    EXPECT_TRUE(comes_true([&] { return written > 0; }));
    std::this_thread::sleep_for(std::chrono::milliseconds(3 + 7 * round));
    studio.end(SIGKILL);
    writer.join();
    EXPECT_LT(written, 1000) << "it was killed while somebody wrote";
    const std::string found = read_file(folder / "text.txt");
    EXPECT_TRUE(found == one || found == two) << found.size();
  }
  // What the killed ones left is not shown, and goes when it is old.
  const auto left = [&] {
    std::vector<fs::path> all;
    for (const auto& entry : fs::directory_iterator(folder / "")) {
      if (entry.path().filename() != "text.txt") all.push_back(entry.path());
    }
    return all;
  };
  write_file_atomically(folder / "text.txt.1-0123456789abcdef.new", "half");
  const Process shows(folder / "");
  const json files = shows.client.get("api/files").json()["files"];
  ASSERT_EQ(files.size(), 1u) << files;
  EXPECT_EQ(files[0]["path"], "text.txt");
  for (const fs::path& path : left()) {
    fs::last_write_time(path, fs::file_time_type::clock::now() - std::chrono::minutes(5));
  }
  const Process sweeps(folder / "");
  EXPECT_TRUE(comes_true([&] { return left().empty(); }));
}

}  // namespace
}  // namespace adjoint
