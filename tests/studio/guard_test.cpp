// Hostile requests get nothing.
#include "studio/guard.h"

#include <gtest/gtest.h>

#include "studio/running_studio.h"

namespace adjoint {
namespace {

using nlohmann::json;

TEST(Token, IsRandomAndCompared) {
  EXPECT_EQ(random_token().size(), 32);
  EXPECT_NE(random_token(), random_token());
  EXPECT_TRUE(same_secret("abc", "abc"));
  EXPECT_FALSE(same_secret("abc", "abd"));
  EXPECT_FALSE(same_secret("abc", "ab"));
  EXPECT_FALSE(same_secret("", "a"));
}

// Of the usual port browsers do not speak.
TEST(Guard, KnowsItsHostWithoutAPortOnTheUsualOne) {
  const auto refuses = [](int port, const std::string& host) {
    HttpRequest request;
    request.method = "GET";
    request.path = "/t/";
    request.headers = {{"host", host}, {"origin", "http://" + host}};
    return Guard("t", port).refusal(request).has_value();
  };
  EXPECT_FALSE(refuses(80, "127.0.0.1"));
  EXPECT_FALSE(refuses(80, "localhost:80"));
  EXPECT_TRUE(refuses(81, "127.0.0.1"));
  EXPECT_TRUE(refuses(80, "127.0.0.1:81"));
}

class Hostile : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    studio_ = new RunningStudio;
    studio_->write("a.txt", "inside");
    write_file_atomically(studio_->folder / "secret.txt", "outside");
    std::filesystem::create_symlink(studio_->folder / "secret.txt", *studio_ / "link.txt");
    std::filesystem::create_symlink(studio_->folder / "", *studio_ / "up");
  }
  static void TearDownTestSuite() {
    delete studio_;
    studio_ = nullptr;
  }
  static const Client& client() { return studio_->client; }
  static RunningStudio* studio_;
};
RunningStudio* Hostile::studio_ = nullptr;

void gets_nothing(const Reply& reply, int status) {
  EXPECT_EQ(reply.status, status) << reply.head;
  EXPECT_EQ(reply.body, "");
}

TEST_F(Hostile, NoTokenOrAnotherOne) {
  Client other = client();
  const std::string token = other.prefix.substr(1, 32);
  for (const std::string& prefix :
       {std::string("/"), std::string("/") + std::string(32, '0') + "/",
        "/" + token.substr(1) + "/", "/" + token + "0/", "//" + token + "/", "/x/" + token + "/"}) {
    other.prefix = prefix;
    for (const char* what : {"", "api/hello", "api/files", "assets/x.js"}) {
      gets_nothing(other.get(what), 404);
    }
    gets_nothing(other.post("api/ask", {{"args", {"ops"}}}), 404);
  }
  EXPECT_EQ(client().get("api/hello").status, 200);
}

TEST_F(Hostile, AnotherHostOrOrigin) {
  const std::string target = client().prefix + "api/hello";
  const std::string port = std::to_string(client().port);
  for (const std::string& host :
       {std::string("evil.example"), "evil.example:" + port, std::string("127.0.0.1"),
        std::string("127.0.0.1:1"), "127.0.0.1:" + port + ".evil.example"}) {
    gets_nothing(client().raw("GET " + target + " HTTP/1.1\r\nHost: " + host + "\r\n\r\n"), 403);
  }
  EXPECT_EQ(
      client().raw("GET " + target + " HTTP/1.1\r\nHost: localhost:" + port + "\r\n\r\n").status,
      200);
  for (const std::string& origin : {std::string("http://evil.example"), std::string("null"),
                                    "https://127.0.0.1:" + port, std::string("http://127.0.0.1")}) {
    gets_nothing(client().raw(client().head("GET", target) + "Origin: " + origin + "\r\n\r\n"),
                 403);
  }
  const std::string ours = "Origin: http://" + client().host() + "\r\n\r\n";
  EXPECT_EQ(client().raw(client().head("GET", target) + ours).status, 200);
}

TEST_F(Hostile, OtherMethodsAndContentTypes) {
  for (const char* method : {"DELETE", "OPTIONS", "PATCH", "TRACE", "BREW"}) {
    gets_nothing(client().raw(client().head(method, client().prefix + "api/files") + "\r\n"), 405);
  }
  const std::string post = client().head("POST", client().prefix + "api/ask");
  gets_nothing(client().raw(post + "Content-Length: 2\r\n\r\n{}"), 415);
  gets_nothing(client().raw(post + "Content-Type: text/plain\r\nContent-Length: 2\r\n\r\n{}"), 415);
  EXPECT_EQ(
      client().raw(client().head("HEAD", client().prefix) + "Connection: close\r\n\r\n").status,
      200);
  EXPECT_EQ(client().post("", {}).status, 405);
  EXPECT_EQ(client().get("api/nothing").status, 404);
}

TEST_F(Hostile, EveryAnswerForbidsFramesAndForeignContent) {
  Client other = client();
  other.prefix = "/";
  for (const Reply& reply : {client().get(""), client().get("api/hello"), other.get("")}) {
    for (const char* said :
         {"Content-Security-Policy: default-src 'self'", "frame-ancestors 'none'",
          "X-Content-Type-Options: nosniff", "Referrer-Policy: no-referrer",
          "Cross-Origin-Resource-Policy: same-origin"}) {
      EXPECT_NE(reply.head.find(said), std::string::npos) << said << "\n" << reply.head;
    }
  }
}

TEST_F(Hostile, PathsOutsideTheFolder) {
  EXPECT_EQ(client().get("api/file?path=a.txt").json()["text"], "inside");
  for (const std::string path :
       {"../secret.txt", "%2e%2e/secret.txt", "..%2fsecret.txt", "a/../../secret.txt", "link.txt",
        "up/secret.txt", "up/root/../secret.txt", "/etc/passwd", "%2Fetc%2Fpasswd", "..", "",
        "..%5csecret.txt", "./../secret.txt"}) {
    const Reply reply = client().get("api/file?path=" + path);
    EXPECT_EQ(reply.status, 400) << path << ": " << reply.body;
    EXPECT_EQ(reply.body.find("outside\""), std::string::npos) << path;
    EXPECT_FALSE(reply.sentence().empty()) << path;
  }
  EXPECT_EQ(client().get("api/file?path=a.txt%00.md").status, 400);
  const std::string outside = (studio_->folder / "new.txt").string();
  for (const std::string& path : {std::string("../new.txt"), outside, std::string("up/new.txt"),
                                  std::string("link.txt"), std::string("a/../../new.txt")}) {
    const Reply put = client().put("api/file", {{"path", path}, {"text", "x"}, {"etag", nullptr}});
    EXPECT_EQ(put.status, 400) << path << ": " << put.body;
    EXPECT_EQ(client().post("api/rename", {{"from", "a.txt"}, {"to", path}}).status, 400) << path;
    EXPECT_EQ(client().post("api/delete", {{"path", path}, {"etag", "x"}}).status, 400) << path;
    EXPECT_EQ(client().get("api/runs/metrics?path=" + path).status, 400) << path;
  }
  EXPECT_FALSE(std::filesystem::exists(outside));
  EXPECT_EQ(read_file(studio_->folder / "secret.txt"), "outside");
}

TEST_F(Hostile, RunsWhoseFilesAreLinksThatLeave) {
  write_file_atomically(studio_->folder / "run.json", R"({"options":{"model":"secret"}})");
  write_file_atomically(studio_->folder / "metrics.jsonl", "{\"step\":1,\"loss\":3.25}\n");
  std::filesystem::create_directories(*studio_ / "a");
  std::filesystem::create_symlink(studio_->folder / "run.json", *studio_ / "a/run.json");
  studio_->write("b/run.json", "{}");
  std::filesystem::create_symlink(studio_->folder / "metrics.jsonl", *studio_ / "b/metrics.jsonl");
  studio_->write("own/run.json", R"({"options":{"model":"mine"}})");
  const Reply runs = client().get("api/runs");
  EXPECT_EQ(runs.body.find("secret"), std::string::npos) << runs.body;
  EXPECT_EQ(runs.body.find("3.25"), std::string::npos) << runs.body;
  EXPECT_NE(runs.body.find("mine"), std::string::npos) << runs.body;
  const json train = {{"args", {"train", "--out", "b", "--data", "a.txt"}}};
  EXPECT_EQ(client().post("api/jobs", train).status, 400);
}

// Whoever writes such a value walks it by recursion, and the stack ends.
TEST_F(Hostile, FilesOfRunsThatAreNestedDeeply) {
  const std::string deep = std::string(500'000, '[') + std::string(500'000, ']');
  studio_->write("deep/run.json", "{\"options\":{\"model\":" + deep + "}}");
  studio_->write("deep/metrics.jsonl", "{\"x\":" + deep + "}\n{\"step\":2,\"loss\":1.5}\n");
  const json part = client().get("api/runs/metrics?path=deep").json();
  EXPECT_EQ(part["lines"], json::parse(R"([{"step":2,"loss":1.5}])"));
  const json all = client().get("api/runs").json();
  bool listed = false;
  for (const json& run : all["runs"]) {
    if (run["path"] != "deep") continue;
    listed = true;
    EXPECT_EQ(run["step"], 2);
    EXPECT_EQ(run["model"], nullptr);
  }
  EXPECT_TRUE(listed) << all;
}

TEST_F(Hostile, BrokenAndHugeBodies) {
  for (const std::string body :
       {"", "{", "[]", "null", "{\"args\":[]}", "{\"args\":\"show\"}", "{\"args\":[1]}",
        "{\"args\":[\"launch\"]}", "{\"args\":[\"studio\"]}", "{\"args\":[\"--inside\"]}",
        "{\"args\":[\"ops\"],\"args\":[\"ops\"]}", "{\"args\":[\"ops\"],\"drafts\":[]}",
        "{\"args\":[\"ops\"],\"lane\":1}", "{\"args\":[\"train\"]}"}) {
    const Reply reply = client().send("POST", "api/ask", body);
    EXPECT_EQ(reply.status, 400) << body << ": " << reply.body;
    EXPECT_FALSE(reply.sentence().empty()) << body;
  }
  EXPECT_EQ(client().send("POST", "api/ask", std::string(9 << 20, ' ')).status, 413);
  EXPECT_EQ(client().send("POST", "api/ask", std::string(1 << 20, '[')).status, 400);
  EXPECT_EQ(client().post("api/jobs", {{"args", {"show"}}}).status, 400);
  EXPECT_EQ(client().get("api/jobs/7").status, 404);
  EXPECT_EQ(client().post("api/jobs/7/stop", {}).status, 404);
  EXPECT_EQ(client().get("api/hello").status, 200);
}

}  // namespace
}  // namespace adjoint
