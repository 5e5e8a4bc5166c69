// The head of a request, as the studio's server reads it.
#include "fuzz/fuzz_target.h"
#include "studio/http_message.h"

namespace adjoint {

FUZZ_TARGET(http_head) {
  auto parsed = parse_head(input);
  if (const int* status = std::get_if<int>(&parsed)) {
    CHECK(*status >= 400 && *status < 600, "a refusal has a status");
    fail("refused with ", *status);
  }
  const auto& request = std::get<HttpRequest>(parsed);
  CHECK(request.path.starts_with('/'), "a path is absolute");
  CHECK(request.header("host"), "a request says its host");
  for (const auto& [name, value] : request.query) {
    CHECK((request.path + name + value).find('\0') == std::string::npos, "no name hides a NUL");
  }
  for (const auto& [name, value] : request.headers) {
    CHECK(value.find_first_of("\r\n") == std::string::npos, "a header is one line");
  }
}

}  // namespace adjoint
