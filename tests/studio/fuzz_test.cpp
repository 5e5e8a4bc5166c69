// Random requests against a running studio, made by changing good ones: bytes of the message,
// values of the JSON. Whatever comes, an answer comes or the connection ends, nothing outside
// changes, no command is ended by a signal, and the studio answers afterwards. ADJOINT_FUZZ_SECONDS
// says how long (2 if it does not).
#include <gtest/gtest.h>

#include <cstdlib>
#include <random>

#include "studio/running_studio.h"

namespace adjoint {
namespace {

using nlohmann::json;

class Fuzzer {
 public:
  explicit Fuzzer(const RunningStudio& studio) : studio_(studio) {}

  void one_request() {
    switch (below(4)) {
      case 0:
        return send_bytes();
      case 1:
        return send_target();
      default:
        return send_json();
    }
  }

  int answered = 0, unanswered = 0;
  std::vector<std::string> failures = {};  // answers with 500, and commands that broke

  // What a command broke at is known when it has ended.
  void note_jobs() {
    const json all = studio_.client.get("api/jobs").json();
    for (const json& job : all["jobs"]) {
      const bool broke = job["state"] == "failed" && job["code"] >= kSignal;
      if (broke) failures.push_back(job.dump());
    }
  }

 private:
  static constexpr int kSignal = 128;  // a code from here on is a signal's, and 3 the machine's

  size_t below(size_t n) { return random_() % n; }
  template <class T>
  const T& one_of(const std::vector<T>& all) {
    return all[below(all.size())];
  }

  void note(const Reply& reply, const std::string& asked) {
    ++(reply.status ? answered : unanswered);
    const json said = reply.json();
    const bool broke = said.is_object() && said.contains("code") && said["code"].is_number() &&
                       said.contains("ok") && (said["code"] >= kSignal || said["code"] == 3);
    const bool ours = reply.body.find("json.exception") != std::string::npos;
    if (reply.status == 500 || broke || ours) failures.push_back(asked + "\n" + reply.body);
  }

  std::string some_text() {
    static const std::vector<std::string> texts = {"",
                                                   ".",
                                                   "..",
                                                   "../x",
                                                   "tiny.scheme",
                                                   "a.txt",
                                                   "link.txt",
                                                   "up/secret.txt",
                                                   "/etc/passwd",
                                                   "runs/a",
                                                   "--json",
                                                   "--out",
                                                   "--model",
                                                   "--chart",
                                                   "%00",
                                                   "\xff",
                                                   "x/y/z.txt",
                                                   "a\nb",
                                                   std::string("a\0b", 3),
                                                   std::string(5000, 'a'),
                                                   "--inside",
                                                   "*",
                                                   "~",
                                                   "$(id)"};
    return one_of(texts);
  }

  json some_value(int depth = 0) {
    switch (below(depth > 3 ? 6 : 8)) {
      case 0:
        return nullptr;
      case 1:
        return below(2) == 0;
      case 2:
        return static_cast<int64_t>(random_());
      case 3:
        return -1.5e300;
      case 4:
      case 5:
        return some_text();
      case 6: {
        json list = json::array();
        for (size_t i = below(4); i > 0; --i) list.push_back(some_value(depth + 1));
        return list;
      }
      default: {
        json object = json::object();
        for (size_t i = below(4); i > 0; --i) object[some_text()] = some_value(depth + 1);
        return object;
      }
    }
  }

  // Changes some values of a good request.
  json changed(json value) {
    if (below(4) == 0) return some_value();
    if (value.is_structured()) {
      for (auto& inner : value) {
        if (below(3) == 0) inner = changed(inner);
      }
    }
    if (value.is_object() && below(6) == 0) value[some_text()] = some_value();
    if (value.is_array() && below(4) == 0) value.push_back(some_text());
    return value;
  }

  void send_json() {
    static const json diagram =
        json::parse(read_file(std::string(SOURCE_DIR) + "/tests/fuzz/seeds/viete/hand.json"));
    static const std::string tiny = kTiny;
    const auto edit = [&](const json& wanted) {
      return json{{"args", {"edit"}},
                  {"stdin", {{"file", "tiny.scheme"}, {"edit", wanted}, {"read", true}}},
                  {"drafts", {{"tiny.scheme", tiny}}}};
    };
    static const std::vector<std::pair<std::string, json>> good = {
        {"ask", edit({{"kind", "set"}, {"axis", "hidden"}, {"to", "32"}})},
        {"ask", edit({{"kind", "rename"}, {"box", "block"}, {"to", "b"}})},
        {"ask", edit({{"kind", "insert"},
                      {"at", {{"box", "block"}, {"statement", 0}, {"path", {0, 1}}}},
                      {"call", "dropout(_, 0.1)"}})},
        {"ask", edit({{"kind", "fold"},
                      {"at", {{"box", "block"}, {"statement", 0}, {"path", {0, 1}}}},
                      {"name", "half"},
                      {"axes", {{"x", {"batch", "seq", "hidden"}}}}})},
        {"ask",
         {{"args", {"plan", "--model", "drawn.json"}},
          {"drafts", {{"drawn.json", diagram.dump()}}}}},
        {"ask",
         {{"args", {"show", "--model", "tiny.scheme"}}, {"drafts", {{"tiny.scheme", tiny}}}}},
        {"ask",
         {{"args", {"plan", "--model", "tiny.scheme", "--stack", "own.functor"}},
          {"drafts",
           {{"tiny.scheme", tiny},
            {"own.functor",
             "functor own(n = 2):\n  law exact\n  object activation -> "
             "recomputed when n > 1\n"}}}}},
        {"ask", {{"args", {"help", "attention"}}, {"lane", "a"}, {"drafts", {{"a.txt", "x"}}}}},
        {"ask", {{"args", {"plan", "--model", "tiny.scheme"}}, {"drafts", {{"tiny.scheme", "x"}}}}},
        {"rename", {{"from", "a.txt"}, {"to", "b.txt"}}},
        {"delete", {{"path", "a.txt"}, {"etag", "x"}}},
        {"file", {{"path", "a.txt"}, {"text", "x"}, {"etag", nullptr}}},
        {"jobs", {{"args", {"plan", "--model", "tiny.scheme", "--json"}}}},
        {"jobs/1/stop", json::object()}};
    const auto& [what, body] = one_of(good);
    json request = changed(body);
    change_draft(request);
    std::string text = request.dump(-1, ' ', false, json::error_handler_t::ignore);
    for (size_t i = below(3); i > 0 && !text.empty() && below(3) == 0; --i) {
      text[below(text.size())] = static_cast<char>(random_());
    }
    note(studio_.client.send(what == "file" ? "PUT" : "POST", "api/" + what, text), text);
  }

  // Bytes of a draft that is a text still: a model, a functor or a diagram that is almost right.
  void change_draft(json& request) {
    if (!request.is_object() || !request.contains("drafts") || !request["drafts"].is_object()) {
      return;
    }
    for (auto& draft : request["drafts"]) {
      if (!draft.is_string() || below(2) == 0) continue;
      std::string text = draft.get<std::string>();
      for (size_t i = 1 + below(3); i > 0 && !text.empty(); --i) {
        const size_t at = below(text.size());
        static const std::string pieces = "()[]{},:=^*+-_#\"\n x1l";
        switch (below(3)) {
          case 0:
            text[at] = pieces[below(pieces.size())];
            break;
          case 1:
            text.erase(at, below(12));
            break;
          default:
            text.insert(at, text.substr(below(text.size()), below(30)));
        }
      }
      draft = text;
    }
  }

  void send_target() {
    static const std::vector<std::string> good = {"api/hello",
                                                  "api/files",
                                                  "api/file?path=a.txt",
                                                  "api/runs",
                                                  "api/runs/metrics?path=runs/a&from=0",
                                                  "api/jobs",
                                                  "api/jobs/1",
                                                  "assets/x.js",
                                                  ""};
    std::string target = one_of(good);
    for (size_t i = below(4); i > 0; --i) {
      static const std::vector<std::string> pieces = {"..", "/",   "%2e", "%2f", "%",   "?",    "&",
                                                      "=",  "%00", "\\",  "~",   "%ff", "path="};
      target.insert(below(target.size() + 1), one_of(pieces));
    }
    note(studio_.client.get(target), target);
  }

  void send_bytes() {
    std::string text = studio_.client.head("POST", studio_.client.prefix + "api/ask") +
                       "Connection: close\r\nContent-Type: application/json\r\n"
                       "Content-Length: 16\r\n\r\n{\"args\":[\"help\"]}";
    for (size_t i = below(6); i > 0; --i) {
      const size_t at = below(text.size());
      switch (below(3)) {
        case 0:
          text[at] = static_cast<char>(random_());
          break;
        case 1:
          text.erase(at, below(8));
          break;
        default:
          text.insert(at, text.substr(below(text.size()), below(20)));
      }
    }
    RawSocket socket(studio_.client.port);
    socket.send(text);
    note(socket.reply(100), text);  // one that waits for more is left
  }

  const RunningStudio& studio_;
  std::mt19937_64 random_{20261118};
};

TEST(StudioFuzz, NothingBreaksAndNothingOutsideChanges) {
  RunningStudio studio;
  studio.write("tiny.scheme", kTiny);
  studio.write("a.txt", "x");
  write_file_atomically(studio.folder / "secret.txt", "outside");
  std::filesystem::create_symlink(studio.folder / "secret.txt", studio / "link.txt");
  std::filesystem::create_symlink(studio.folder / "", studio / "up");
  // The same requests on every machine, or as many as there is time for.
  const char* seconds = std::getenv("ADJOINT_FUZZ_SECONDS");
  const auto end =
      std::chrono::steady_clock::now() + std::chrono::seconds(seconds ? std::atoi(seconds) : 0);
  Fuzzer fuzzer(studio);
  for (int sent = 0; sent < 200 || std::chrono::steady_clock::now() < end; ++sent) {
    if (HasFailure()) break;
    fuzzer.one_request();
    EXPECT_TRUE(fuzzer.failures.empty()) << fuzzer.failures.front();
  }
  fuzzer.note_jobs();
  EXPECT_TRUE(fuzzer.failures.empty()) << fuzzer.failures.front();
  std::printf("%d requests answered, %d connections ended\n", fuzzer.answered, fuzzer.unanswered);
  EXPECT_GT(fuzzer.answered, 20);
  EXPECT_EQ(studio.client.get("api/hello").status, 200);
  EXPECT_EQ(read_file(studio.folder / "secret.txt"), "outside");
  std::vector<std::string> outside;
  for (const auto& entry : std::filesystem::directory_iterator(studio.folder / "")) {
    outside.push_back(entry.path().filename().string());
  }
  std::sort(outside.begin(), outside.end());
  EXPECT_EQ(outside, (std::vector<std::string>{"root", "secret.txt"}));
}

}  // namespace
}  // namespace adjoint
