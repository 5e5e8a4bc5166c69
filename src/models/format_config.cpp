#include "models/format_config.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "base/error.h"
#include "base/text.h"

namespace adjoint {

namespace {

using nlohmann::json;

bool is_setting(const Document& document, const Term& term) {
  const auto named = [&](const Setting& s) { return s.name == term.word; };
  return term.kind == Term::Kind::kName &&
         (std::any_of(document.axes.begin(), document.axes.end(), named) ||
          std::any_of(document.numbers.begin(), document.numbers.end(), named));
}

bool is_axis(const Document& document, const std::string& name) {
  return std::any_of(document.axes.begin(), document.axes.end(),
                     [&](const Setting& s) { return s.name == name; });
}

// What a term says as JSON: a text, true, false, null or a number.
OrderedJson literal(const Term& term, std::string_view file, const Lookup& lookup) {
  if (term.kind == Term::Kind::kText) return term.word;
  if (term.kind == Term::Kind::kName && term.word == "true") return true;
  if (term.kind == Term::Kind::kName && term.word == "false") return false;
  if (term.kind == Term::Kind::kName && term.word == "null") return nullptr;
  if (term.kind == Term::Kind::kWhen && term.args.size() == 3) {
    return literal(term.args[chosen(term, file, lookup)], file, lookup);
  }
  const double number = evaluate_number(term, file, lookup);
  if (std::floor(number) == number && std::abs(number) < 1e15) return static_cast<int64_t>(number);
  return number;
}

// "a" or "b": what a field may be; the first is written.
void add_alternatives(const Term& term, std::vector<const Term*>& all) {
  const bool joined = term.kind == Term::Kind::kBinary && term.word == "or" &&
                      term.args[1].kind == Term::Kind::kText;
  if (!joined) {
    all.push_back(&term);
    return;
  }
  for (const Term& each : term.args) add_alternatives(each, all);
}

bool same(const json& found, const OrderedJson& wanted) {
  if (found.is_number() && wanted.is_number()) {
    return found.get<double>() == wanted.get<double>();
  }
  return found.dump() == wanted.dump();
}

Lookup lookup_in(const Settings& settings, std::string_view file) {
  return [&settings, file](const Term& name) {
    const auto found = settings.find(name.word);
    if (found == settings.end()) {
      fail_at(file, name.at, "there is no axis or number '", name.word, "'");
    }
    return found->second;
  };
}

class ConfigReader {
 public:
  ConfigReader(const Document& document, const Format& format, std::string_view file,
               const json& config, const std::string& place)
      : document_(document), format_(format), file_(file), config_(config), place_(place) {}

  Settings read() {
    if (!config_.is_object())
      fail(place_, ": wanted an object of settings, found ", brief(config_));
    for (const FormatField& field : format_.fields) {
      if (is_setting(document_, field.value)) value_of(field.value);
    }
    for (const Setting& setting : format_.set) value_of(named(setting));
    const Settings all = resolve_settings(document_, file_, {.preset = {}, .settings = settings_});
    for (const FormatField& field : format_.fields) {
      if (!is_setting(document_, field.value)) check(field, all);
    }
    refuse_unknown();
    return settings_;
  }

 private:
  static Term named(const Setting& setting) {
    return {.kind = Term::Kind::kName, .word = setting.name, .at = setting.at};
  }

  static std::string brief(const json& value) {
    const std::string text = value.dump(-1, ' ', false, json::error_handler_t::replace);
    return text.size() <= 60 ? text : text.substr(0, 57) + "...";
  }

  const json* at(const std::string& path) const {
    const json* here = &config_;
    for (size_t begin = 0; begin <= path.size();) {
      const size_t end = std::min(path.find('.', begin), path.size());
      if (!here->is_object()) return nullptr;
      const auto found = here->find(path.substr(begin, end - begin));
      if (found == here->end()) return nullptr;
      here = &*found;
      begin = end + 1;
    }
    return here;
  }

  // The field under the first of its names that the file has; nullptr if it has none. Null is
  // nothing where the format gives it no meaning.
  const json* find(const FormatField& field) const {
    const json* found = nullptr;
    const std::string* as = nullptr;
    for (const std::string& path : field.paths) {
      const json* here = at(path);
      if (!here || (here->is_null() && field.null.empty())) continue;
      if (found && *found != *here) {
        fail(place_, ": ", *as, " is ", brief(*found), ", and ", path,
             ", which means the same, is ", brief(*here));
      }
      if (!found) as = &path;
      found = here;
    }
    return found;
  }

  double value_of(const Term& name) {
    if (const auto known = settings_.find(name.word); known != settings_.end()) {
      return known->second;
    }
    if (!open_.insert(name.word).second) {
      fail_at(file_, name.at, "'", name.word, "' is defined by itself");
    }
    const double value = compute(name);
    open_.erase(name.word);
    settings_[name.word] = value;
    return value;
  }

  double compute(const Term& name) {
    for (const Setting& setting : format_.set) {
      if (setting.name == name.word) return evaluate(setting.value);
    }
    for (const FormatField& field : format_.fields) {
      if (!is_setting(document_, field.value) || field.value.word != name.word) continue;
      for (const Term& term : field.before) {
        if (const auto known = with_lists(term)) return evaluate(*known);
      }
      if (const json* found = find(field)) return number_of(field, *found);
      for (const Term& term : field.otherwise) {
        if (const auto known = with_lists(term)) return evaluate(*known);
      }
      fail(place_, ": wanted the field ", join(field.paths, " or "), ", which is '", name.word,
           "' of ", file_, ", found none");
    }
    fail_at(file_, name.at, "no field of the format is '", name.word, "'");
  }

  double evaluate(const Term& term) {
    return evaluate_number(term, file_, [&](const Term& name) { return value_of(name); });
  }

  // first(list, "word") is the number of the first entry that is this word, or of all entries if
  // none is. Nothing where the file has no such list.
  std::optional<Term> with_lists(Term term) {
    if (term.kind == Term::Kind::kCall && term.word == "first" && term.args.size() == 2 &&
        term.args[0].kind == Term::Kind::kName && term.args[1].kind == Term::Kind::kText) {
      const json* list = at(term.args[0].word);
      if (!list || !list->is_array()) return std::nullopt;
      const auto found = std::find(list->begin(), list->end(), json(term.args[1].word));
      return Term{.kind = Term::Kind::kNumber,
                  .number = static_cast<double>(found - list->begin()),
                  .at = term.at};
    }
    for (Term& arg : term.args) {
      auto known = with_lists(std::move(arg));
      if (!known) return std::nullopt;
      arg = *std::move(known);
    }
    return term;
  }

  double number_of(const FormatField& field, const json& found) {
    if (found.is_null()) return evaluate(field.null[0]);
    for (size_t k = 0; k < field.words.size(); ++k) {
      if (same(found, literal(field.words[k], file_, nullptr))) return static_cast<double>(k);
    }
    if (!field.words.empty()) refuse(field, found, field.words);
    if (!found.is_number()) {
      fail(place_, ": ", join(field.paths, " or "), " must be a number, found ", brief(found));
    }
    const auto number = found.get<double>();
    const bool counts = is_axis(document_, field.value.word);
    if (!std::isfinite(number) || (counts && (std::floor(number) != number || number < 1 ||
                                              number > static_cast<double>(kLargestSize)))) {
      fail(place_, ": ", join(field.paths, " or "), " must be a ",
           counts ? "whole number from 1 to 2^40" : "finite number", ", found ", brief(found));
    }
    return number;
  }

  [[noreturn]] void refuse(const FormatField& field, const json& found,
                           const std::vector<Term>& wanted) const {
    std::vector<std::string> words;
    for (const Term& word : wanted) words.push_back(print(word));
    fail(place_, ": ", join(field.paths, " or "), " must be ", join(words, " or "), " for ",
         format_.architectures[0], ", found ", brief(found));
  }

  void check(const FormatField& field, const Settings& settings) const {
    const json* found = find(field);
    if (!found) return;
    const Lookup lookup = lookup_in(settings, file_);
    std::vector<const Term*> terms;
    add_alternatives(field.value, terms);
    if (field.each.empty()) {
      for (const Term* term : terms) {
        if (same(*found, literal(*term, file_, lookup))) return;
      }
      fail(place_, ": ", join(field.paths, " or "), " must be ", print(field.value), " for ",
           format_.architectures[0], ", found ", brief(*found));
    }
    const double wanted = evaluate_number(field.each[0], file_, lookup);
    if (!found->is_array() || static_cast<double>(found->size()) != wanted) {
      fail(place_, ": ", field.paths[0], " must be a list of ", shortest(wanted),
           " entries, found ", brief(*found));
    }
    for (size_t l = 0; l < found->size(); ++l) {
      Settings here = settings;
      here["l"] = static_cast<double>(l);
      const OrderedJson entry = literal(field.value, file_, lookup_in(here, file_));
      if (same((*found)[l], entry)) continue;
      fail(place_, ": ", field.paths[0], " must have ", entry.dump(), " as entry ", l, " for ",
           format_.architectures[0], ", found ", brief((*found)[l]));
    }
  }

  bool is_known(const std::string& path) const {
    for (const FormatField& field : format_.fields) {
      if (std::count(field.paths.begin(), field.paths.end(), path)) return true;
    }
    return path == "architectures" ||
           std::count(format_.ignored.begin(), format_.ignored.end(), path) > 0;
  }

  void collect_unknown(const json& value, const std::string& path,
                       std::vector<std::string>& unknown) const {
    if (!path.empty() && is_known(path)) return;
    if (value.is_null()) return;
    if (!value.is_object()) {
      unknown.push_back(path + " (" + brief(value) + ")");
      return;
    }
    for (const auto& [name, inner] : value.items()) {
      collect_unknown(inner, path.empty() ? name : path + "." + name, unknown);
    }
  }

  void refuse_unknown() const {
    std::vector<std::string> unknown;
    collect_unknown(config_, "", unknown);
    if (unknown.empty()) return;
    fail(place_, ": ", file_, " does not say what ", join(unknown, ", "),
         unknown.size() == 1 ? " means" : " mean",
         ", and a field that is not understood may change what the model computes");
  }

  const Document& document_;
  const Format& format_;
  std::string_view file_;
  const json& config_;
  const std::string& place_;
  Settings settings_ = {};
  std::set<std::string> open_ = {};
};

void put(OrderedJson& config, const std::string& path, OrderedJson value) {
  OrderedJson* here = &config;
  size_t begin = 0;
  for (size_t dot = path.find('.'); dot != std::string::npos; dot = path.find('.', begin)) {
    here = &(*here)[path.substr(begin, dot - begin)];
    begin = dot + 1;
  }
  (*here)[path.substr(begin)] = std::move(value);
}

OrderedJson written_setting(const Document& document, const FormatField& field, double value,
                            std::string_view file, const Lookup& lookup) {
  if (!field.null.empty() && evaluate_number(field.null[0], file, lookup) == value) return nullptr;
  if (!field.words.empty()) {
    const auto k = static_cast<size_t>(value);
    if (value < 0 || static_cast<double>(k) != value || k >= field.words.size()) {
      fail(file, ": ", field.value.word, "=", shortest(value), " has no word for ", field.paths[0]);
    }
    return literal(field.words[k], file, lookup);
  }
  const bool whole = field.whole || is_axis(document, field.value.word);
  if (whole && std::floor(value) == value) return static_cast<int64_t>(value);
  return value;
}

}  // namespace

Settings read_config(const Document& document, const Format& format, std::string_view file,
                     const json& config, const std::string& place) {
  return ConfigReader(document, format, file, config, place).read();
}

OrderedJson written_config(const Document& document, const Format& format, std::string_view file,
                           const Settings& settings) {
  OrderedJson config = OrderedJson::object();
  config["architectures"] = {format.architectures[0]};
  const Lookup lookup = lookup_in(settings, file);
  for (const FormatField& field : format.fields) {
    if (field.unwritten) continue;
    if (!field.condition.empty() && evaluate_number(field.condition[0], file, lookup) == 0)
      continue;
    if (is_setting(document, field.value)) {
      put(config, field.paths[0],
          written_setting(document, field, settings.at(field.value.word), file, lookup));
      continue;
    }
    if (field.each.empty()) {
      std::vector<const Term*> terms;
      add_alternatives(field.value, terms);
      put(config, field.paths[0], literal(*terms[0], file, lookup));
      continue;
    }
    OrderedJson list = OrderedJson::array();
    const auto entries = static_cast<int64_t>(evaluate_number(field.each[0], file, lookup));
    for (int64_t l = 0; l < entries; ++l) {
      Settings here = settings;
      here["l"] = static_cast<double>(l);
      list.push_back(literal(field.value, file, lookup_in(here, file)));
    }
    put(config, field.paths[0], std::move(list));
  }
  return config;
}

const Format* find_format(const Document& document, std::string_view kind,
                          std::string_view architecture) {
  for (const Format& format : document.formats) {
    const auto& names = format.architectures;
    if (format.kind != kind) continue;
    if (architecture.empty() || std::count(names.begin(), names.end(), architecture)) {
      return &format;
    }
  }
  return nullptr;
}

}  // namespace adjoint
