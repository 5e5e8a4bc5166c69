// Answers HTTP on one listening socket, with a thread per connection. Connections, heads and bodies
// are bounded, and a request must be complete within its time, however slowly its bytes come. Who
// has connected and said nothing that was admitted holds a connection for a few seconds.
#pragma once
#include <atomic>
#include <chrono>
#include <functional>
#include <list>
#include <mutex>
#include <optional>
#include <thread>

#include "studio/http_message.h"

namespace adjoint {

struct HttpLimits {
  size_t head = 16 * 1024, body = 8 * 1024 * 1024;
  int connections = 96;                        // a browser holds six, and each stream is one
  std::chrono::milliseconds first{5'000};      // from the connection to the first byte
  std::chrono::milliseconds idle{30'000};      // between two requests
  std::chrono::milliseconds request{10'000};   // from its first byte to the end of its head
  std::chrono::milliseconds transfer{60'000};  // of a body, in or out
  std::chrono::milliseconds parting{1'000};    // of a body out, once the server ends
  std::chrono::milliseconds lingering{1'000};  // of what comes behind the last answer
};

struct HttpHandlers {
  // Looks at the head alone; an answer here refuses the request before its body is read.
  std::function<std::optional<HttpAnswer>(const HttpRequest&)> admit;
  std::function<HttpAnswer(const HttpRequest&)> answer;
  // Headers that every answer gets, refusals too.
  std::vector<std::pair<std::string, std::string>> headers = {};
};

class HttpServer {
 public:
  // Begins at once; `listening` is closed at the end.
  HttpServer(int listening, HttpHandlers handlers, HttpLimits limits = {});
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  // No request is taken from now on, and streams end. The destructor waits for all threads.
  void stop();

 private:
  struct Connection {
    int socket = -1;
    std::thread thread;
    std::atomic<bool> over = false;
  };
  void accept_all();
  void forget_ended();
  void serve(Connection& connection);
  bool serve_one(int socket, std::string& read, std::chrono::milliseconds patience);
  bool send_all(int socket, std::string_view bytes, std::chrono::steady_clock::time_point deadline);
  HttpAnswer safely(const HttpRequest& request) const;
  bool write(int socket, const HttpAnswer& answer, bool keep_alive, bool with_body);
  void refuse(int socket, int status);

  int listening_, wake_[2] = {-1, -1};
  HttpHandlers handlers_;
  HttpLimits limits_;
  std::atomic<bool> stopping_ = false;
  std::mutex mutex_;
  std::list<Connection> connections_;  // of `mutex_`
  std::thread acceptor_;
};

// A socket that listens on the loopback address, and its port. `wanted` 0 is any; nothing if the
// port is taken.
struct Listening {
  int socket = -1, port = 0;
};
std::optional<Listening> listen_on_loopback(int wanted);

}  // namespace adjoint
