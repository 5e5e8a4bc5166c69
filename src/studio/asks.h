// Questions: a command that only reads is run, and what it prints as JSON is the answer. A page
// asks anew with every key that is pressed, so a question may name a lane: a newer one in the same
// lane ends the older one. As many run at once as there are cores; others wait in their order.
#pragma once
#include <atomic>
#include <condition_variable>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "studio/children.h"

namespace adjoint {

struct AskLimits {
  std::chrono::milliseconds time{120'000};
  size_t output = 64 * 1024 * 1024;
};

class Asks {
 public:
  Asks(Children& children, int at_once, AskLimits limits = {});

  // The answer's JSON text, for a request's object. `gone`: whether nobody waits for it any more.
  std::string ask(const nlohmann::json& request, const std::function<bool()>& gone);

  // Ends all that run, and those that wait.
  void stop();

 private:
  struct Ticket {
    std::string lane;
    std::atomic<bool> ended = false;
  };
  struct Outcome {
    int code = 0;
    std::string out, err, trouble;
    bool cancelled = false;
  };
  std::shared_ptr<Ticket> enqueue(const std::string& lane);
  bool wait_for_turn(const Ticket& ticket, const std::function<bool()>& gone);
  void leave(const Ticket& ticket);
  Outcome run(const std::vector<std::string>& arguments, const std::string& input,
              const Ticket& ticket, const std::function<bool()>& gone);

  Children& children_;
  const int at_once_;
  const AskLimits limits_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::list<std::shared_ptr<Ticket>> waiting_, running_;
  bool stopped_ = false;
};

}  // namespace adjoint
