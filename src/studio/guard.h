// Who may ask. A page of another site can make a browser send requests to this machine, so a
// request must know the token of this start, which is part of every path, and must come from this
// address (Host, Origin). Others learn nothing: their answers are empty.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "studio/http_message.h"

namespace adjoint {

// 32 hexadecimal digits of the system's randomness.
std::string random_token();

// Takes the same time wherever two texts of one length differ.
bool same_secret(std::string_view a, std::string_view b);

class Guard {
 public:
  Guard(std::string token, int port);
  // An answer refuses the request; it has no body.
  std::optional<HttpAnswer> refusal(const HttpRequest& request) const;
  // The path behind the token, without a slash in front: "api/files". Nothing for "/TOKEN".
  std::optional<std::string> inner(const HttpRequest& request) const;

 private:
  std::string token_;
  std::vector<std::string> hosts_;
};

// What every answer says: no other site may frame, embed or read it, and the page itself loads
// nothing from elsewhere.
std::vector<std::pair<std::string, std::string>> safety_headers();

}  // namespace adjoint
