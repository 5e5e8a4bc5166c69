#include "studio/http_server.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/error.h"

namespace adjoint {

namespace {

using Clock = std::chrono::steady_clock;
using Deadline = Clock::time_point;
using std::chrono::milliseconds;

int milliseconds_to(Deadline deadline) {
  const auto left = std::chrono::ceil<milliseconds>(deadline - Clock::now()).count();
  return static_cast<int>(std::clamp<int64_t>(left, 0, 1'000'000));
}

bool wait_for(int socket, short what, Deadline deadline) {
  pollfd one{.fd = socket, .events = what, .revents = 0};
  int ready;
  do {
    ready = ::poll(&one, 1, milliseconds_to(deadline));
  } while (ready < 0 && errno == EINTR);
  return ready > 0;
}

// Appends what has come; false at the end, or when the deadline is over, even if more has come.
bool read_more(int socket, std::string& to, size_t most, Deadline deadline) {
  if (Clock::now() >= deadline || !wait_for(socket, POLLIN, deadline)) return false;
  char buffer[16384];
  const ssize_t got = ::recv(socket, buffer, std::min(most, sizeof buffer), 0);
  if (got <= 0) return false;
  to.append(buffer, static_cast<size_t>(got));
  return true;
}

bool send_all(int socket, std::string_view bytes, Deadline deadline,
              const std::atomic<bool>& stopping, milliseconds parting) {
  constexpr milliseconds kLook{100};
  std::optional<Deadline> last;
  while (!bytes.empty()) {
    const ssize_t sent = ::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent > 0) {
      bytes.remove_prefix(static_cast<size_t>(sent));
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      const Deadline now = Clock::now();
      if (stopping && !last) last = now + parting;
      const Deadline end = last ? std::min(*last, deadline) : deadline;
      if (!wait_for(socket, POLLOUT, std::min(end, now + kLook)) && Clock::now() >= end)
        return false;
    } else if (errno != EINTR) {
      return false;
    }
  }
  return true;
}

bool is_closed(int socket) {
  pollfd one{.fd = socket, .events = POLLRDHUP, .revents = 0};
  return ::poll(&one, 1, 0) > 0 && (one.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
}

class SocketStream : public HttpStream {
 public:
  SocketStream(int socket, const std::atomic<bool>& stopping, milliseconds parting)
      : socket_(socket), stopping_(stopping), parting_(parting) {}
  bool send(std::string_view bytes) override {
    // A reader that takes nothing for so long is gone.
    const Deadline deadline = Clock::now() + milliseconds(10'000);
    ok_ = ok_ && !stopping_ && send_all(socket_, bytes, deadline, stopping_, parting_);
    return ok_;
  }
  bool open() override { return ok_ && !stopping_ && !is_closed(socket_); }

 private:
  int socket_;
  const std::atomic<bool>& stopping_;
  const milliseconds parting_;
  bool ok_ = true;
};

}  // namespace

std::optional<Listening> listen_on_loopback(int wanted) {
  const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (socket < 0) throw MachineError("no socket can be made");
  const int yes = 1;
  ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(wanted));
  socklen_t size = sizeof address;
  auto* const general = reinterpret_cast<sockaddr*>(&address);
  if (::bind(socket, general, size) != 0 || ::listen(socket, 64) != 0 ||
      ::getsockname(socket, general, &size) != 0) {
    ::close(socket);
    return std::nullopt;
  }
  return Listening{.socket = socket, .port = ntohs(address.sin_port)};
}

HttpServer::HttpServer(int listening, HttpHandlers handlers, HttpLimits limits)
    : listening_(listening), handlers_(std::move(handlers)), limits_(limits) {
  if (::pipe2(wake_, O_CLOEXEC) != 0) throw MachineError("no pipe can be made");
  acceptor_ = std::thread([this] { accept_all(); });
}

HttpServer::~HttpServer() {
  stop();
  acceptor_.join();
  for (Connection& connection : connections_) connection.thread.join();
  for (const int file : {listening_, wake_[0], wake_[1]}) ::close(file);
}

void HttpServer::stop() {
  if (stopping_.exchange(true)) return;
  static_cast<void>(!::write(wake_[1], "x", 1));
  const std::scoped_lock lock(mutex_);
  // Reading ends; what is being answered may still be written.
  for (Connection& connection : connections_) {
    if (!connection.over) ::shutdown(connection.socket, SHUT_RD);
  }
}

void HttpServer::forget_ended() {
  for (auto each = connections_.begin(); each != connections_.end();) {
    if (each->over) {
      each->thread.join();
      each = connections_.erase(each);
    } else {
      ++each;
    }
  }
}

void HttpServer::accept_all() {
  while (!stopping_) {
    pollfd both[] = {{listening_, POLLIN, 0}, {wake_[0], POLLIN, 0}};
    if (::poll(both, 2, -1) < 0 && errno != EINTR) return;
    if (stopping_ || !(both[0].revents & POLLIN)) continue;
    const int socket = ::accept4(listening_, nullptr, nullptr, SOCK_CLOEXEC);
    if (socket < 0) {
      // Out of descriptors: the ones in use will be given back.
      if (errno != ECONNABORTED) std::this_thread::sleep_for(milliseconds(50));
      continue;
    }
    const int yes = 1;
    ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    const std::scoped_lock lock(mutex_);
    forget_ended();
    if (stopping_ || connections_.size() >= static_cast<size_t>(limits_.connections)) {
      refuse(socket, 503);
      ::close(socket);
      continue;
    }
    Connection& connection = connections_.emplace_back();
    connection.socket = socket;
    try {
      connection.thread = std::thread([this, &connection] { serve(connection); });
    } catch (const std::system_error&) {  // no thread left
      ::close(socket);
      connections_.pop_back();
    }
  }
}

void HttpServer::serve(Connection& connection) {
  std::string read;  // what came behind the last request
  milliseconds wait = limits_.first;
  while (!stopping_ && serve_one(connection.socket, read, wait)) wait = limits_.idle;
  // Whoever still sends would lose our answer, were its bytes left unread.
  ::shutdown(connection.socket, SHUT_WR);
  const Deadline lingering = Clock::now() + limits_.lingering;
  do {
    read.clear();
  } while (!stopping_ && read_more(connection.socket, read, 16384, lingering));
  const std::scoped_lock lock(mutex_);  // `stop` uses the socket
  ::close(connection.socket);
  connection.over = true;
}

void HttpServer::refuse(int socket, int status) {
  write(socket, {.status = status}, /*keep_alive=*/false, /*with_body=*/true);
}

bool HttpServer::send_all(int socket, std::string_view bytes, Deadline deadline) {
  return adjoint::send_all(socket, bytes, deadline, stopping_, limits_.parting);
}

bool HttpServer::write(int socket, const HttpAnswer& answer, bool keep_alive, bool with_body) {
  const Deadline deadline = Clock::now() + limits_.transfer;
  if (!send_all(socket, head_of(answer, keep_alive, handlers_.headers), deadline)) return false;
  return !with_body || answer.stream || send_all(socket, answer.body, deadline);
}

HttpAnswer HttpServer::safely(const HttpRequest& request) const {
  try {
    return handlers_.answer(request);
  } catch (const std::exception&) {
    return {.status = 500};
  }
}

// Whether the connection goes on.
bool HttpServer::serve_one(int socket, std::string& read, milliseconds patience) {
  const Deadline idle = Clock::now() + patience;
  if (read.empty() && !read_more(socket, read, limits_.head, idle)) return false;
  const Deadline head_deadline = Clock::now() + limits_.request;
  size_t end;
  while ((end = read.find("\r\n\r\n")) == read.npos) {
    if (read.size() >= limits_.head) return refuse(socket, 431), false;
    if (!read_more(socket, read, limits_.head - read.size(), head_deadline)) {
      if (Clock::now() >= head_deadline) refuse(socket, 408);
      return false;
    }
  }
  auto parsed = parse_head(std::string_view(read).substr(0, end + 2));
  read.erase(0, end + 4);
  if (const int* status = std::get_if<int>(&parsed)) return refuse(socket, *status), false;
  auto& request = std::get<HttpRequest>(parsed);
  const bool with_body = request.method != "HEAD";
  if (request.body_size > limits_.body) return refuse(socket, 413), false;
  if (const auto refusal = handlers_.admit(request)) {
    // Its body would be taken for the next request, and who has no token may hold no thread.
    write(socket, *refusal, /*keep_alive=*/false, with_body);
    return false;
  }
  if (request.expects_continue && read.size() < request.body_size) {
    if (!send_all(socket, "HTTP/1.1 100 Continue\r\n\r\n", head_deadline)) return false;
  }
  const Deadline body_deadline = Clock::now() + limits_.transfer;
  while (read.size() < request.body_size) {
    if (!read_more(socket, read, request.body_size - read.size(), body_deadline)) return false;
  }
  request.body = read.substr(0, request.body_size);
  read.erase(0, request.body_size);
  request.gone = [this, socket] { return stopping_ || is_closed(socket); };
  const HttpAnswer answer = safely(request);
  const bool goes_on = request.keep_alive && !answer.stream && !stopping_;
  if (!write(socket, answer, goes_on, with_body)) return false;
  if (answer.stream && with_body) {
    SocketStream stream(socket, stopping_, limits_.parting);
    try {
      answer.stream(stream);
    } catch (const std::exception&) {  // the stream ends, and its reader asks again
    }
  }
  return goes_on;
}

}  // namespace adjoint
