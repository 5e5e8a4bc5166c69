// Commands of this binary, run as child processes in the folder. A child is confined to it
// (base/file_view.h), is a process group of its own, and gets SIGINT, the signal on which `train`
// saves and stops, when the studio dies.
#pragma once
#include <sys/types.h>

#include <condition_variable>
#include <deque>
#include <filesystem>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace adjoint {

// A process, and our ends of its pipes (-1: closed). Whoever still runs at the end is killed.
class Child {
 public:
  Child() = default;
  ~Child();
  Child(Child&& other) noexcept { *this = std::move(other); }
  Child& operator=(Child&& other) noexcept;

  pid_t pid = -1;
  int in = -1, out = -1, err = -1;

  void signal(int number) const;  // to the whole group
  // Its exit code, or 128 and the number of the signal that ended it; waits for its end.
  int wait();
};

class Children {
 public:
  // `program` is this binary; a test may name another.
  Children(std::filesystem::path folder, std::filesystem::path program = "/proc/self/exe");
  ~Children();
  Children(const Children&) = delete;
  Children& operator=(const Children&) = delete;

  enum class May { kRead, kWrite };
  // `reads`: standard input is a pipe with drafts (cli/view_flags.h). MachineError.
  Child start(const std::vector<std::string>& arguments, May may, bool reads);

 private:
  void fork_all();
  std::filesystem::path folder_, program_;
  // The kernel sends a child the signal when the *thread* dies that forked it. So all are forked by
  // one thread, which lives as long as the studio.
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> wanted_;
  bool over_ = false;
  std::thread forker_;
};

void close_file(int& file);

}  // namespace adjoint
