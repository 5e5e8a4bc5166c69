// Requests and answers of HTTP/1.1, as far as a page of ours needs it. A request's head is parsed
// strictly: whatever a browser would not send is refused with a status and read no further. Bodies
// have a length (`Content-Length`); chunked ones are refused.
#pragma once
#include <cstddef>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace adjoint {

struct HttpRequest {
  std::string method;                                        // GET
  std::string path;                                          // decoded, without the query
  std::map<std::string, std::string> query;                  // decoded
  std::vector<std::pair<std::string, std::string>> headers;  // names in lower case
  std::string body;
  size_t body_size = 0;  // as announced
  bool keep_alive = true, expects_continue = false;
  std::function<bool()> gone = [] { return false; };  // whether the client has left

  // The header's value; null where it is absent.
  const std::string* header(std::string_view name) const;
};

// The request that a head says (all lines up to the empty one, which may be missing), or the status
// with which it is refused.
std::variant<HttpRequest, int> parse_head(std::string_view head);

// "%20" is a space; false if an escape is broken or hides a NUL.
bool percent_decoded(std::string_view text, std::string& to);

// Where an answer that never ends is written; false once the client has left or the server stops.
class HttpStream {
 public:
  virtual ~HttpStream() = default;
  virtual bool send(std::string_view bytes) = 0;
  virtual bool open() = 0;
};

struct HttpAnswer {
  int status = 200;
  std::string type = {};  // of the body
  std::string body = {};
  std::vector<std::pair<std::string, std::string>> headers = {};
  std::function<void(HttpStream&)> stream = nullptr;  // instead of a body
};

// The status line and the headers, `more` before the answer's own, with the empty line.
std::string head_of(const HttpAnswer& answer, bool keep_alive,
                    const std::vector<std::pair<std::string, std::string>>& more);

}  // namespace adjoint
