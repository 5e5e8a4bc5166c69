// JSON that strangers wrote. Beside what is no JSON at all, these are refused: brackets nested so
// deeply that whoever walks the value by recursion would end the stack; a name that one object has
// twice, because readers differ in which of the two holds; and a number that no double holds.
#pragma once
#include <cstddef>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <variant>

namespace adjoint {

constexpr size_t kDeepestJson = 256;

// What is wrong, and how many bytes were read when it was found.
struct JsonMistake {
  std::string what;
  size_t byte = 0;
};
std::variant<nlohmann::json, JsonMistake> try_parse_json(std::string_view text);

// An Error says the place: "file:3:17: this is not JSON".
nlohmann::json parse_json(std::string_view text, std::string_view file);
// The same where the caller knows the file: "this is not JSON at line 3, column 17", or, of a text
// that is one line, "this is not JSON at column 17".
nlohmann::json parse_json(std::string_view text);
// The object that a file holds.
nlohmann::json read_json(const std::filesystem::path& file);

}  // namespace adjoint
