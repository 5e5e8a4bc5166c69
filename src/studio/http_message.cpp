#include "studio/http_message.h"

#include <algorithm>
#include <charconv>

#include "base/split.h"
#include "base/text.h"

namespace adjoint {

namespace {

constexpr size_t kMostHeaders = 100;

bool is_token(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           std::string_view("!#$%&'*+-.^_`|~").find(c) != std::string_view::npos;
  });
}

int hex(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

bool read_query(std::string_view text, std::map<std::string, std::string>& query) {
  while (!text.empty()) {
    const size_t end = std::min(text.find('&'), text.size());
    const std::string_view pair = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (pair.empty()) continue;
    const size_t equals = std::min(pair.find('='), pair.size());
    std::string name, value, spaced(pair.substr(std::min(equals + 1, pair.size())));
    std::replace(spaced.begin(), spaced.end(), '+', ' ');  // as forms write it
    if (!percent_decoded(pair.substr(0, equals), name) || !percent_decoded(spaced, value)) {
      return false;
    }
    if (!query.emplace(std::move(name), std::move(value)).second) return false;
  }
  return true;
}

// What these headers say of the connection; 0, or the status of a refusal.
int read_connection(HttpRequest& request) {
  int hosts = 0, lengths = 0;
  for (const auto& [name, value] : request.headers) {
    if (name == "host") ++hosts;
    if (name == "transfer-encoding") return 501;
    if (name == "connection" && lowered(value).find("close") != std::string::npos) {
      request.keep_alive = false;
    }
    if (name == "expect") {
      if (lowered(value) != "100-continue") return 417;
      request.expects_continue = true;
    }
    if (name == "content-length") {
      ++lengths;
      const char* const end = value.data() + value.size();
      const auto [stop, error] = std::from_chars(value.data(), end, request.body_size);
      if (value.empty() || value[0] == '+' || error != std::errc() || stop != end) return 400;
    }
  }
  return hosts == 1 && lengths <= 1 ? 0 : 400;
}

std::string_view reason(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 204:
      return "No Content";
    case 301:
      return "Moved Permanently";
    case 400:
      return "Bad Request";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 408:
      return "Request Timeout";
    case 409:
      return "Conflict";
    case 413:
      return "Content Too Large";
    case 414:
      return "URI Too Long";
    case 415:
      return "Unsupported Media Type";
    case 417:
      return "Expectation Failed";
    case 429:
      return "Too Many Requests";
    case 431:
      return "Request Header Fields Too Large";
    case 500:
      return "Internal Server Error";
    case 501:
      return "Not Implemented";
    case 503:
      return "Service Unavailable";
    case 505:
      return "HTTP Version Not Supported";
    default:
      return "Answer";
  }
}

}  // namespace

const std::string* HttpRequest::header(std::string_view name) const {
  for (const auto& [known, value] : headers) {
    if (known == name) return &value;
  }
  return nullptr;
}

bool percent_decoded(std::string_view text, std::string& to) {
  to.clear();
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      to += text[i];
      continue;
    }
    if (i + 2 >= text.size()) return false;
    const int high = hex(text[i + 1]), low = hex(text[i + 2]);
    if (high < 0 || low < 0 || (high == 0 && low == 0)) return false;
    to += static_cast<char>(high * 16 + low);
    i += 2;
  }
  return true;
}

std::variant<HttpRequest, int> parse_head(std::string_view head) {
  HttpRequest request;
  bool first = true;
  while (!head.empty()) {
    const size_t end = head.find("\r\n");
    std::string_view line = head.substr(0, end);
    head.remove_prefix(end == head.npos ? head.size() : end + 2);
    if (std::any_of(line.begin(), line.end(), [](char c) {
          return (static_cast<unsigned char>(c) < ' ' && c != '\t') || c == '\x7f';
        })) {
      return 400;
    }
    if (first) {
      first = false;
      const size_t one = line.find(' '), two = line.rfind(' ');
      if (one == line.npos || one == two) return 400;
      const std::string_view version = line.substr(two + 1);
      std::string_view target = line.substr(one + 1, two - one - 1);
      request.method = line.substr(0, one);
      if (version != "HTTP/1.1" && version != "HTTP/1.0") return 505;
      if (version == "HTTP/1.0") request.keep_alive = false;
      if (!is_token(request.method) || !target.starts_with('/')) return 400;
      if (target.find_first_of(" #") != target.npos) return 400;
      const size_t question = std::min(target.find('?'), target.size());
      if (!percent_decoded(target.substr(0, question), request.path)) return 400;
      target.remove_prefix(std::min(question + 1, target.size()));
      if (!read_query(target, request.query)) return 400;
      continue;
    }
    if (line.empty()) break;
    const size_t colon = line.find(':');
    if (colon == line.npos || !is_token(line.substr(0, colon))) return 400;
    if (request.headers.size() == kMostHeaders) return 431;
    request.headers.emplace_back(lowered(line.substr(0, colon)),
                                 std::string(trimmed(line.substr(colon + 1))));
  }
  if (first) return 400;
  if (const int status = read_connection(request)) return status;
  return request;
}

std::string head_of(const HttpAnswer& answer, bool keep_alive,
                    const std::vector<std::pair<std::string, std::string>>& more) {
  std::string out = "HTTP/1.1 " + std::to_string(answer.status) + " ";
  out += reason(answer.status);
  out += "\r\n";
  for (const auto& [name, value] : more) out += name + ": " + value + "\r\n";
  for (const auto& [name, value] : answer.headers) out += name + ": " + value + "\r\n";
  if (!answer.type.empty()) out += "Content-Type: " + answer.type + "\r\n";
  if (!answer.stream && answer.status != 204)
    out += "Content-Length: " + std::to_string(answer.body.size()) + "\r\n";
  out +=
      keep_alive && !answer.stream ? "Connection: keep-alive\r\n\r\n" : "Connection: close\r\n\r\n";
  return out;
}

}  // namespace adjoint
