#include "studio/studio.h"

#include <unistd.h>

#include <csignal>

#include "base/error.h"
#include "studio/api.h"
#include "studio/guard.h"
#include "studio/http_server.h"
#include "studio/page.h"

namespace adjoint {

namespace fs = std::filesystem;

namespace {

constexpr int kFirstPort = 8421, kPortsTried = 100;

fs::path checked_folder(const fs::path& folder) {
  std::error_code error;
  if (!fs::exists(folder, error)) fail(folder.string(), ": there is no such folder");
  if (!fs::is_directory(folder, error)) fail(folder.string(), ": this is no folder");
  if (::access(folder.c_str(), R_OK | W_OK | X_OK) != 0) {
    fail(folder.string(), ": the studio cannot write in this folder");
  }
  return folder;
}

Listening listening_for(const std::optional<int>& port) {
  if (port) {
    if (*port < 1 || *port > 65535) fail("--port: wanted 1 to 65535, found ", *port);
    if (const auto found = listen_on_loopback(*port)) return *found;
    fail("--port ", *port,
         ": another program has this port, or it may not be used; leave --port "
         "out, and a free one is taken");
  }
  for (int each = kFirstPort; each < kFirstPort + kPortsTried; ++each) {
    if (const auto found = listen_on_loopback(each)) return *found;
  }
  if (const auto found = listen_on_loopback(0)) return *found;
  throw MachineError("no port of this machine is free");
}

nlohmann::json hello_of(const StudioOptions& options, const Folder& folder, const Page& page) {
  return {
      {"version", options.version},
      {"folder", {{"name", folder.root().filename().string()}, {"path", folder.root().string()}}},
      {"pid", ::getpid()},
      {"page", page.is_there()},
      {"cores", options.cores},
      {"device", options.device}};
}

}  // namespace

// In the order in which they begin; they end in the opposite one.
struct Studio::Parts {
  explicit Parts(const StudioOptions& options, Listening listening)
      : port(listening.port),
        token(random_token()),
        folder(checked_folder(options.folder)),
        page(options.page),
        children(folder.root(), options.program),
        asks(children, options.cores),
        jobs(children, folder, events),
        watch(folder, events),
        guard(token, listening.port),
        api{.folder = folder,
            .asks = asks,
            .jobs = jobs,
            .events = events,
            .hello = hello_of(options, folder, page)},
        server(listening.socket,
               {.admit = [this](const HttpRequest& r) { return guard.refusal(r); },
                .answer = [this](const HttpRequest& r) { return answer(r); },
                .headers = safety_headers()}) {}

  HttpAnswer answer(const HttpRequest& request) const {
    const auto inner = guard.inner(request);
    if (!inner) return {.status = 301, .headers = {{"Location", "/" + token + "/"}}};
    if (inner->starts_with("api/")) return api.answer(inner->substr(4), request);
    if (request.method != "GET" && request.method != "HEAD") return {.status = 405};
    return page.answer(*inner);
  }

  int port;
  std::string token;
  Folder folder;
  Page page;
  Children children;
  Events events;
  Asks asks;
  Jobs jobs;
  Watch watch;
  Guard guard;
  Api api;
  HttpServer server;
};

Studio::Studio(const StudioOptions& options) {
  // A child that ends before it has read its input is no reason to end.
  std::signal(SIGPIPE, SIG_IGN);
  checked_folder(options.folder);
  parts_ = std::make_unique<Parts>(options, listening_for(options.port));
  parts_->folder.sweep();
}

Studio::~Studio() {
  // Pages hear of the jobs' ends: streams are the last to close.
  parts_->asks.stop();
  parts_->jobs.stop_all();
  parts_->events.stop();
  parts_->server.stop();
}

int Studio::port() const { return parts_->port; }

std::string Studio::url() const {
  return "http://127.0.0.1:" + std::to_string(parts_->port) + "/" + parts_->token + "/";
}

}  // namespace adjoint
