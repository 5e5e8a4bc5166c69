// What the readers of a diagram share: fields with complaints that name the thing, and one box.
#pragma once
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "models/reads.h"
#include "scheme/document.h"

namespace adjoint {

constexpr size_t kLongestDrawnList = 4096;  // of items, formals and the like

// Whether a text has characters that end a line, or that a line does not show.
bool has_control(std::string_view text);

// A field of a thing that is named in complaints: file: vertex 'x': ...
class DrawnFields {
 public:
  DrawnFields(const nlohmann::json& thing, std::string what)
      : thing_(thing), what_(std::move(what)) {
    if (!thing.is_object()) refuse("is no object");
  }
  template <class... Parts>
  [[noreturn]] void refuse(const Parts&... parts) const {
    fail(what_, " ", parts...);
  }
  bool has(const char* field) const { return thing_.contains(field) && !thing_[field].is_null(); }
  std::string text(const char* field) const {
    if (!has(field) || !thing_[field].is_string()) refuse("has no text '", field, "'");
    return thing_[field].get<std::string>();
  }
  std::string text(const char* field, const char* otherwise) const {
    return has(field) ? text(field) : otherwise;
  }
  std::string name(const char* field) const {
    const std::string word = text(field);
    if (!is_name(word)) refuse("is called '", word, "', which is no name");
    return word;
  }
  std::string name_of_preset(const char* field) const {
    const std::string word = text(field);
    if (!is_preset_name(word)) refuse("is called '", word, "', which is no name of a preset");
    return word;
  }
  // A text that stands in a line of a model's text: another line there would be another statement.
  std::string line(const char* field) const {
    const std::string said = text(field);
    if (has_control(said)) {
      refuse("has the '", field, "' ", nlohmann::json(said).dump(),
             ", which has characters that are not shown");
    }
    return said;
  }
  size_t number(const char* field) const {
    const nlohmann::json& value = thing_[field];
    if (!value.is_number_integer() || value < 0 || value > kLongestDrawnList) {
      refuse("has the '", field, "' ", value.dump(), ", which is no number up to ",
             kLongestDrawnList);
    }
    return value.get<size_t>();
  }
  const nlohmann::json& list(const char* field) const {
    static const nlohmann::json none = nlohmann::json::array();
    if (!has(field)) return none;
    if (!thing_[field].is_array()) refuse("has a '", field, "' that is no list");
    return thing_[field];
  }
  const std::string& what() const { return what_; }

 private:
  const nlohmann::json& thing_;
  std::string what_;
};

struct DrawnBox {
  Box box;
  std::vector<std::string> places;  // for each statement the vertex that it makes
};
// The names of a diagram's models by their ids.
using BoxNames = std::map<std::string, std::string>;

DrawnBox read_viete_box(const nlohmann::json& model, std::string_view file,
                        const std::vector<const nlohmann::json*>& edges, const BoxNames& boxes);

}  // namespace adjoint
