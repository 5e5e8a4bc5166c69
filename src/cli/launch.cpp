// adjoint launch: starts mpirun, watches its ranks from outside, and starts a job again that
// failed.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <sstream>
#include <thread>

#include "base/error.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/interrupts.h"
#include "cli/mistakes.h"
#include "cli/train_flags.h"
#include "comm/lifeline.h"
#include "train/resolve_config.h"
#include "train/store.h"

namespace adjoint {

namespace {

namespace fs = std::filesystem;
using Words = std::vector<std::string>;

constexpr int64_t kMostLaunched = 1024, kMostRestarts = 1'000'000;

struct LaunchFlags {
  int64_t ranks = 0, restarts = 0;
  std::string mpirun = "mpirun";
  Words command;
};

// What the command to be started says of itself.
struct StartedTrain {
  TrainFlags flags;
  std::string out;
  bool resumes = false;
};

StartedTrain read_command(const Words& words) {
  if (words.empty() || words[0] != "train") {
    fail("launch starts `train`: adjoint launch -n 4 -- train --data book.txt ...");
  }
  CLI::App app;
  const auto flags = std::make_shared<TrainFlags>();
  TrainFlags::add_to(*app.add_subcommand("train"), flags);
  app.name("adjoint");
  try {
    app.parse(Words(words.rbegin(), words.rend()));
  } catch (const CLI::ParseError& e) {
    std::vector<const char*> argv = {"adjoint"};
    for (const std::string& word : words) argv.push_back(word.c_str());
    fail("launch: ", explained(app, e, static_cast<int>(argv.size()), argv.data()));
  }
  const nlohmann::json layers[] = {flags->file_layer(), flags->layer()};
  const TrainConfig config = make_config(layers);
  return {.flags = *flags, .out = config.out, .resumes = config.resume};
}

// Tells one run.json from another: a file that was written anew has another number.
std::string print_of_run(const std::string& out) {
  struct stat about = {};
  if (::stat(SavePaths(out).run().c_str(), &about) != 0) return "";
  return fmt::format("{} {} {}", about.st_dev, about.st_ino, about.st_mtim.tv_nsec);
}

// The words with which a run goes on that this job began.
Words words_to_go_on(const StartedTrain& train) {
  Words words = {"train", "--resume", "--out", train.out};
  for (const OptionSpec& option : train_options()) {
    const auto given = train.flags.given.find(option.name);
    // What speaks of one command is not kept with the run; these three say how it begins.
    const bool begins = option.name == "resume" || option.name == "overwrite" ||
                        option.name == "repeat" || option.name == "adapter";
    if (given == train.flags.given.end() || !option.traits.of_command || begins) continue;
    for (const std::string& text : given->second) words.insert(words.end(), {option.flag(), text});
  }
  if (train.flags.json) words.emplace_back("--json");
  return words;
}

Words split_words(const std::string& text) {
  std::istringstream in(text);
  Words words;
  for (std::string word; in >> word;) words.push_back(word);
  return words;
}

// Whether this launcher gives its own environment to ranks on other machines only where it is told.
bool names_variables(const std::string& mpirun) {
  std::FILE* const told = ::popen((shell_quoted(mpirun) + " --version 2>/dev/null").c_str(), "r");
  if (!told) return false;
  std::string text;
  char buffer[256];
  for (size_t n; (n = std::fread(buffer, 1, sizeof buffer, told)) > 0;) text.append(buffer, n);
  ::pclose(told);
  return text.find("Open MPI") != std::string::npos || text.find("OpenRTE") != std::string::npos;
}

pid_t start(const Words& words) {
  const pid_t child = ::fork();
  if (child < 0) throw MachineError("no process can be started");
  if (child > 0) return child;
  // Ctrl-C is ours: it asks ranks to save, where mpirun would end them.
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  sigset_t none;
  sigemptyset(&none);
  pthread_sigmask(SIG_SETMASK, &none, nullptr);
  const int nothing = ::open("/dev/null", O_RDONLY);
  ::dup2(nothing, 0);
  std::vector<char*> argv;
  for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  ::execvp(argv[0], argv.data());
  std::fprintf(stderr, "adjoint: %s: cannot be started: %s\n", argv[0], std::strerror(errno));
  ::_exit(kBadInput);
}

struct Ended {
  int code = 0;
  int joined = 0;  // ranks that began
  bool refused = false, told = false, stopped = false;
};

Ended run_job(const LaunchFlags& flags, const Words& command, const Interrupts& interrupts) {
  using namespace std::chrono_literals;
  using Clock = std::chrono::steady_clock;
  std::atomic<bool> ended = false, refused = false;
  Lifeline lifeline({.rank = Lifeline::kOutside,
                     .ranks = static_cast<int>(flags.ranks),
                     .limits = said_limits(),
                     .ended = [&](const std::string&, bool wrong_input) {
                       refused = wrong_input;
                       ended = true;
                     }});
  ::setenv(kLifelineVariable, lifeline.listen().c_str(), 1);
  lifeline.serve();
  Words words = split_words(flags.mpirun);
  if (names_variables(words[0])) words.insert(words.end(), {"-x", kLifelineVariable});
  words.insert(words.end(),
               {"-n", std::to_string(flags.ranks), fs::read_symlink("/proc/self/exe")});
  words.insert(words.end(), command.begin(), command.end());
  const pid_t child = start(words);
  int status = 0;
  bool asked = false;
  std::optional<Clock::time_point> patience;  // for mpirun to end once the job has
  while (::waitpid(child, &status, WNOHANG) == 0) {
    std::this_thread::sleep_for(20ms);
    if (interrupts.stop() && !asked) {
      asked = true;
      ::kill(child, SIGUSR1);  // which it passes on
    }
    if (ended && !patience) patience = Clock::now() + 10s;
    if (patience && Clock::now() > *patience) {
      ::kill(child, SIGKILL);
      patience = Clock::now() + 10s;
    }
  }
  return {.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status),
          .joined = lifeline.num_joined(),
          .refused = refused,
          .told = ended,
          .stopped = asked};
}

int run_launch(const LaunchFlags& flags) {
  if (flags.ranks < 1 || flags.ranks > kMostLaunched) {
    fail("-n: wanted 1 to ", kMostLaunched, ", found ", flags.ranks);
  }
  if (flags.restarts < 0 || flags.restarts > kMostRestarts) {
    fail("--restarts: wanted 0 to ", kMostRestarts, ", found ", flags.restarts);
  }
  if (split_words(flags.mpirun).empty()) fail("--mpirun: wanted a command, found nothing");
  const StartedTrain train = read_command(flags.command);
  Interrupts interrupts;
  interrupts.ask_from_now_on(
      {.first =
           [] { return "asking the ranks to save and stop; Ctrl-C again ends the job at once"; },
       .second = "ended at once"});
  const std::string before = print_of_run(train.out);
  Words words = flags.command;
  for (int64_t restart = 0;; ++restart) {
    const Ended end = run_job(flags, words, interrupts);
    if (end.code == kDone && !end.told) return kDone;
    if (end.stopped || end.code == kInterrupted) return kInterrupted;
    if (end.joined == 0) {
      const bool root = ::geteuid() == 0 && !std::getenv("OMPI_ALLOW_RUN_AS_ROOT");
      fail(flags.mpirun, " ended with code ", end.code, " before any rank began",
           root ? "; Open MPI's refuses to run as root unless OMPI_ALLOW_RUN_AS_ROOT=1 and "
                  "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 are in the environment"
                : "; what it said is above");
    }
    if (end.refused) return kBadInput;
    if (restart == flags.restarts) return kMachineFailed;
    // A save in the folder is this job's if the job has begun the folder's run.
    const SavePaths paths(train.out);
    const bool ours = train.resumes || print_of_run(train.out) != before;
    const auto step = ours ? step_to_resume(paths) : std::nullopt;
    words = step && !train.resumes ? words_to_go_on(train) : flags.command;
    std::cerr << fmt::format("adjoint: starting again ({} of {}), {}\n", restart + 1,
                             flags.restarts,
                             step ? fmt::format("from the save of step {}", *step)
                                  : std::string("from the beginning: nothing was saved yet"));
  }
}

}  // namespace

void part_launched_command(std::vector<char*>& arguments) {
  static char end_of_flags[] = "--";
  bool launches = false;
  for (auto word = arguments.begin() + 1; word < arguments.end(); ++word) {
    const std::string_view said = *word;
    if (said == end_of_flags) return;
    if (launches && said == "train") {
      arguments.insert(word, end_of_flags);
      return;
    }
    const bool of_program =
        said.starts_with('-') || *(word - 1) == std::string_view("--tell-every");
    if (!launches && said != "launch" && !of_program) return;
    launches = launches || said == "launch";
  }
}

void add_launch(CLI::App& app, Action& action) {
  CLI::App* command = app.add_subcommand(
      "launch", "start `train` on several processes by mpirun, and again where a rank fails");
  auto flags = std::make_shared<LaunchFlags>();
  command->add_option("-n,--ranks", flags->ranks, "how many ranks")->required();
  command
      ->add_option("--restarts", flags->restarts,
                   "how often a job that failed goes on from its last save")
      ->capture_default_str();
  command
      ->add_option("--mpirun", flags->mpirun,
                   "the launcher, with options of its own: 'mpirun --hostfile hosts'")
      ->capture_default_str();
  command->add_option("command", flags->command, "behind --: train and its options");
  command->footer(
      "The ranks are watched from here, so whatever ends the job is told once, with rank, step "
      "and\n"
      "object. Ctrl-C asks the ranks to save and stop.\n"
      "Examples:\n"
      "  adjoint launch -n 4 -- train --data book.txt --stack data_parallel --out runs/book\n"
      "  adjoint launch -n 4 --restarts 3 --mpirun 'mpirun --oversubscribe' -- train --resume "
      "--out runs/book");
  command->callback([flags, &action] { action = [flags] { return run_launch(*flags); }; });
}

}  // namespace adjoint
