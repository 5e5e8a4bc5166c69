// An option of a run is declared once, as a field: the field's initializer says the option's name,
// default, range and help, and gives the field the value that was asked for.
//
//   struct TrainConfig : OptionFields {
//     int64_t batch = whole("batch", 12, {1, 1e6}, "samples per step");
//
// Flags, TOML files, --help and the saved run.json all read the list of what was declared.
#pragma once
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace adjoint {

// What few options need beside a name, a default, a range and help.
struct OptionTraits {
  // The least that a run accepts that trains. A saved run that said less is read all the same: to
  // sample from it, or to go on with another value.
  double least_to_train = -1e300;
  bool makes_model = false;   // a run that starts from another's parameters takes it from there
  bool of_command = false;    // it speaks of one command: run.json keeps the default
  bool only_watches = false;  // saves, lines, evaluations: no parameter depends on it
  void (*check_flag)(const std::string&) = nullptr;  // refuses what only a file may say
  // The choice that a word stands for which people use for it: gpu is cuda. "": none.
  std::string_view (*meant)(std::string_view) = nullptr;
  // What a user who says the option is warned of (train/doubts.h): it does something only where
  // another option is one of these; it is more steps than the run has, and so ...; it only matters
  // when a run begins, because ...
  struct GoesWith {
    const char* option = nullptr;
    std::vector<std::string> values = {};
  } goes_with = {};
  const char* past_the_end = nullptr;
  const char* of_beginning = nullptr;
  std::vector<std::string> elsewhere = {};  // what other programs call it: output_dir is out
};

struct OptionSpec {
  enum class Kind : uint8_t { kText, kTexts, kInteger, kNumber, kSwitch };
  std::string name;  // as in a TOML file: "stop_after"
  Kind kind;
  nlohmann::json otherwise;  // the default
  std::string help;
  double least = -1e300, most = 1e300;    // of numbers
  std::vector<std::string> choices = {};  // of texts; none: any
  OptionTraits traits = {};
  std::string section = {};  // of --help

  std::string flag() const;  // --stop-after
  // The value that a flag's text stands for. What stands for none stays text, for `check` to name.
  nlohmann::json parse(const std::string& text) const;
  // Refuse a value of another kind or outside the range, and one that would ruin a training run.
  void check(const nlohmann::json& value) const;
  void check_trains(const nlohmann::json& value) const;

 private:
  std::string did_you_mean_choice(const std::string& word) const;
};

// The option that other programs call so, with _ or -; nullptr: none.
const OptionSpec* option_elsewhere(std::span<const OptionSpec> options, std::string name);

// The option with this name; an unknown one is refused, with the nearest.
const OptionSpec& option_named(std::span<const OptionSpec> options, const std::string& name);

// The base of a struct whose fields are options.
class OptionFields {
 public:
  // In the order of their declaration.
  const std::vector<OptionSpec>& options() const { return declared_; }
  // The value of every option by name, and whatever else was given.
  const nlohmann::json& values() const { return values_; }

 protected:
  struct Range {
    double least, most;
  };

  // The options below it are a section of --help.
  struct Section {};
  Section section(std::string_view title) {
    section_ = title;
    return {};
  }

  // By name, values that were checked; an option that is missing has its default.
  explicit OptionFields(nlohmann::json given) : values_(std::move(given)) {}

  std::string text(std::string_view name, std::string_view otherwise, std::string_view help,
                   OptionTraits traits = {});
  std::string one_of(std::string_view name, std::string_view otherwise,
                     std::vector<std::string> choices, std::string_view help,
                     OptionTraits traits = {});
  // One text or several; none is the default. A flag may be said several times.
  std::vector<std::string> texts(std::string_view name, std::string_view help,
                                 OptionTraits traits = {});
  int64_t whole(std::string_view name, int64_t otherwise, Range range, std::string_view help,
                OptionTraits traits = {});
  // The default is shown and saved as it is written here: -1, not -1.0.
  double number(std::string_view name, const nlohmann::json& otherwise, Range range,
                std::string_view help, OptionTraits traits = {});
  bool flag(std::string_view name, std::string_view help, OptionTraits traits = {});

  // A default that other options decide.
  void settle(const std::string& name, const nlohmann::json& value) { values_[name] = value; }

 private:
  template <class T>
  T declare(OptionSpec option);

  std::vector<OptionSpec> declared_;
  nlohmann::json values_;
  std::string section_;
};

}  // namespace adjoint
