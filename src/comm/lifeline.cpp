#include "comm/lifeline.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <random>
#include <set>
#include <sstream>
#include <utility>

#include "base/error.h"
#include "base/text.h"

namespace adjoint {

namespace {

using SteadyClock = std::chrono::steady_clock;

constexpr double kJoinSeconds = 30;  // that ranks of one job may begin apart
constexpr const char* kLoopback = "127.0.0.1";
constexpr double kHubLimits = 1.5;  // of silence, until the others judge the hub
constexpr int kMachineFailed = 3;   // the exit code of adjoint (cli/command.h)

double steady_now() {
  return std::chrono::duration<double>(SteadyClock::now().time_since_epoch()).count();
}

[[noreturn]] void fail_socket(const char* what) {
  throw MachineError(
      join_parts("ranks cannot watch each other: ", what, ": ", std::strerror(errno)));
}

// Without control characters, which a terminal would obey: each is a question mark.
std::string printable(std::string_view text) {
  std::string shown;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const auto next = static_cast<unsigned char>(i + 1 < text.size() ? text[i + 1] : 0);
    const bool c1 = byte == 0xC2 && next >= 0x80 && next < 0xA0;  // of Unicode, in UTF-8
    if (c1) ++i;
    shown += c1 || byte < 0x20 || byte == 0x7F ? '?' : text[i];
  }
  return shown;
}

// A peer that is gone is noticed when it is read; that one cannot be written is no news.
void send_line(int socket, std::string line) {
  line += '\n';
  std::string_view rest = line;
  while (!rest.empty()) {
    const ssize_t sent = ::send(socket, rest.data(), rest.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return;
    rest.remove_prefix(sent);
  }
}

// Of every interface of this machine, the loopback first: ranks of one machine need no network.
std::vector<std::string> own_addresses() {
  std::vector<std::string> addresses = {kLoopback};
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return addresses;
  for (const ifaddrs* each = list; each; each = each->ifa_next) {
    if (!each->ifa_addr || each->ifa_addr->sa_family != AF_INET) continue;
    char text[INET_ADDRSTRLEN] = {};
    const auto* address = reinterpret_cast<const sockaddr_in*>(each->ifa_addr);
    ::inet_ntop(AF_INET, &address->sin_addr, text, sizeof(text));
    if (std::ranges::find(addresses, text) == addresses.end()) addresses.emplace_back(text);
  }
  ::freeifaddrs(list);
  return addresses;
}

// Waits until the socket can be used; false after the deadline.
bool usable(int socket, short events, double deadline) {
  while (true) {
    pollfd each{.fd = socket, .events = events, .revents = 0};
    const double left = deadline - steady_now();
    if (left <= 0) return false;
    const int ready = ::poll(&each, 1, static_cast<int>(left * 1000) + 1);
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) return false;
  }
}

int connected(const std::string& host, int port, double deadline) {
  const int made = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (made < 0) fail_socket("socket");
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  ::inet_pton(AF_INET, host.c_str(), &address.sin_addr);
  int status = ::connect(made, reinterpret_cast<sockaddr*>(&address), sizeof(address));
  if (status != 0 && errno == EINPROGRESS && usable(made, POLLOUT, deadline)) {
    socklen_t size = sizeof(status);
    ::getsockopt(made, SOL_SOCKET, SO_ERROR, &status, &size);
  }
  if (status != 0) {
    ::close(made);
    return -1;
  }
  ::fcntl(made, F_SETFL, ::fcntl(made, F_GETFL) & ~O_NONBLOCK);
  return made;
}

// So that a machine that loses its power is noticed, too: nobody closes its sockets.
void keep_alive(int socket) {
  const int yes = 1, idle = 5, interval = 1, count = 3;
  ::setsockopt(socket, SOL_SOCKET, SO_KEEPALIVE, &yes, sizeof(yes));
  ::setsockopt(socket, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof(idle));
  ::setsockopt(socket, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof(interval));
  ::setsockopt(socket, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof(count));
  ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
}

}  // namespace

Lifeline::Lifeline(LifelineOptions options) : options_(std::move(options)) {
  if (::pipe2(wake_, O_CLOEXEC) != 0) fail_socket("pipe");
  std::random_device random;
  token_ = fmt::format("{:08x}{:08x}", random(), random());
}

Lifeline::~Lifeline() {
  {
    const std::lock_guard lock(mutex_);
    over_ = true;
  }
  [[maybe_unused]] const ssize_t woken = ::write(wake_[1], "", 1);
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
  for (const Peer& peer : peers_) {
    if (peer.socket >= 0) ::close(peer.socket);
  }
  for (const Stranger& stranger : strangers_) ::close(stranger.socket);
  for (const int each : {listener_, wake_[0], wake_[1]}) {
    if (each >= 0) ::close(each);
  }
}

std::string Lifeline::listen() {
  listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (listener_ < 0) fail_socket("socket");
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(options_.one_machine ? INADDR_LOOPBACK : INADDR_ANY);
  socklen_t size = sizeof(address);
  auto* plain = reinterpret_cast<sockaddr*>(&address);
  if (::bind(listener_, plain, size) != 0) fail_socket("bind");
  if (::listen(listener_, options_.ranks) != 0) fail_socket("listen");
  if (::getsockname(listener_, plain, &size) != 0) fail_socket("getsockname");
  const std::vector<std::string> addresses =
      options_.one_machine ? std::vector<std::string>{kLoopback} : own_addresses();
  return fmt::format("{} {} {}", ntohs(address.sin_port), token_, adjoint::join(addresses, " "));
}

void Lifeline::serve() {
  hub_ = options_.rank;
  dog_ = std::make_unique<Watchdog>(options_.ranks, options_.limits, steady_now());
  thread_ = std::thread([this] { watch(); });
}

void Lifeline::join(const std::string& address, int hub) {
  hub_ = hub;
  const double deadline = steady_now() + kJoinSeconds;
  if (is_hub()) {
    serve();
    std::unique_lock lock(mutex_);
    const auto all = [&] { return joined_ == options_.ranks - 1; };
    if (changed_.wait_for(lock, std::chrono::duration<double>(kJoinSeconds), all)) return;
    std::set<int> missing;
    for (int i = 1; i < options_.ranks; ++i) missing.insert(i);
    for (const Peer& peer : peers_) missing.erase(peer.rank);
    throw MachineError(fmt::format("these ranks did not reach rank 0 within {:.0f} s: {}",
                                   kJoinSeconds, fmt::join(missing, ", ")));
  }
  std::istringstream parts(address);
  int port = 0, made = -1;
  std::string host;
  std::vector<std::string> tried;
  parts >> port >> token_;
  while (made < 0 && parts >> host) {
    tried.push_back(host);
    made = connected(host, port, deadline);
  }
  if (made < 0) {
    throw MachineError(join_parts(
        "rank ", options_.rank, " cannot reach ", hub == kOutside ? "the launcher" : "rank 0",
        ", which listens at port ", port, " of ", adjoint::join(tried, ", ")));
  }
  send_line(made, fmt::format("{} {}", token_, options_.rank));
  peers_.push_back({.rank = hub, .socket = made, .heard = steady_now()});
  keep_alive(made);
  dog_ = std::make_unique<Watchdog>(options_.ranks, options_.limits, steady_now());
  thread_ = std::thread([this] { watch(); });
}

int Lifeline::num_joined() {
  const std::lock_guard lock(mutex_);
  return joined_;
}

// The hub takes whoever comes, and hears later who it is, so that one who never says so keeps
// nobody waiting.
void Lifeline::accept_one() {
  constexpr size_t kMostStrangers = 64;
  const int made = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
  if (made < 0) return;
  if (strangers_.size() == kMostStrangers) {
    ::close(strangers_.front().socket);
    strangers_.erase(strangers_.begin());
  }
  strangers_.push_back({.socket = made, .came = steady_now()});
}

// A rank says the token and its number, in one short line, at once.
bool Lifeline::introduces(Stranger& stranger) {
  constexpr size_t kLongestLine = 64;
  constexpr double kPatience = 5;
  char bytes[kLongestLine];
  const ssize_t size = ::recv(stranger.socket, bytes, sizeof(bytes), MSG_DONTWAIT);
  const bool later = size < 0 && (errno == EAGAIN || errno == EINTR);
  if (size > 0) stranger.unread.append(bytes, size);
  const size_t end = stranger.unread.find('\n');
  if (end == std::string::npos) {
    const bool waits = (size > 0 || later) && stranger.unread.size() <= kLongestLine &&
                       steady_now() - stranger.came < kPatience;
    if (!waits) ::close(stranger.socket);
    return !waits;
  }
  std::istringstream said(stranger.unread.substr(0, end));
  std::string token;
  int rank = -1;
  said >> token >> rank;
  const bool came =
      std::ranges::any_of(peers_, [&](const Peer& peer) { return peer.rank == rank; });
  if (token != token_ || rank < 0 || rank >= options_.ranks || rank == options_.rank || came) {
    ::close(stranger.socket);
    return true;
  }
  keep_alive(stranger.socket);
  dog_->alive(rank, steady_now());
  Peer peer{.rank = rank,
            .socket = stranger.socket,
            .unread = stranger.unread.substr(end + 1),
            .heard = steady_now()};
  bool complete = false;
  {
    const std::lock_guard lock(mutex_);
    peers_.push_back(std::move(peer));
    ++joined_;
    complete = joined_ == options_.ranks - (options_.rank == kOutside ? 0 : 1);
  }
  changed_.notify_all();
  // Once all are there, nobody else has business here.
  if (complete) ::close(std::exchange(listener_, -1));
  return true;
}

void Lifeline::hear_strangers() {
  std::erase_if(strangers_, [&](Stranger& stranger) { return introduces(stranger); });
  if (listener_ >= 0) return;
  for (const Stranger& stranger : strangers_) ::close(stranger.socket);
  strangers_.clear();
}

// A rank 0 that is stopped judges nobody and sends nothing, which the others notice.
void Lifeline::judge_hub() {
  if (is_hub() || hub_ == kOutside || peers_[0].left) return;
  const double now = steady_now(), silent = now - peers_[0].heard;
  // Time for the hub to judge first, which knows of everyone, and then for the one who tells: a
  // launcher ends all as soon as one has ended.
  constexpr double kToTell = 1;
  const bool tells = options_.rank == hub_ + 1;
  if (silent <= kHubLimits * dog_->limit() + (tells ? 0 : kToTell)) return;
  job_ended({.reason = fmt::format("a rank was silent for {:.0f} s: rank {} {}", silent, hub_,
                                   dog_->place(hub_))},
            tells);
}

void Lifeline::progress(int64_t step, std::string_view object) {
  const std::lock_guard lock(mutex_);
  const bool new_step = step != news_.step;
  news_.step = step;
  news_.object = object;
  std::ranges::replace(news_.object, '\n', ' ');
  ++news_.count;
  // At once, from here: what is told of a rank that is killed is the step that it was at, however
  // long its own watching thread has had no processor.
  if (new_step && !over_) send_news();
}

void Lifeline::alive() {
  const std::lock_guard lock(mutex_);
  ++news_.count;
}

std::string Lifeline::place() {
  const std::lock_guard lock(mutex_);
  Watchdog own(1, {}, 0);
  own.progress(0, news_.step, news_.object, 0);
  return own.place(0);
}

void Lifeline::waits(bool waits) {
  const std::lock_guard lock(mutex_);
  news_.waits = waits;
}

void Lifeline::end(const std::string& reason, bool refused) {
  std::unique_lock lock(mutex_);
  if (ended_ || over_) return;
  asked_end_ = {reason, refused};
  std::ranges::replace(asked_end_->reason, '\n', ' ');
  [[maybe_unused]] const ssize_t woken = ::write(wake_[1], "", 1);
  changed_.wait_for(lock, std::chrono::seconds(2), [&] { return ended_ || over_; });
}

// Often enough that the limit is kept to an eighth, and that what is told of a rank that died was
// true a moment ago; seldom enough that nobody notices the work.
double Lifeline::beat() const { return std::clamp(options_.limits.seconds / 8, 0.01, 0.05); }

void Lifeline::tell_news() {
  if (options_.rank == kOutside) return;
  const std::lock_guard lock(mutex_);
  const double now = steady_now();
  if (news_.count != noted_) dog_->progress(options_.rank, news_.step, news_.object, now);
  noted_ = news_.count;
  dog_->waits(options_.rank, news_.waits);
  // Also where there are none: a process that is stopped is as silent as one that hangs.
  if (news_ == told_ && now - told_at_ < options_.limits.seconds / 8) return;
  send_news();
}

// Under the mutex, from any thread.
void Lifeline::send_news() {
  told_ = news_;
  told_at_ = steady_now();
  for (const Peer& peer : peers_) {
    if (peer.left) continue;
    send_line(peer.socket, fmt::format("news {} {} {} {}", news_.count, news_.waits ? 1 : 0,
                                       news_.step, news_.object));
  }
}

void Lifeline::hear_line(Peer& peer, const std::string& line) {
  std::istringstream parts(line);
  std::string what;
  parts >> what;
  if (what == "bye") {
    leaves(peer);
    dog_->leaves(peer.rank);
  } else if (what == "end" || what == "refused") {
    std::string reason;
    std::getline(parts >> std::ws, reason);
    reason = printable(reason);
    const bool refused = what == "refused";
    if (refused && is_hub()) return note_refusal(peer.rank, reason);
    job_ended({reason, refused}, is_hub());
  } else if (what == "news") {
    uint64_t count = 0;
    int waits = 0;
    int64_t step = -1;
    std::string object;
    parts >> count >> waits >> step;
    std::getline(parts >> std::ws, object);
    if (count != peer.count) dog_->progress(peer.rank, step, printable(object), steady_now());
    peer.count = count;
    dog_->waits(peer.rank, waits != 0);
  }
}

// Who sends (send_news) may be another thread.
void Lifeline::leaves(Peer& peer) {
  const std::lock_guard lock(mutex_);
  peer.left = true;
}

bool Lifeline::hear(Peer& peer) {
  char bytes[4096];
  const ssize_t size = ::recv(peer.socket, bytes, sizeof(bytes), MSG_DONTWAIT);
  if (size < 0 && (errno == EAGAIN || errno == EINTR)) return true;
  if (size <= 0) {
    if (peer.left) return true;
    leaves(peer);
    return false;
  }
  peer.heard = steady_now();
  peer.unread.append(bytes, size);
  for (size_t end = 0; (end = peer.unread.find('\n')) != std::string::npos;) {
    const std::string line = peer.unread.substr(0, end);
    peer.unread.erase(0, end + 1);
    hear_line(peer, line);
  }
  return true;
}

// Nobody but the hub hears all; of its own death the first of the others tells.
void Lifeline::note_deaths(const std::vector<int>& ranks) {
  if (ranks.empty()) return;
  // A hub that was stopped for long is told of its own silence by nobody, and finds the others
  // gone.
  const bool teller = is_hub() ? !judged_ : options_.rank == hub_ + 1;
  if (ranks[0] == kOutside)
    return job_ended({.reason = "the process that started it died"}, teller);
  std::vector<std::string> places;
  for (const int rank : ranks)
    places.push_back(fmt::format("rank {} died {}", rank, dog_->place(rank)));
  job_ended({.reason = adjoint::join(places, ", ")}, teller);
}

// What is wrong with the input every rank finds, or one alone: wait a moment for the others.
void Lifeline::note_refusal(int rank, const std::string& reason) {
  if (refusals_.empty()) refused_at_ = steady_now();
  refusals_.emplace_back(rank, reason);
}

void Lifeline::tell_refusal() {
  constexpr double kPatience = 0.5;
  if (refusals_.empty()) return;
  const bool all = static_cast<int>(refusals_.size()) == options_.ranks;
  if (!all && steady_now() - refused_at_ < kPatience) return;
  const int rank = refusals_[0].first;
  const std::string reason = refusals_[0].second;
  const auto same = [&](const auto& other) { return other.second == reason; };
  const bool alike = std::ranges::count_if(refusals_, same) == options_.ranks;
  // Rank 0 looks at folders and data for all.
  job_ended({alike || rank == 0 ? reason : fmt::format("{} (rank {})", reason, rank), true}, true);
}

void Lifeline::job_ended(const End& end, bool say) {
  {
    const std::lock_guard lock(mutex_);
    if (ended_) return;
  }
  if (say) {
    const std::string line =
        join_parts("adjoint: ", end.refused ? "" : "the job ends: ", printable(end.reason));
    options_.say ? options_.say(line) : (void)std::fprintf(stderr, "%s\n", line.c_str());
  }
  if (is_hub()) {
    for (const Peer& peer : peers_) {
      if (!peer.left) send_line(peer.socket, (end.refused ? "refused " : "end ") + end.reason);
    }
  }
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
  }
  changed_.notify_all();
  if (options_.ended) options_.ended(end.reason, end.refused);
}

void Lifeline::forgive(double seconds) {
  const std::lock_guard lock(mutex_);
  for (Peer& peer : peers_) peer.heard += seconds;
  dog_->forgives(seconds);
}

void Lifeline::watch() {
  double ended_at = 0;
  looked_at_ = steady_now();
  while (true) {
    const size_t num_peers = peers_.size();
    const bool listens = is_hub() && listener_ >= 0;
    std::vector<pollfd> sockets = {
        {.fd = wake_[0], .events = POLLIN, .revents = 0},
        // A negative one is passed over.
        {.fd = listens ? listener_ : -1, .events = POLLIN, .revents = 0}};
    for (const Peer& peer : peers_) {
      sockets.push_back({.fd = peer.left ? -1 : peer.socket, .events = POLLIN, .revents = 0});
    }
    for (const Stranger& stranger : strangers_) {
      sockets.push_back({.fd = stranger.socket, .events = POLLIN, .revents = 0});
    }
    ::poll(sockets.data(), sockets.size(), static_cast<int>(beat() * 1000));
    // Who was stopped itself, or had no processor, has heard nobody meanwhile.
    const double away = steady_now() - looked_at_;
    looked_at_ = steady_now();
    if (away > options_.limits.seconds / 2) forgive(away);
    if (away > kHubLimits * dog_->limit()) judged_ = true;
    char woken[16];
    if (sockets[0].revents) [[maybe_unused]]
      const ssize_t read = ::read(wake_[0], woken, 16);
    std::vector<int> died;
    for (size_t i = 0; i < num_peers; ++i) {
      if (sockets[i + 2].revents && !hear(peers_[i])) died.push_back(peers_[i].rank);
    }
    note_deaths(died);
    hear_strangers();
    if (sockets[1].revents) accept_one();
    bool over = false, ended = false, complete = false;
    std::optional<End> asked;
    {
      const std::lock_guard lock(mutex_);
      over = over_;
      ended = ended_;
      complete = joined_ == options_.ranks - (options_.rank == kOutside ? 0 : 1);
      asked.swap(asked_end_);
    }
    if (ended) {
      if (over) return;
      if (ended_at == 0) ended_at = steady_now();
      // The caller computes, and never asks: there is nobody to end it but this thread.
      const bool is_rank = options_.rank != kOutside;
      if (is_rank && steady_now() - ended_at > options_.grace) ::_exit(kMachineFailed);
      continue;
    }
    tell_news();
    if (asked && is_hub()) {
      asked->refused ? note_refusal(options_.rank, asked->reason) : job_ended(*asked, true);
    } else if (asked) {
      // The hub tells everyone, this one too.
      send_line(peers_[0].socket, (asked->refused ? "refused " : "end ") + asked->reason);
    }
    judge_hub();
    if (is_hub()) tell_refusal();
    if (is_hub() && complete && !over) {
      for (const Peer& peer : peers_) {
        // Who says nothing at all, not even that it waits, does not wait.
        if (steady_now() - peer.heard > dog_->limit() / 2) dog_->waits(peer.rank, false);
      }
      if (const auto verdict = dog_->verdict(steady_now())) job_ended({.reason = *verdict}, true);
    }
    if (over) {
      for (const Peer& peer : peers_) {
        if (!peer.left) send_line(peer.socket, "bye");
      }
      return;
    }
  }
}

}  // namespace adjoint
