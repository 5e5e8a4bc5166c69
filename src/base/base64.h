// Bytes as text that any file holds, as RFC 4648 has it, with padding.
#pragma once
#include <optional>
#include <string>
#include <string_view>

namespace adjoint {

std::string to_base64(std::string_view bytes);
// Nothing where the text is not base64.
std::optional<std::string> from_base64(std::string_view text);

}  // namespace adjoint
