#include "base/json.h"

#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/file.h"

namespace adjoint {

using nlohmann::json;

namespace {

// A text that tells how far it was read.
class CountedText {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  CountedText(const char* at, const char** reached) : at_(at), reached_(reached) {}
  const char& operator*() const { return *at_; }
  CountedText& operator++() {
    *reached_ = ++at_;
    return *this;
  }
  CountedText operator++(int) {
    CountedText before = *this;
    ++*this;
    return before;
  }
  bool operator==(const CountedText& other) const { return at_ == other.at_; }
  bool operator!=(const CountedText& other) const { return at_ != other.at_; }

 private:
  const char* at_;
  const char** reached_;
};

// Builds the value from what the library's parser sees. The library's own builder takes any depth,
// and of two entries with one name the last.
class JsonBuilder : public json::json_sax_t {
 public:
  bool null() override { return put(nullptr); }
  bool boolean(bool value) override { return put(value); }
  bool number_integer(number_integer_t value) override { return put(value); }
  bool number_unsigned(number_unsigned_t value) override { return put(value); }
  bool number_float(number_float_t value, const string_t&) override { return put(value); }
  bool string(string_t& value) override { return put(std::move(value)); }
  bool binary(binary_t&) override { return refuse("this is not JSON"); }
  bool start_object(std::size_t) override { return open(json::object()); }
  bool start_array(std::size_t) override { return open(json::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool key(string_t& name) override {
    const auto [entry, fresh] = open_.back()->emplace(name, nullptr);
    if (!fresh) return refuse("the name " + json(name).dump() + " comes twice in one object");
    named_ = &*entry;
    return true;
  }
  bool parse_error(std::size_t byte, const std::string&,
                   const nlohmann::detail::exception& error) override {
    constexpr int kNumberOverflow = 406;
    where_ = byte;
    return refuse(error.id == kNumberOverflow ? "this number is too large" : "this is not JSON");
  }

  json& value() { return value_; }
  const std::string& mistake() const { return mistake_; }
  // Where the library says that it is, or 0.
  size_t where() const { return where_; }

 private:
  template <class T>
  json* put(T&& value) {
    if (open_.empty()) {
      value_ = std::forward<T>(value);
      return &value_;
    }
    if (open_.back()->is_array()) {
      open_.back()->push_back(std::forward<T>(value));
      return &open_.back()->back();
    }
    *named_ = std::forward<T>(value);
    return named_;
  }
  bool open(json&& empty) {
    if (open_.size() == kDeepestJson) {
      return refuse("this is nested deeper than " + std::to_string(kDeepestJson));
    }
    open_.push_back(put(std::move(empty)));
    return true;
  }
  bool close() {
    open_.pop_back();
    return true;
  }
  bool refuse(std::string why) {
    mistake_ = std::move(why);
    return false;
  }

  json value_, *named_ = nullptr;
  std::vector<json*> open_;  // each lies in the one before, which nobody changes meanwhile
  std::string mistake_;
  size_t where_ = 0;
};

}  // namespace

std::variant<json, JsonMistake> try_parse_json(std::string_view text) {
  const char* reached = text.data();
  JsonBuilder builder;
  const CountedText begin(text.data(), &reached), end(text.data() + text.size(), &reached);
  if (json::sax_parse(begin, end, &builder)) return std::move(builder.value());
  // The library counts a byte behind the end of a text that ends too early.
  const size_t read = builder.where() ? builder.where() : reached - text.data();
  return JsonMistake{builder.mistake(), std::min(read, text.size() + 1)};
}

namespace {

// From 1, as editors count them.
struct TextPlace {
  size_t line, column;
};
TextPlace place_of(std::string_view text, size_t bytes_read) {
  const std::string_view before = text.substr(0, bytes_read > 0 ? bytes_read - 1 : 0);
  const auto lines = static_cast<size_t>(std::count(before.begin(), before.end(), '\n'));
  return {lines + 1, before.size() - (before.rfind('\n') + 1) + 1};  // npos + 1 is 0
}

}  // namespace

json parse_json(std::string_view text, std::string_view file) {
  auto parsed = try_parse_json(text);
  if (json* value = std::get_if<json>(&parsed)) return std::move(*value);
  const auto& [what, byte] = std::get<JsonMistake>(parsed);
  const auto [line, column] = place_of(text, byte);
  fail(file, ":", line, ":", column, ": ", what);
}

json parse_json(std::string_view text) {
  auto parsed = try_parse_json(text);
  if (json* value = std::get_if<json>(&parsed)) return std::move(*value);
  const auto& [what, byte] = std::get<JsonMistake>(parsed);
  const auto [line, column] = place_of(text, byte);
  if (text.find('\n') == text.npos) fail(what, " at column ", column);
  fail(what, " at line ", line, ", column ", column);
}

json read_json(const std::filesystem::path& file) {
  json value = parse_json(read_file(file), file.string());
  if (!value.is_object()) {
    fail(file.string(), ": wanted a JSON object, found ", value.type_name());
  }
  return value;
}

}  // namespace adjoint
