// Who may join the ranks' watch, and how long others can keep it.
#include "comm/lifeline.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <sstream>

#include "base/error_text.h"

namespace adjoint {
namespace {

using Clock = std::chrono::steady_clock;

int port_of(const std::string& address) { return std::stoi(address); }

// A connection to the port on this machine; -1 where nobody listens.
int dial(int port) {
  const int made = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (::connect(made, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0) return made;
  ::close(made);
  return -1;
}

// Whether the other side closes the connection within some seconds.
bool is_closed(int socket) {
  timeval patience{.tv_sec = 8, .tv_usec = 0};
  ::setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
  char byte = 0;
  return ::recv(socket, &byte, 1, 0) <= 0 && errno != EAGAIN;
}

void wait_for_joined(Lifeline& hub, int ranks) {
  const auto begin = Clock::now();
  while (hub.num_joined() < ranks && Clock::now() - begin < std::chrono::seconds(10)) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

LifelineOptions quiet(int rank, int ranks) {
  return {.rank = rank, .ranks = ranks, .say = [](const std::string&) {}};
}

TEST(Lifeline, StrangersKeepNobodyWaitingAndTheDoorIsShutBehindTheLast) {
  Lifeline hub(quiet(Lifeline::kOutside, 2));
  const std::string address = hub.listen();
  hub.serve();
  const int silent = dial(port_of(address)), endless = dial(port_of(address));
  ASSERT_GE(silent, 0);
  ASSERT_GE(endless, 0);
  const std::string letters(4096, 'x');
  ASSERT_GT(::send(endless, letters.data(), letters.size(), MSG_NOSIGNAL), 0);
  EXPECT_TRUE(is_closed(endless)) << "a line that is longer than any rank's";
  const auto begin = Clock::now();
  Lifeline first(quiet(0, 2)), second(quiet(1, 2));
  first.join(address, Lifeline::kOutside);
  second.join(address, Lifeline::kOutside);
  wait_for_joined(hub, 2);
  EXPECT_EQ(hub.num_joined(), 2);
  EXPECT_LT(Clock::now() - begin, std::chrono::milliseconds(900)) << "nobody waits for the silent";
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_EQ(dial(port_of(address)), -1) << "nobody else has business here";
  EXPECT_TRUE(is_closed(silent));
  ::close(silent);
  ::close(endless);
}

TEST(Lifeline, RanksOfOneMachineListenOnItAlone) {
  LifelineOptions options = quiet(0, 2);
  options.one_machine = true;
  Lifeline hub(options);
  std::istringstream parts(hub.listen());
  std::string port, token, host, another;
  parts >> port >> token >> host >> another;
  EXPECT_EQ(host, "127.0.0.1");
  EXPECT_EQ(another, "");
}

TEST(Lifeline, AHubThatCannotBeReachedIsNamedWithoutItsKey) {
  std::string address;
  {
    Lifeline hub(quiet(Lifeline::kOutside, 2));
    std::istringstream parts(hub.listen());
    std::string port, token;
    parts >> port >> token;
    address = port + " " + token + " 127.0.0.1";
  }
  Lifeline rank(quiet(1, 2));
  std::string said;
  try {
    rank.join(address, Lifeline::kOutside);
  } catch (const MachineError& error) {
    said = error.what();
  }
  const std::string port = address.substr(0, address.find(' '));
  EXPECT_EQ(said,
            "rank 1 cannot reach the launcher, which listens at port " + port + " of 127.0.0.1");
}

// A rank's words are shown on a terminal.
TEST(Lifeline, WhatRanksSayIsShownWithoutControlCharacters) {
  std::string said;
  LifelineOptions options = quiet(Lifeline::kOutside, 1);
  options.say = [&](const std::string& line) { said = line; };
  Lifeline hub(options);
  const std::string address = hub.listen();
  hub.serve();
  Lifeline rank(quiet(0, 1));
  rank.join(address, Lifeline::kOutside);
  wait_for_joined(hub, 1);
  rank.end("the disk is \x1b[31mfull\x07");
  EXPECT_EQ(said, "adjoint: the job ends: the disk is ?[31mfull?");
}

}  // namespace
}  // namespace adjoint
