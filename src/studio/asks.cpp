#include "studio/asks.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>

#include "studio/api_error.h"
#include "studio/commands.h"

namespace adjoint {

using nlohmann::json;
using Clock = std::chrono::steady_clock;

namespace {

constexpr size_t kLongestLane = 200;
constexpr int kLook = 20;  // milliseconds between two looks at whether the answer is still wanted

// What goes to the command's standard input.
std::string input_of(const json& request) {
  json input = {{"drafts", json::object()}};
  if (const auto drafts = request.find("drafts"); drafts != request.end() && !drafts->is_null()) {
    if (!drafts->is_object()) refuse(400, "\"drafts\": wanted texts by path");
    for (const auto& [path, text] : drafts->items()) {
      if (!text.is_string()) refuse(400, "\"drafts\": wanted a text for ", path);
    }
    input["drafts"] = *drafts;
  }
  if (const auto said = request.find("stdin"); said != request.end()) input["stdin"] = *said;
  return input.dump();
}

std::string replaced(const json& value) {
  return value.dump(-1, ' ', false, json::error_handler_t::replace);
}

// Moves what is ready through one pipe; closes it at its end.
void read_some(int& from, std::string& to) {
  char buffer[65536];
  const ssize_t got = ::read(from, buffer, sizeof buffer);
  if (got > 0) to.append(buffer, static_cast<size_t>(got));
  if (got == 0 || (got < 0 && errno != EINTR && errno != EAGAIN)) close_file(from);
}

void write_some(int& to, std::string_view text, size_t& written) {
  const ssize_t sent = ::write(to, text.data() + written, text.size() - written);
  if (sent > 0) written += static_cast<size_t>(sent);
  const bool failed = sent < 0 && errno != EINTR && errno != EAGAIN;
  if (failed || written == text.size()) close_file(to);
}

}  // namespace

Asks::Asks(Children& children, int at_once, AskLimits limits)
    : children_(children), at_once_(std::max(at_once, 1)), limits_(limits) {}

std::shared_ptr<Asks::Ticket> Asks::enqueue(const std::string& lane) {
  const std::scoped_lock lock(mutex_);
  for (const auto* tickets : {&waiting_, &running_}) {
    for (const auto& other : *tickets) {
      if (!lane.empty() && other->lane == lane) other->ended = true;
    }
  }
  auto ticket = std::make_shared<Ticket>();
  ticket->lane = lane;
  ticket->ended = stopped_;
  waiting_.push_back(ticket);
  changed_.notify_all();
  return ticket;
}

bool Asks::wait_for_turn(const Ticket& ticket, const std::function<bool()>& gone) {
  std::unique_lock lock(mutex_);
  while (true) {
    if (ticket.ended || stopped_ || gone()) return false;
    const bool next = waiting_.front().get() == &ticket;
    if (next && running_.size() < static_cast<size_t>(at_once_)) break;
    changed_.wait_for(lock, std::chrono::milliseconds(100));
  }
  running_.splice(running_.end(), waiting_, waiting_.begin());
  changed_.notify_all();
  return true;
}

void Asks::leave(const Ticket& ticket) {
  const std::scoped_lock lock(mutex_);
  for (auto* tickets : {&waiting_, &running_}) {
    tickets->remove_if([&](const auto& each) { return each.get() == &ticket; });
  }
  changed_.notify_all();
}

Asks::Outcome Asks::run(const std::vector<std::string>& arguments, const std::string& input,
                        const Ticket& ticket, const std::function<bool()>& gone) {
  const Clock::time_point deadline = Clock::now() + limits_.time;
  Child child = children_.start(arguments, Children::May::kRead, /*reads=*/true);
  for (const int file : {child.in, child.out, child.err}) ::fcntl(file, F_SETFL, O_NONBLOCK);
  Outcome outcome;
  size_t written = 0;
  while (child.out >= 0 || child.err >= 0) {
    pollfd files[] = {{child.in, POLLOUT, 0}, {child.out, POLLIN, 0}, {child.err, POLLIN, 0}};
    const int ready = ::poll(files, 3, kLook);
    if (ready > 0) {
      if (files[0].revents) write_some(child.in, input, written);
      if (files[1].revents) read_some(child.out, outcome.out);
      if (files[2].revents) read_some(child.err, outcome.err);
    }
    outcome.cancelled = ticket.ended || gone();
    if (Clock::now() > deadline) {
      outcome.trouble = "the command took longer than " +
                        std::to_string(limits_.time.count() / 1000) + " seconds and was ended";
    }
    if (outcome.out.size() + outcome.err.size() > limits_.output) {
      outcome.trouble = "the command printed more than " + std::to_string(limits_.output >> 20) +
                        " MiB and was ended";
    }
    if (outcome.cancelled || !outcome.trouble.empty()) {
      child.signal(SIGKILL);  // it only reads
      break;
    }
  }
  outcome.code = child.wait();
  return outcome;
}

std::string Asks::ask(const json& request, const std::function<bool()>& gone) {
  std::vector<std::string> arguments = with_json(checked_arguments(request, Asked::kQuestion));
  // Nobody reads what it is doing, and it would stand among its errors.
  arguments.insert(arguments.begin(), {"--tell-every", "0"});
  const std::string input = input_of(request);
  const auto lane = request.find("lane");
  if (lane != request.end() && !lane->is_string()) refuse(400, "\"lane\": wanted a name");
  if (lane != request.end() && lane->get_ref<const std::string&>().size() > kLongestLane) {
    refuse(400, "\"lane\": wanted at most ", kLongestLane, " bytes");
  }
  const auto ticket = enqueue(lane == request.end() ? "" : lane->get<std::string>());
  struct Leaver {
    Asks& asks;
    const Ticket& ticket;
    ~Leaver() { asks.leave(ticket); }
  } leaver{*this, *ticket};
  const std::string cancelled = R"({"ok":false,"cancelled":true})";
  if (!wait_for_turn(*ticket, gone)) return cancelled;
  const Clock::time_point begin = Clock::now();
  const Outcome outcome = run(arguments, input, *ticket, gone);
  if (outcome.cancelled) return cancelled;
  const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  if (!outcome.trouble.empty() || outcome.code != 0) {
    const json error = outcome.trouble.empty() ? error_of(outcome.err, outcome.code, outcome.out)
                                               : json{{"message", outcome.trouble}};
    json answer = {{"ok", false}, {"code", outcome.code}, {"error", error}, {"seconds", seconds}};
    // A verdict that a law is broken says by which functor and by how much.
    json verdict = json::parse(outcome.out, nullptr, false);
    if (outcome.trouble.empty() && verdict.is_object()) answer["result"] = std::move(verdict);
    return replaced(answer);
  }
  // The command's own text goes out as it is: a large answer is not built up and taken apart again.
  const bool is_json = json::accept(outcome.out);
  const std::string result = is_json ? outcome.out : replaced(outcome.out);
  return R"({"ok":true,"result":)" + result + R"(,"notes":)" + replaced(notes_of(outcome.err)) +
         R"(,"seconds":)" + json(seconds).dump() + "}";
}

void Asks::stop() {
  const std::scoped_lock lock(mutex_);
  stopped_ = true;
  for (const auto* tickets : {&waiting_, &running_}) {
    for (const auto& ticket : *tickets) ticket->ended = true;
  }
  changed_.notify_all();
}

}  // namespace adjoint
