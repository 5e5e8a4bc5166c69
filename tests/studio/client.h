// A client that can say what a browser never would.
#pragma once
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <thread>

namespace adjoint {

struct Reply {
  int status = 0;  // 0: none came
  std::string head, body;
  nlohmann::json json() const { return nlohmann::json::parse(body, nullptr, false); }
  // Of {"error": {"message": ...}}.
  std::string sentence() const {
    const nlohmann::json all = json();
    return all.is_object() && all.contains("error") ? all["error"].value("message", "") : "";
  }
};

class RawSocket {
 public:
  // A command that the studio starts in this process must not inherit it.
  explicit RawSocket(int port) : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(static_cast<uint16_t>(port));
    connected_ = ::connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
  }
  ~RawSocket() { ::close(socket_); }
  RawSocket(const RawSocket&) = delete;
  RawSocket& operator=(const RawSocket&) = delete;

  bool connected() const { return connected_; }
  bool send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t sent = ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent <= 0) return false;
      bytes.remove_prefix(static_cast<size_t>(sent));
    }
    return true;
  }
  // Appends what comes; false at the end or when nothing came for so long.
  bool read(std::string& to, int milliseconds = 20'000) {
    pollfd one{.fd = socket_, .events = POLLIN, .revents = 0};
    if (::poll(&one, 1, milliseconds) <= 0) return false;
    char buffer[16384];
    const ssize_t got = ::recv(socket_, buffer, sizeof buffer, 0);
    if (got <= 0) return false;
    to.append(buffer, static_cast<size_t>(got));
    return true;
  }
  Reply reply(int milliseconds = 20'000) {
    std::string all;
    while (all.find("\r\n\r\n") == all.npos) {
      if (!read(all, milliseconds)) return {};
    }
    Reply reply;
    const size_t end = all.find("\r\n\r\n");
    reply.head = all.substr(0, end + 2);
    reply.status = std::atoi(reply.head.substr(9, 3).c_str());
    reply.body = all.substr(end + 4);
    const size_t at = reply.head.find("Content-Length: ");
    const size_t size = at == all.npos ? 0 : std::stoul(reply.head.substr(at + 16));
    while (reply.body.size() < size && read(reply.body, milliseconds)) {
    }
    return reply;
  }

 private:
  int socket_;
  bool connected_ = false;
};

// What a page does. `prefix` is "/TOKEN/".
struct Client {
  int port = 0;
  std::string prefix = {};

  // Of the address that the studio prints.
  static Client of(const std::string& url) {
    const size_t colon = url.rfind(':'), slash = url.find('/', colon);
    return {.port = std::stoi(url.substr(colon + 1)), .prefix = url.substr(slash)};
  }
  std::string host() const { return "127.0.0.1:" + std::to_string(port); }
  std::string head(const std::string& method, const std::string& target) const {
    return method + " " + target + " HTTP/1.1\r\nHost: " + host() + "\r\n";
  }
  Reply raw(const std::string& text) const {
    RawSocket socket(port);
    if (!socket.send(text)) return {};
    return socket.reply();
  }
  Reply get(const std::string& what) const {
    return raw(head("GET", prefix + what) + "Connection: close\r\n\r\n");
  }
  Reply send(const std::string& method, const std::string& what, const std::string& body) const {
    return raw(head(method, prefix + what) +
               "Connection: close\r\nContent-Type: application/json\r\nContent-Length: " +
               std::to_string(body.size()) + "\r\n\r\n" + body);
  }
  Reply post(const std::string& what, const nlohmann::json& body) const {
    return send("POST", what, body.dump());
  }
  Reply put(const std::string& what, const nlohmann::json& body) const {
    return send("PUT", what, body.dump());
  }
};

// Events of a stream, as they come.
class EventReader {
 public:
  EventReader(const Client& client, const std::string& what) : socket_(client.port) {
    socket_.send(client.head("GET", client.prefix + what) + "\r\n");
  }
  // The next event; null at the end, or if none came for so long.
  nlohmann::json next(int milliseconds = 20'000) {
    while (true) {
      if (const size_t end = text_.find("\n\n"); end != text_.npos) {
        const std::string event = text_.substr(0, end);
        text_.erase(0, end + 2);
        const size_t data = event.find("data: ");
        if (data == event.npos) continue;  // the head's last line, or a comment
        return nlohmann::json::parse(event.substr(data + 6));
      }
      if (!socket_.read(text_, milliseconds)) return nullptr;
      if (!past_head_) {
        const size_t end = text_.find("\r\n\r\n");
        if (end == text_.npos) continue;
        head = text_.substr(0, end);
        text_.erase(0, end + 4);
        past_head_ = true;
      }
    }
  }
  std::string head;

 private:
  RawSocket socket_;
  std::string text_;
  bool past_head_ = false;
};

// Looks again and again, for a condition that another process makes true.
template <class Condition>
bool comes_true(const Condition& condition, int seconds = 30) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return true;
}

}  // namespace adjoint
