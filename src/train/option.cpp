#include "train/option.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/text.h"

namespace adjoint {

using nlohmann::json;
using Kind = OptionSpec::Kind;

namespace {

std::string describe(const json& value) {
  return value.is_string() ? value.get<std::string>() : value.dump();
}

}  // namespace

std::string OptionSpec::flag() const {
  std::string words = "--" + name;
  std::replace(words.begin(), words.end(), '_', '-');
  return words;
}

json OptionSpec::parse(const std::string& text) const {
  if (traits.check_flag) traits.check_flag(text);
  if (kind == Kind::kText || kind == Kind::kTexts) return text;
  if (kind == Kind::kSwitch) return text != "false";
  json value = json::parse(text, nullptr, false);
  if (value.is_number_float() && kind == Kind::kInteger && std::abs(value.get<double>()) < 1e15) {
    const double number = value.get<double>();  // 1e3 is a whole number too
    if (number == static_cast<double>(static_cast<int64_t>(number))) {
      return static_cast<int64_t>(number);
    }
  }
  return value.is_number() ? value : json(text);
}

std::string OptionSpec::did_you_mean_choice(const std::string& word) const {
  const std::string_view other = traits.meant ? traits.meant(word) : "";
  if (!other.empty()) return "; did you mean '" + std::string(other) + "'?";
  return did_you_mean(word, choices);
}

void OptionSpec::check(const json& value) const {
  const auto wrong = [&](const std::string& wanted, const std::string& near = "") {
    // A number in quotes, as a settings file may have it: "10".
    const bool quoted = value.is_string() && kind != Kind::kText && kind != Kind::kTexts &&
                        json::accept(value.get<std::string>());
    if (quoted) {
      fail("option '", name, "': wanted ", wanted, ", found the text ", value.dump(),
           "; leave the quotes off");
    }
    fail("option '", name, "': wanted ", wanted, ", found ", describe(value), near);
  };
  switch (kind) {
    case Kind::kText:
      if (!value.is_string()) wrong("a text");
      if (!choices.empty() &&
          std::find(choices.begin(), choices.end(), value.get<std::string>()) == choices.end()) {
        wrong(join(choices, " or "), did_you_mean_choice(value.get<std::string>()));
      }
      return;
    case Kind::kTexts:
      if (value.is_string()) return;
      if (!value.is_array()) wrong("a text or a list of texts");
      for (const json& entry : value) {
        if (!entry.is_string()) wrong("a text or a list of texts");
      }
      return;
    case Kind::kInteger:
      if (!value.is_number_integer()) wrong("a whole number");
      break;
    case Kind::kNumber:
      if (!value.is_number()) wrong("a number");
      break;
    case Kind::kSwitch:
      if (!value.is_boolean()) wrong("true or false");
      return;
  }
  const double number = value.get<double>();
  if (!(number >= least && number <= most)) {
    wrong((kind == Kind::kInteger ? "a whole number" : "a number") + (" from " + shortest(least)) +
          " to " + shortest(most));
  }
}

void OptionSpec::check_trains(const json& value) const {
  if (!value.is_number() || value.get<double>() >= traits.least_to_train) return;
  fail("option '", name, "': wanted a number from ", shortest(traits.least_to_train), " to ",
       shortest(most), ", found ", describe(value));
}

const OptionSpec* option_elsewhere(std::span<const OptionSpec> options, std::string name) {
  std::replace(name.begin(), name.end(), '-', '_');
  for (const OptionSpec& option : options) {
    const auto& names = option.traits.elsewhere;
    if (std::find(names.begin(), names.end(), name) != names.end()) return &option;
  }
  return nullptr;
}

const OptionSpec& option_named(std::span<const OptionSpec> options, const std::string& name) {
  std::vector<std::string> names;
  for (const OptionSpec& option : options) {
    if (option.name == name) return option;
    names.push_back(option.name);
  }
  const OptionSpec* const meant = option_elsewhere(options, name);
  fail("there is no option '", name, "'",
       meant ? "; did you mean '" + meant->name + "'?" : did_you_mean(name, names));
}

template <class T>
T OptionFields::declare(OptionSpec option) {
  json& value = values_[option.name];
  if (value.is_null()) value = option.otherwise;
  option.section = section_;
  declared_.push_back(std::move(option));
  return value.get<T>();
}

std::string OptionFields::text(std::string_view name, std::string_view otherwise,
                               std::string_view help, OptionTraits traits) {
  return one_of(name, otherwise, {}, help, traits);
}

std::string OptionFields::one_of(std::string_view name, std::string_view otherwise,
                                 std::vector<std::string> choices, std::string_view help,
                                 OptionTraits traits) {
  return declare<std::string>({.name = std::string(name),
                               .kind = Kind::kText,
                               .otherwise = otherwise,
                               .help = std::string(help),
                               .choices = std::move(choices),
                               .traits = traits});
}

std::vector<std::string> OptionFields::texts(std::string_view name, std::string_view help,
                                             OptionTraits traits) {
  const json given = declare<json>({.name = std::string(name),
                                    .kind = Kind::kTexts,
                                    .otherwise = "",
                                    .help = std::string(help),
                                    .traits = traits});
  if (!given.is_string()) return given.get<std::vector<std::string>>();
  return given == "" ? std::vector<std::string>() : std::vector{given.get<std::string>()};
}

int64_t OptionFields::whole(std::string_view name, int64_t otherwise, Range range,
                            std::string_view help, OptionTraits traits) {
  return declare<int64_t>({.name = std::string(name),
                           .kind = Kind::kInteger,
                           .otherwise = otherwise,
                           .help = std::string(help),
                           .least = range.least,
                           .most = range.most,
                           .traits = traits});
}

double OptionFields::number(std::string_view name, const json& otherwise, Range range,
                            std::string_view help, OptionTraits traits) {
  return declare<double>({.name = std::string(name),
                          .kind = Kind::kNumber,
                          .otherwise = otherwise,
                          .help = std::string(help),
                          .least = range.least,
                          .most = range.most,
                          .traits = traits});
}

bool OptionFields::flag(std::string_view name, std::string_view help, OptionTraits traits) {
  return declare<bool>({.name = std::string(name),
                        .kind = Kind::kSwitch,
                        .otherwise = false,
                        .help = std::string(help),
                        .traits = traits});
}

}  // namespace adjoint
