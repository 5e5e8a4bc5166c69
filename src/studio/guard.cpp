#include "studio/guard.h"

#include <sys/random.h>

#include <algorithm>

#include "base/error.h"
#include "base/split.h"
#include "base/text.h"

namespace adjoint {

namespace {

bool is_json(const std::string* type) {
  if (!type) return false;
  return lowered(trimmed(type->substr(0, type->find(';')))) == "application/json";
}

}  // namespace

std::string random_token() {
  unsigned char bytes[16];
  if (::getrandom(bytes, sizeof bytes, 0) != static_cast<ssize_t>(sizeof bytes)) {
    throw MachineError("the system gives no random numbers");
  }
  std::string token;
  for (const unsigned char byte : bytes) {
    token += "0123456789abcdef"[byte >> 4];
    token += "0123456789abcdef"[byte & 15];
  }
  return token;
}

bool same_secret(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  unsigned char differs = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    differs = static_cast<unsigned char>(differs | (a[i] ^ b[i]));
  }
  return differs == 0;
}

Guard::Guard(std::string token, int port) : token_(std::move(token)) {
  for (const char* host : {"127.0.0.1:", "localhost:"}) {
    hosts_.push_back(host + std::to_string(port));
  }
  if (port == 80) hosts_.insert(hosts_.end(), {"127.0.0.1", "localhost"});  // as browsers say it
}

std::optional<HttpAnswer> Guard::refusal(const HttpRequest& request) const {
  const std::string* host = request.header("host");
  if (!host || std::find(hosts_.begin(), hosts_.end(), *host) == hosts_.end()) {
    return HttpAnswer{.status = 403};
  }
  for (const auto& [name, origin] : request.headers) {
    const bool ours = origin.starts_with("http://") &&
                      std::find(hosts_.begin(), hosts_.end(), origin.substr(7)) != hosts_.end();
    if (name == "origin" && !ours) return HttpAnswer{.status = 403};
  }
  const std::string_view path(request.path);
  const std::string_view first = path.substr(1, std::min(path.find('/', 1), path.size()) - 1);
  if (!same_secret(first, token_)) return HttpAnswer{.status = 404};
  const bool reads = request.method == "GET" || request.method == "HEAD";
  if (!reads && request.method != "POST" && request.method != "PUT") {
    return HttpAnswer{.status = 405};
  }
  if (!reads && !is_json(request.header("content-type"))) return HttpAnswer{.status = 415};
  return std::nullopt;
}

std::optional<std::string> Guard::inner(const HttpRequest& request) const {
  const size_t slash = request.path.find('/', 1);
  if (slash == std::string::npos) return std::nullopt;
  return request.path.substr(slash + 1);
}

std::vector<std::pair<std::string, std::string>> safety_headers() {
  return {{"Referrer-Policy", "no-referrer"},
          {"X-Content-Type-Options", "nosniff"},
          {"Cross-Origin-Resource-Policy", "same-origin"},
          {"Cross-Origin-Opener-Policy", "same-origin"},
          {"X-Frame-Options", "DENY"},
          {"Content-Security-Policy",
           "default-src 'self'; script-src 'self'; style-src 'self' 'unsafe-inline'; "
           "img-src 'self' data: blob:; worker-src 'self' blob:; object-src 'none'; "
           "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"}};
}

}  // namespace adjoint
