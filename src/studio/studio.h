// The studio: a page in the browser, and a server for it on the loopback address. It is a shell
// around the commands: every picture of the page is the JSON that a command of this binary prints,
// run as a child process in the folder. So the server knows no scheme, and nothing that breaks in a
// command takes it down.
#pragma once
#include <atomic>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>

namespace adjoint {

struct StudioOptions {
  std::filesystem::path folder = ".";
  std::optional<int> port = {};                      // none: the first that is free
  std::filesystem::path page = {};                   // instead of the page in the binary
  std::filesystem::path program = "/proc/self/exe";  // whose commands are run
  int cores = 1;
  std::string device = "cpu";
  std::string version = {};
};

class Studio {
 public:
  // Answers from here on. An Error says why not: a folder that is missing, a port that is taken.
  explicit Studio(const StudioOptions& options);
  ~Studio();
  Studio(const Studio&) = delete;
  Studio& operator=(const Studio&) = delete;

  std::string url() const;
  int port() const;

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace adjoint
