// Which commands a page may run. What they may open is not decided here but where files are opened
// (base/file_view.h): a question's command is started with --read-only.
#pragma once
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace adjoint {

enum class Asked { kQuestion, kJob };

// The arguments of a request's "args", checked: the first names a command that may be run so. An
// ApiError otherwise.
std::vector<std::string> checked_arguments(const nlohmann::json& request, Asked asked);

// With --json, unless it is there.
std::vector<std::string> with_json(std::vector<std::string> arguments);

// The value of an option, "--out runs/a" or "--out=runs/a".
std::optional<std::string> option_of(const std::vector<std::string>& arguments,
                                     const std::string& flag);

// What a command that failed said on standard error: its sentence without "adjoint: ", and the
// place if it begins with one ("my.scheme:3:7: ..."). Notes are left out. A verdict of `verify` has
// its reason on standard output (docs/json.md).
nlohmann::json error_of(const std::string& standard_error, int code,
                        const std::string& standard_output = "");
// The texts of its notes and warnings.
std::vector<std::string> notes_of(const std::string& standard_error);

}  // namespace adjoint
