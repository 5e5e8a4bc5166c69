#include "studio/children.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <future>

#include "base/error.h"

namespace adjoint {

namespace {

struct Pipe {
  int read = -1, write = -1;
  Pipe() {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) throw MachineError("no pipe can be made");
    read = ends[0];
    write = ends[1];
  }
  ~Pipe() {
    close_file(read);
    close_file(write);
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
};

// What runs between fork and exec: calls to the system alone, for another thread may have held a
// lock of the allocator's.
[[noreturn]] void become(const char* program, char* const* arguments, const char* folder,
                         pid_t parent, bool is_question, int in, int out, int err) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGHUP);  // not SIGINT: a run that is saving would take it for haste
  if (::getppid() != parent) ::_exit(1);  // it died in between
  sigset_t none;
  sigemptyset(&none);
  ::pthread_sigmask(SIG_SETMASK, &none, nullptr);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGPIPE}) ::signal(signal, SIG_DFL);
  // Where memory is short, a question is to end and not the studio; a run is worth what it is worth
  // when a shell starts it.
  const int score = is_question ? ::open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC) : -1;
  if (score >= 0) {
    static_cast<void>(!::write(score, "500", 3));
    ::close(score);
  }
  if (in < 0) in = ::open("/dev/null", O_RDONLY);
  if (::dup2(in, 0) < 0 || ::dup2(out, 1) < 0 || ::dup2(err, 2) < 0 || ::chdir(folder) != 0) {
    ::_exit(3);
  }
  ::execv(program, arguments);
  ::_exit(3);
}

}  // namespace

void close_file(int& file) {
  if (file >= 0) ::close(file);
  file = -1;
}

Child::~Child() {
  for (int* file : {&in, &out, &err}) close_file(*file);
  if (pid < 0) return;
  signal(SIGKILL);
  wait();
}

Child& Child::operator=(Child&& other) noexcept {
  std::swap(pid, other.pid);
  std::swap(in, other.in);
  std::swap(out, other.out);
  std::swap(err, other.err);
  return *this;
}

void Child::signal(int number) const {
  if (pid > 0) ::kill(-pid, number);
}

int Child::wait() {
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  pid = -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

Children::Children(std::filesystem::path folder, std::filesystem::path program)
    : folder_(std::move(folder)), program_(std::move(program)) {
  forker_ = std::thread([this] { fork_all(); });
}

Children::~Children() {
  {
    const std::scoped_lock lock(mutex_);
    over_ = true;
  }
  changed_.notify_all();
  forker_.join();
}

void Children::fork_all() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return over_ || !wanted_.empty(); });
    if (wanted_.empty()) return;
    const auto next = std::move(wanted_.front());
    wanted_.pop_front();
    lock.unlock();
    next();
    lock.lock();
  }
}

Child Children::start(const std::vector<std::string>& arguments, May may, bool reads) {
  std::vector<std::string> words = {"adjoint", "--inside", folder_.string()};
  if (may == May::kRead) words.emplace_back("--read-only");
  if (reads) words.emplace_back("--drafts");
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  std::optional<Pipe> in;
  if (reads) in.emplace();
  Pipe out, err;
  const pid_t self = ::getpid();
  std::promise<pid_t> forked;
  {
    const std::scoped_lock lock(mutex_);
    wanted_.emplace_back([&] {
      const pid_t pid = ::fork();
      if (pid == 0) {
        become(program_.c_str(), argv.data(), folder_.c_str(), self, may == May::kRead,
               in ? in->read : -1, out.write, err.write);
      }
      if (pid > 0) ::setpgid(pid, pid);  // whoever comes first: it may be signalled at once
      forked.set_value(pid);
    });
  }
  changed_.notify_all();
  Child child;
  child.pid = forked.get_future().get();
  if (child.pid < 0) throw MachineError("no process can be started");
  if (in) std::swap(child.in, in->write);
  std::swap(child.out, out.read);
  std::swap(child.err, err.read);
  return child;
}

}  // namespace adjoint
