// docs/json.md as a judge of answers for machines: every key of an answer is in its table and is
// what the table says, and every key of the table is there unless the table says when it is.
#pragma once
#include <cctype>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "base/file.h"

namespace adjoint {

struct JsonRow {
  std::string kind;
  bool may_be_missing = false;
};

// Per heading: what each key is.
using JsonTables = std::map<std::string, std::map<std::string, JsonRow>>;

// "A slot's state" -> "a-slots-state", as links name headings.
inline std::string anchor(const std::string& title) {
  std::string out;
  for (const char c : title) {
    if (std::isalnum(static_cast<unsigned char>(c)) || c == '.') {
      out += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    } else if (c == ' ') {
      out += '-';
    }
  }
  return out;
}

// The next cell of a row of a table; moves `at` behind it.
inline std::string next_cell(const std::string& line, size_t& at) {
  const size_t end = std::min(line.find('|', at), line.size());
  std::string cell = line.substr(at, end - at);
  at = std::min(end + 1, line.size());
  while (!cell.empty() && cell.back() == ' ') cell.pop_back();
  return cell.substr(std::min(cell.size(), cell.find_first_not_of(' ')));
}

// Whether these words say when a key is there.
inline bool says_when(const std::string& words) {
  for (const char* begin :
       {"with ", "without ", "where ", "not with ", "not of ", "not on ", "unless "}) {
    if (words.starts_with(begin)) return true;
    if (words.find(std::string("; ") + begin) != std::string::npos) return true;
  }
  return false;
}

inline JsonTables json_tables() {
  JsonTables found;
  std::istringstream page(read_file(std::string(SOURCE_DIR) + "/docs/json.md"));
  std::string line, section;
  while (std::getline(page, line)) {
    if (line.starts_with("## ")) section = anchor(line.substr(3));
    if (!line.starts_with("| `")) continue;
    size_t at = 1;
    const std::string key = next_cell(line, at), kind = next_cell(line, at),
                      words = next_cell(line, at);
    const bool any = key == "`*`" || kind == "true";  // what is not true is left out
    found[section][key.substr(1, key.size() - 2)] = {.kind = kind,
                                                     .may_be_missing = any || says_when(words)};
  }
  return found;
}

class JsonJudge {
 public:
  using json = nlohmann::json;

  explicit JsonJudge(JsonTables all = json_tables()) : tables_(std::move(all)) {}

  // What in `value` the tables do not say, or what of them it lacks; "" when they are one.
  std::string judge(const json& value, const std::string& section, const std::string& where) const {
    const auto table = tables_.find(section);
    if (table == tables_.end()) return where + ": there is no table '" + section + "'";
    if (!value.is_object()) return where + ": is no object";
    for (const auto& [key, inner] : value.items()) {
      auto row = table->second.find(key);
      if (row == table->second.end()) row = table->second.find("*");
      const std::string here = where + "." + key;
      if (row == table->second.end()) return here + ": '" + section + "' does not speak of it";
      const std::string wrong = kind_of(inner, row->second.kind, here);
      if (!wrong.empty()) return wrong;
    }
    for (const auto& [key, row] : table->second) {
      if (row.may_be_missing || value.contains(key)) continue;
      return where + "." + key + ": is not there, and '" + section + "' does not say when it is";
    }
    return "";
  }

 private:
  std::string kind_of(const json& value, std::string kind, const std::string& where) const {
    if (kind.ends_with(" or null")) {
      if (value.is_null()) return "";
      kind = kind.substr(0, kind.size() - 8);
    }
    const auto each = [&](const std::string& of) {
      for (const json& item : value) {
        if (const std::string wrong = kind_of(item, of, where + "[]"); !wrong.empty()) return wrong;
      }
      return std::string();
    };
    if (kind.starts_with("list of ")) {
      return value.is_array() ? each(kind.substr(8)) : where + ": is no list";
    }
    if (kind.starts_with("object of ")) {
      return value.is_object() ? each(kind.substr(10)) : where + ": is no object";
    }
    if (const size_t link = kind.find("](#"); link != std::string::npos) {
      return judge(value, kind.substr(link + 3, kind.find(')') - link - 3), where);
    }
    const bool fits = kind == "number"   ? value.is_number()
                      : kind == "text"   ? value.is_string()
                      : kind == "bool"   ? value.is_boolean()
                      : kind == "true"   ? value == true
                      : kind == "list"   ? value.is_array()
                      : kind == "object" ? value.is_object()
                                         : false;
    return fits ? "" : where + ": wanted " + kind + ", found " + value.dump().substr(0, 60);
  }

  JsonTables tables_;
};

}  // namespace adjoint
