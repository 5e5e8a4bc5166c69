// adjoint studio: the page in the browser, and the server behind it.
#include "studio/studio.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>

#include "base/version.h"
#include "cli/command.h"
#include "cli/interrupts.h"
#include "device/gpu.h"
#include "device/limits.h"

namespace adjoint {

namespace {

struct StudioFlags {
  std::string folder = ".", page;
  std::optional<int> port;
  bool no_open = false, json = false;
};

bool has_display() {
  const auto says = [](const char* name) {
    const char* value = std::getenv(name);
    return value && *value;
  };
  return says("DISPLAY") || says("WAYLAND_DISPLAY");
}

// A page that sends the browser on to the address. Everybody on this machine may read the arguments
// of a process, and the address has the token: so the browser is given the name of a file that only
// its user can read. It is there as long as this.
class DoorPage {
 public:
  explicit DoorPage(const std::string& url) {
    const char* own = std::getenv("XDG_RUNTIME_DIR");
    std::error_code error;
    std::filesystem::path folder = own ? own : "";
    if (!folder.is_absolute() || ::access(folder.c_str(), W_OK | X_OK) != 0) {
      std::string made = (std::filesystem::temp_directory_path(error) / "adjoint-XXXXXX").string();
      if (error || !::mkdtemp(made.data())) return;
      made_ = folder = made;
    }
    std::string name = (folder / "adjoint-studio-XXXXXX.html").string();
    const int file = ::mkostemps(name.data(), 5, O_CLOEXEC);  // readable for its owner alone
    if (file < 0) return;
    path_ = name;
    const std::string page =
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">"
        "<meta name=\"referrer\" content=\"no-referrer\"><title>Adjoint Studio</title>"
        "<meta http-equiv=\"refresh\" content=\"0; url=" +
        url + "\"></head><body><a href=\"" + url + "\">Adjoint Studio</a></body></html>\n";
    const bool whole = ::write(file, page.data(), page.size()) == static_cast<ssize_t>(page.size());
    ::close(file);
    if (!whole) remove();
  }
  ~DoorPage() { remove(); }
  DoorPage(const DoorPage&) = delete;
  DoorPage& operator=(const DoorPage&) = delete;

  const std::string& path() const { return path_; }  // "" where none could be written

 private:
  void remove() {
    if (!path_.empty()) ::unlink(path_.c_str());
    if (!made_.empty()) ::rmdir(made_.c_str());
    path_.clear();
    made_.clear();
  }
  std::string path_;
  std::filesystem::path made_;
};

// By a grandchild, so that whatever xdg-open becomes is nobody's child to wait for.
void open_browser(const std::string& file) {
  const pid_t child = ::fork();
  if (child == 0) {
    if (::fork() != 0) ::_exit(0);
    sigset_t none;
    sigemptyset(&none);
    ::pthread_sigmask(SIG_SETMASK, &none, nullptr);
    ::setsid();
    const int nothing = ::open("/dev/null", O_RDWR);
    for (const int stream : {0, 1, 2}) ::dup2(nothing, stream);
    ::execlp("xdg-open", "xdg-open", file.c_str(), static_cast<char*>(nullptr));
    ::_exit(1);
  }
  if (child > 0) ::waitpid(child, nullptr, 0);
}

int run(const StudioFlags& flags) {
  Interrupts interrupts;
  interrupts.ask_from_now_on();
  Studio studio({.folder = flags.folder,
                 .port = flags.port,
                 .page = flags.page,
                 .cores = available_processors(),
                 .device = has_gpu() ? "cuda" : "cpu",
                 .version = kVersion});
  if (flags.json) {
    std::cout << nlohmann::json{{"command", "studio"},
                                {"url", studio.url()},
                                {"port", studio.port()},
                                {"pid", ::getpid()}}
                     .dump()
              << std::endl;
  } else {
    std::cout << fmt::format("{}\nCtrl-C ends the studio; runs that it started save and stop.",
                             studio.url())
              << std::endl;
  }
  std::optional<DoorPage> door;
  if (!flags.no_open && has_display()) {
    door.emplace(studio.url());
    if (!door->path().empty()) open_browser(door->path());
  }
  while (!interrupts.stop()) std::this_thread::sleep_for(std::chrono::milliseconds(50));
  return kDone;
}

}  // namespace

void add_studio(CLI::App& app, Action& action) {
  CLI::App* command =
      app.add_subcommand("studio", "models, steps, memory and runs as pictures in the browser");
  auto flags = std::make_shared<StudioFlags>();
  command->add_option("folder", flags->folder, "the folder whose files it shows and writes")
      ->capture_default_str();
  command->add_option("--port", flags->port, "the port (default: the first free one from 8421 on)");
  command->add_flag("--no-open", flags->no_open, "print the address and open no browser");
  command->add_flag("--json", flags->json, "the address as JSON, when it answers");
  // For those who work on the page: a folder that Vite made.
  command->add_option("--page", flags->page)->group("");
  command->footer(
      "The page is for this machine alone: the server listens on 127.0.0.1, and its address has a\n"
      "token that is new with every start. Nothing outside the folder is read or written.\n"
      "Examples:\n"
      "  adjoint studio\n"
      "  adjoint studio models --port 9000 --no-open");
  command->callback([flags, &action] { action = [flags] { return run(*flags); }; });
}

}  // namespace adjoint
