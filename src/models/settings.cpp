#include "models/settings.h"

#include <algorithm>
#include <cmath>

#include "base/text.h"

namespace adjoint {

namespace {

double finite(double number, const Term& term, std::string_view file) {
  if (!std::isfinite(number)) {
    fail_at(file, term.at, print(term), " is ", number, ", wanted a finite number");
  }
  return number;
}

using Numbers = std::vector<double>;
struct NumberFunction {
  std::string_view name;
  size_t least, most;  // arguments
  double (*apply)(const Numbers&);
};
constexpr NumberFunction kFunctions[] = {
    {"sqrt", 1, 1, [](const Numbers& n) { return std::sqrt(n[0]); }},
    {"ceil", 1, 1, [](const Numbers& n) { return std::ceil(n[0]); }},
    {"floor", 1, 1, [](const Numbers& n) { return std::floor(n[0]); }},
    {"min", 2, 8, [](const Numbers& n) { return *std::min_element(n.begin(), n.end()); }},
    {"max", 2, 8, [](const Numbers& n) { return *std::max_element(n.begin(), n.end()); }},
    {"pow", 2, 2, [](const Numbers& n) { return std::pow(n[0], n[1]); }},
    {"exp", 1, 1, [](const Numbers& n) { return std::exp(n[0]); }},
    {"log", 1, 1, [](const Numbers& n) { return std::log(n[0]); }},
    {"abs", 1, 1, [](const Numbers& n) { return std::abs(n[0]); }},
    {"cos", 1, 1, [](const Numbers& n) { return std::cos(n[0]); }},
    {"sin", 1, 1, [](const Numbers& n) { return std::sin(n[0]); }},
};

const NumberFunction* find_function(std::string_view name) {
  for (const NumberFunction& f : kFunctions) {
    if (f.name == name) return &f;
  }
  return nullptr;
}

double call(const Term& term, std::string_view file, const Lookup& lookup) {
  const NumberFunction* function = find_function(term.word);
  if (!function) {
    fail_at(file, term.at, "wanted a number, found a call of '", term.word, "'",
            did_you_mean(term.word, number_functions()));
  }
  if (!term.keywords.empty() || !term.repeat.empty() || term.args.size() < function->least ||
      term.args.size() > function->most) {
    fail_at(file, term.at, term.word, ": wants ",
            function->most == 1   ? "one number"
            : function->most == 2 ? "two numbers"
                                  : "numbers",
            ", found ", print(term));
  }
  Numbers numbers;
  for (const Term& arg : term.args) numbers.push_back(evaluate_number(arg, file, lookup));
  return finite(function->apply(numbers), term, file);
}

}  // namespace

bool is_number_function(std::string_view name) { return find_function(name) != nullptr; }

std::vector<std::string> number_functions() {
  std::vector<std::string> names;
  for (const NumberFunction& f : kFunctions) names.emplace_back(f.name);
  return names;
}

double arithmetic(const Term& binary, double a, double b, std::string_view file) {
  const std::string& how = binary.word;
  if (how == "+") return finite(a + b, binary, file);
  if (how == "-") return finite(a - b, binary, file);
  if (how == "*") return finite(a * b, binary, file);
  if (how == "/") return finite(a / b, binary, file);
  if (how == "mod") return finite(a - b * std::floor(a / b), binary, file);
  if (how == "<") return a < b;
  if (how == "<=") return a <= b;
  if (how == ">") return a > b;
  if (how == ">=") return a >= b;
  if (how == "==") return a == b;
  if (how == "!=") return a != b;
  return how == "and" ? a != 0 && b != 0 : a != 0 || b != 0;
}

namespace {

bool is_in(double number, const Term& list, std::string_view file, const Lookup& lookup) {
  if (list.kind != Term::Kind::kList) {
    fail_at(file, list.at, "in: wanted a list such as [0, 2], found ", print(list));
  }
  return std::any_of(list.args.begin(), list.args.end(), [&](const Term& element) {
    return evaluate_number(element, file, lookup) == number;
  });
}

}  // namespace

size_t chosen(const Term& when, std::string_view file, const Lookup& lookup) {
  return evaluate_number(when.args[1], file, lookup) != 0 ? 0 : 2;
}

double evaluate_number(const Term& term, std::string_view file, const Lookup& lookup) {
  switch (term.kind) {
    case Term::Kind::kNumber:
      return term.number;
    case Term::Kind::kName:
      return lookup(term);
    case Term::Kind::kNegate:
      return -evaluate_number(term.args[0], file, lookup);
    case Term::Kind::kBinary: {
      const double a = evaluate_number(term.args[0], file, lookup);
      if (term.word == "in") return is_in(a, term.args[1], file, lookup);
      if (term.word == "and" && a == 0) return 0;
      if (term.word == "or" && a != 0) return 1;
      return arithmetic(term, a, evaluate_number(term.args[1], file, lookup), file);
    }
    case Term::Kind::kNot:
      return evaluate_number(term.args[0], file, lookup) == 0;
    case Term::Kind::kWhen:
      if (term.args.size() < 3) break;  // what it is otherwise is not said
      return evaluate_number(term.args[chosen(term, file, lookup)], file, lookup);
    case Term::Kind::kCall:
      return call(term, file, lookup);
    case Term::Kind::kText:
    case Term::Kind::kList:
      break;
  }
  fail_at(file, term.at, "wanted a number, found ", print(term));
}

namespace {

constexpr int kLongestChain = 100;  // of settings defined by one another

class Resolver {
 public:
  Resolver(const Document& document, std::string_view file, const ModelConfig& config)
      : document_(document), file_(file), config_(config) {}

  Settings resolve() {
    declare(document_.axes, true);
    declare(document_.numbers, false);
    if (!entries_.count("batch")) entries_["batch"] = {.is_axis = true, .value = 1};
    if (!entries_.count("seq") && entries_.count("context")) {
      entries_["seq"] = {.term = &context_, .is_axis = true};
    }
    apply_presets();
    apply_config();
    Settings settings;
    for (const auto& [name, entry] : entries_) settings[name] = value_of(name);
    return settings;
  }

 private:
  struct Entry {
    const Term* term = nullptr;
    Position at = {};
    bool is_axis = false;
    bool busy = false;
    std::optional<double> value = {};
  };

  void declare(const std::vector<Setting>& settings, bool is_axis) {
    for (const Setting& s : settings) {
      const Entry entry{.term = &s.value, .at = s.at, .is_axis = is_axis};
      if (!entries_.emplace(s.name, entry).second) {
        fail_at(file_, s.at, "'", s.name, "' is both an axis and a number");
      }
    }
  }

  // The names in every preset must be right; the values of the chosen one are taken.
  void apply_presets() {
    for (const Preset& preset : document_.presets) {
      for (const Setting& s : preset.settings) {
        const auto found = entries_.find(s.name);
        if (found == entries_.end()) {
          fail_at(file_, s.at, "preset ", preset.name, ": ", no_setting(s.name));
        }
        if (preset.name != config_.preset) continue;
        found->second = {.term = &s.value, .at = s.at, .is_axis = found->second.is_axis};
      }
    }
    if (config_.preset.empty() || document_.preset(config_.preset)) return;
    std::vector<std::string> names;
    for (const Preset& p : document_.presets) names.push_back(p.name);
    fail(file_, ": there is no preset '", config_.preset, "'; it has ",
         names.empty() ? "none" : join(names, ", "), did_you_mean(config_.preset, names));
  }

  void apply_config() {
    for (const auto& [name, value] : config_.settings) {
      if (name == "seq") entries_.emplace("seq", Entry{.is_axis = true});
      const auto found = entries_.find(name);
      if (found == entries_.end()) fail(file_, ": ", no_setting(name));
      check(name, found->second.is_axis, value, join_parts(file_, ": "), shortest(value));
      found->second.value = value;
    }
  }

  std::string no_setting(const std::string& name) const {
    std::vector<std::string> names;
    for (const auto& [other, entry] : entries_) names.push_back(other);
    return "there is no axis or number '" + name + "'; there are " + join(names, ", ") +
           did_you_mean(name, names);
  }

  double value_of(std::string_view name) {
    Entry& entry = entries_.find(name)->second;
    if (entry.value) return *entry.value;
    if (entry.busy) fail_at(file_, entry.at, "'", name, "' is defined by itself");
    if (++chain_ > kLongestChain) fail_at(file_, entry.at, "too many settings define each other");
    entry.busy = true;
    const double value = evaluate_number(*entry.term, file_, [&](const Term& other) {
      if (!entries_.count(other.word)) fail_at(file_, other.at, no_setting(other.word));
      return value_of(other.word);
    });
    --chain_;
    const std::string_view file = entry.at.file ? std::string_view(*entry.at.file) : file_;
    const std::string where = join_parts(file, ":", entry.at.line, ":", entry.at.column, ": ");
    const bool plain = entry.term->kind == Term::Kind::kNumber;
    check(name, entry.is_axis, value, where,
          plain ? shortest(value) : print(*entry.term) + " = " + shortest(value));
    entry.busy = false;
    entry.value = value;
    return value;
  }

  static void check(std::string_view name, bool is_axis, double value, const std::string& where,
                    const std::string& written) {
    if (!std::isfinite(value)) fail(where, "'", name, "' must be a number, found ", written);
    if (!is_axis) return;
    if (std::floor(value) != value || value < 1 || value > static_cast<double>(kLargestSize)) {
      fail(where, "axis '", name, "' must be a whole number from 1 to 2^40, found ", written);
    }
  }

  const Document& document_;
  std::string_view file_;
  const ModelConfig& config_;
  const Term context_{.kind = Term::Kind::kName, .word = "context"};
  std::map<std::string, Entry, std::less<>> entries_ = {};
  int chain_ = 0;
};

}  // namespace

Settings resolve_settings(const Document& document, std::string_view file,
                          const ModelConfig& config) {
  return Resolver(document, file, config).resolve();
}

}  // namespace adjoint
