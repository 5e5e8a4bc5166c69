// Heads of requests, and a server that has to do with slow, large and broken ones.
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <memory>

#include "studio/client.h"
#include "studio/http_message.h"
#include "studio/http_server.h"

namespace adjoint {
namespace {

HttpRequest parsed(const std::string& head) {
  auto found = parse_head(head);
  if (const int* status = std::get_if<int>(&found)) {
    ADD_FAILURE() << *status << " for " << head;
    return {};
  }
  return std::get<HttpRequest>(found);
}

int refused(const std::string& head) {
  const auto found = parse_head(head);
  const int* status = std::get_if<int>(&found);
  return status ? *status : 0;
}

TEST(HttpHead, SaysMethodPathQueryAndHeaders) {
  const HttpRequest request =
      parsed("GET /a%20b/c?x=1+2%2B3&y= HTTP/1.1\r\nHost: h\r\nX-One:  two \r\n");
  EXPECT_EQ(request.method, "GET");
  EXPECT_EQ(request.path, "/a b/c");
  EXPECT_EQ(request.query.at("x"), "1 2+3");
  EXPECT_EQ(request.query.at("y"), "");
  ASSERT_TRUE(request.header("x-one"));
  EXPECT_EQ(*request.header("x-one"), "two");
  EXPECT_TRUE(request.keep_alive);
  EXPECT_FALSE(parsed("GET / HTTP/1.1\r\nHost: h\r\nConnection: Close\r\n").keep_alive);
  EXPECT_FALSE(parsed("GET / HTTP/1.0\r\nHost: h\r\n").keep_alive);
}

TEST(HttpHead, RefusesWhatABrowserDoesNotSend) {
  const std::string host = "Host: h\r\n";
  EXPECT_EQ(refused(""), 400);
  EXPECT_EQ(refused("GET\r\n"), 400);
  EXPECT_EQ(refused("GET /\r\n" + host), 400);
  EXPECT_EQ(refused("GET / HTTP/2\r\n" + host), 505);
  EXPECT_EQ(refused("GET http://h/ HTTP/1.1\r\n" + host), 400);
  EXPECT_EQ(refused("G@T / HTTP/1.1\r\n" + host), 400);
  EXPECT_EQ(refused("GET /%00 HTTP/1.1\r\n" + host), 400);
  EXPECT_EQ(refused("GET /%g1 HTTP/1.1\r\n" + host), 400);
  EXPECT_EQ(refused("GET /%2 HTTP/1.1\r\n" + host), 400);
  EXPECT_EQ(refused("GET /?a=1&a=2 HTTP/1.1\r\n" + host), 400);
  EXPECT_EQ(refused("GET / HTTP/1.1\r\n"), 400);
  EXPECT_EQ(refused("GET / HTTP/1.1\r\n" + host + host), 400);
  EXPECT_EQ(refused("GET / HTTP/1.1\r\n" + host + "X One: 1\r\n"), 400);
  EXPECT_EQ(refused("GET / HTTP/1.1\r\n" + host + " folded\r\n"), 400);
  EXPECT_EQ(refused("GET / HTTP/1.1\r\n" + host + "X: a\nb\r\n"), 400);
  EXPECT_EQ(refused("POST / HTTP/1.1\r\n" + host + "Content-Length: -1\r\n"), 400);
  EXPECT_EQ(refused("POST / HTTP/1.1\r\n" + host + "Content-Length: 1x\r\n"), 400);
  EXPECT_EQ(refused("POST / HTTP/1.1\r\n" + host + "Content-Length: 99999999999999999999\r\n"),
            400);
  EXPECT_EQ(refused("POST / HTTP/1.1\r\n" + host + "Content-Length: 1\r\nContent-Length: 1\r\n"),
            400);
  EXPECT_EQ(refused("POST / HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\n"), 501);
  std::string many = "GET / HTTP/1.1\r\n" + host;
  for (int i = 0; i < 200; ++i) many += "X: 1\r\n";
  EXPECT_EQ(refused(many), 431);
}

// Answers with the length of the body, and admits what is not /no.
class Server {
 public:
  explicit Server(HttpLimits limits)
      : listening(listen_on_loopback(0).value()),
        server(listening.socket,
               {.admit = [this](const HttpRequest& request) -> std::optional<HttpAnswer> {
                  ++admitted;
                  if (request.path != "/no") return std::nullopt;
                  return HttpAnswer{.status = 403};
                },
                .answer =
                    [](const HttpRequest& request) {
                      if (request.path == "/throws") throw std::runtime_error("no");
                      return HttpAnswer{.body = std::to_string(request.body.size())};
                    },
                .headers = {{"X-Always", "1"}}},
               limits) {}
  Client client() const { return {.port = listening.port, .prefix = "/"}; }

  std::atomic<int> admitted = 0;
  Listening listening;
  HttpServer server;
};

// Small sizes and the usual times, which no machine is too slow for.
constexpr HttpLimits kSmall{.head = 1024, .body = 4096, .connections = 4};
constexpr HttpLimits kImpatient{.request = std::chrono::milliseconds(300),
                                .transfer = std::chrono::milliseconds(500)};

TEST(HttpServer, AnswersSeveralRequestsOfOneConnection) {
  const Server server(kSmall);
  RawSocket socket(server.listening.port);
  for (const std::string body : {"", "12345", "1"}) {
    socket.send(server.client().head("POST", "/") +
                "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body);
    const Reply reply = socket.reply();
    EXPECT_EQ(reply.status, 200);
    EXPECT_EQ(reply.body, std::to_string(body.size()));
    EXPECT_NE(reply.head.find("X-Always: 1"), std::string::npos);
  }
  // Two at once.
  const std::string get = server.client().head("GET", "/") + "\r\n";
  socket.send(get + server.client().head("GET", "/no") + "\r\n");
  std::string both;
  while (socket.read(both)) {
  }
  EXPECT_TRUE(both.starts_with("HTTP/1.1 200 ")) << both;
  EXPECT_NE(both.find("HTTP/1.1 403 ", 10), std::string::npos) << both;
  EXPECT_EQ(server.admitted, 5);
}

// Of a client that takes nothing the server's end does not depend.
TEST(HttpServer, EndsThoughSomebodyDoesNotReadTheirAnswer) {
  HttpLimits limits = kSmall;
  limits.transfer = std::chrono::minutes(10);
  limits.parting = std::chrono::milliseconds(100);
  std::promise<void> asked;
  const Listening listening = listen_on_loopback(0).value();
  auto server = std::make_unique<HttpServer>(
      listening.socket,
      HttpHandlers{.admit = [](const HttpRequest&) { return std::nullopt; },
                   .answer =
                       [&](const HttpRequest&) {
                         asked.set_value();
                         return HttpAnswer{.body = std::string(64 << 20, 'x')};
                       }},
      limits);
  RawSocket socket(listening.port);
  socket.send(Client{.port = listening.port, .prefix = "/"}.head("GET", "/") + "\r\n");
  asked.get_future().wait();
  server.reset();  // waits for its threads: for ten minutes, if it waited for the client
}

TEST(HttpServer, SurvivesAnExceptionAndRefusesBeforeTheBody) {
  const Server server(kSmall);
  EXPECT_EQ(server.client().get("throws").status, 500);
  // The body is announced and never sent.
  RawSocket socket(server.listening.port);
  socket.send(server.client().head("POST", "/no") + "Content-Length: 4000\r\n\r\n");
  EXPECT_EQ(socket.reply().status, 403);
}

TEST(HttpServer, BoundsHeadsAndBodies) {
  const Server server(kSmall);
  const std::string head = server.client().head("POST", "/");
  EXPECT_EQ(server.client().raw(head + "X: " + std::string(4000, 'x') + "\r\n\r\n").status, 431);
  EXPECT_EQ(
      server.client().raw(head + "Content-Length: 4097\r\n\r\n" + std::string(4097, 'x')).status,
      413);
  EXPECT_EQ(
      server.client().raw(head + "Content-Length: 4096\r\n\r\n" + std::string(4096, 'x')).body,
      "4096");
}

TEST(HttpServer, EndsRequestsThatComeTooSlowly) {
  const Server server(kImpatient);
  // A byte at a time, each in good time: the request as a whole is too slow.
  RawSocket socket(server.listening.port);
  const std::string head = server.client().head("GET", "/");
  const auto begin = std::chrono::steady_clock::now();
  for (size_t i = 0; i < head.size() && socket.send(head.substr(i, 1)); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    if (std::chrono::steady_clock::now() - begin > std::chrono::seconds(2)) break;
  }
  EXPECT_EQ(socket.reply().status, 408);
  // The same of a body.
  RawSocket body(server.listening.port);
  body.send(head + "Content-Length: 4000\r\n\r\nabc");
  // It is the server that ends it, not our patience.
  const auto sent = std::chrono::steady_clock::now();
  EXPECT_EQ(body.reply(60'000).status, 0);
  EXPECT_LT(std::chrono::steady_clock::now() - sent, std::chrono::seconds(60));
}

// Bytes that come without an end hold a thread only for as long as a request may take.
TEST(HttpServer, EndsAFlood) {
  const Server server(kImpatient);
  std::string lines;
  for (int i = 0; i < 10'000; ++i) lines += "y\n";
  RawSocket socket(server.listening.port);
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  bool ended = false;
  while (!ended && std::chrono::steady_clock::now() < deadline) ended = !socket.send(lines);
  EXPECT_TRUE(ended);
  // Requests that are refused, one after the other.
  RawSocket refused(server.listening.port);
  const std::string no = server.client().head("GET", "/no") + "\r\n";
  refused.send(no + no + no);
  std::string all;
  while (refused.read(all)) {
  }
  EXPECT_TRUE(all.starts_with("HTTP/1.1 403")) << all;
  EXPECT_EQ(all.find("HTTP/1.1", 5), all.npos) << all;
}

TEST(HttpServer, BoundsConnectionsAndTakesOthersAfterwards) {
  const Server server(kSmall);
  {
    std::list<RawSocket> idle;
    for (int i = 0; i < 4; ++i) {
      idle.emplace_back(server.listening.port);
      idle.back().send("G");
    }
    ASSERT_TRUE(comes_true([&] { return server.client().get("").status == 503; }));
  }
  EXPECT_TRUE(comes_true([&] { return server.client().get("").status == 200; }));
}

}  // namespace
}  // namespace adjoint
