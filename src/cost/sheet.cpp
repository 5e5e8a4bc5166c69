#include "cost/sheet.h"

#include <fmt/format.h>
#include <toml++/toml.h>

#include <algorithm>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"

namespace adjoint {

namespace {

constexpr double kNoLink = 1e-300;  // stands for no link where a number is read

// Reads one sheet's text key by key.
class SheetReader {
 public:
  SheetReader(std::string_view text, std::string_view file) : file_(file) {
    try {
      table_ = toml::parse(text, std::string(file));
    } catch (const toml::parse_error& e) {
      fail(file_, ":", e.source().begin.line, ":", e.source().begin.column, ": ",
           std::string(e.description()));
    }
  }

  std::string text(const char* key) { return text_of(table_, key).value_or(""); }

  bool yes(const char* key) {
    known_.push_back(key);
    const toml::node* node = table_.get(key);
    if (!node) return false;
    if (!node->is_boolean()) fail(file_, ": ", key, ": wanted true or false");
    return *node->value<bool>();
  }

  Bytes bytes(const char* key) {
    const auto found = text_of(table_, key);
    if (!found) return {0};
    const auto bytes = parse_bytes(*found);
    if (!bytes) fail(file_, ": ", key, ": wanted a size such as \"24GB\", found '", *found, "'");
    return *bytes;
  }

  // A positive number, or `otherwise` if the key is absent; it is required if that is 0.
  double number(const char* key, double otherwise = 0) {
    known_.push_back(key);
    const toml::node* node = table_.get(key);
    if (!node && otherwise > 0) return otherwise;
    if (!node) fail(file_, ": wanted ", key, ", found none");
    return positive(key, *node);
  }

  std::map<std::string, double> numbers(const char* key) {
    known_.push_back(key);
    std::map<std::string, double> all;
    const toml::node* node = table_.get(key);
    if (!node || !node->is_table()) fail(file_, ": wanted [", key, "], found none");
    for (const auto& [name, value] : *node->as_table()) {
      all[std::string(name.str())] = positive(std::string(name.str()).c_str(), value);
    }
    return all;
  }

  bool has(const char* key) const { return table_.contains(key); }

  void refuse_unknown() const {
    for (const auto& [key, value] : table_) {
      const std::string name(key.str());
      if (std::find(known_.begin(), known_.end(), name) != known_.end()) continue;
      fail(file_, ": a device has no '", name, "'", did_you_mean(name, known_));
    }
  }

 private:
  std::optional<std::string> text_of(const toml::table& table, const char* key) {
    known_.push_back(key);
    const toml::node* node = table.get(key);
    if (!node) return std::nullopt;
    if (!node->is_string()) fail(file_, ": ", key, ": wanted a text in quotes");
    return node->value<std::string>();
  }

  double positive(const char* key, const toml::node& node) const {
    const auto number = node.value<double>();
    if (!number || !(*number > 0) || *number > 1e30) {
      fail(file_, ": ", key, ": wanted a number above 0");
    }
    return *number;
  }

  std::string file_;
  toml::table table_;
  std::vector<std::string> known_;
};

std::string stem(std::string_view file) {
  const size_t slash = file.rfind('/');
  if (slash != std::string_view::npos) file.remove_prefix(slash + 1);
  return std::string(file.substr(0, file.rfind(".device")));
}

}  // namespace

DeviceSheet parse_device(std::string_view text, std::string_view file) {
  SheetReader read(text, file);
  DeviceSheet s{.name = stem(file), .summary = read.text("summary")};
  s.per_core = read.yes("per_core");
  s.memory = read.bytes("memory");
  s.products = read.numbers("products");
  if (!s.products.count("f32")) fail(std::string(file), ": products: wanted f32, found none");
  s.attention = read.number("attention", s.attention);
  s.attention_backward = read.number("attention_backward", s.attention_backward);
  s.arithmetic = read.number("arithmetic");
  s.bandwidth = read.number("bandwidth");
  s.most_bandwidth = read.number("most_bandwidth", s.bandwidth);
  s.launch = read.number("launch", 1e-6);
  s.overlaps = read.yes("overlaps");
  s.link = read.number("link", s.overlaps ? 0 : kNoLink);
  if (s.link == kNoLink) s.link = 0;
  s.workspace = read.bytes("workspace");
  if (read.has("fabric")) {
    const std::map<std::string, double> rates = read.numbers("fabric");
    for (const auto& [key, rate] : rates) {
      if (key == "latency") s.fabric.latency = rate;
      if (key == "bandwidth") s.fabric.seconds_per_byte = 1 / rate;
      if (key == "additions") s.fabric.seconds_per_term = 1 / rate;
      const std::vector<std::string> known = {"latency", "bandwidth", "additions"};
      if (std::find(known.begin(), known.end(), key) != known.end()) continue;
      fail(std::string(file), ": a fabric has no '", key, "'", did_you_mean(key, known));
    }
  }
  read.refuse_unknown();
  return s;
}

std::string print(const DeviceSheet& s) {
  std::string out = fmt::format("summary = \"{}\"\n", s.summary);
  if (s.per_core) out += "per_core = true\n";
  const auto bytes = [&](const char* key, Bytes value) {
    if (value.count > 0) out += fmt::format("{} = \"{}\"\n", key, value.count);
  };
  const auto number = [&](const char* key, double value) {
    out += fmt::format("{} = {:e}\n", key, value);
  };
  bytes("memory", s.memory);
  bytes("workspace", s.workspace);
  number("attention", s.attention);
  number("attention_backward", s.attention_backward);
  number("arithmetic", s.arithmetic);
  number("bandwidth", s.bandwidth);
  number("most_bandwidth", s.most_bandwidth);
  number("launch", s.launch);
  if (s.overlaps) out += "overlaps = true\n";
  if (s.link > 0) number("link", s.link);
  out += "[products]\n";
  for (const auto& [dtype, rate] : s.products) number(dtype.c_str(), rate);
  out += "[fabric]\n";
  number("latency", s.fabric.latency);
  number("bandwidth", 1 / s.fabric.seconds_per_byte);
  number("additions", 1 / s.fabric.seconds_per_term);
  return out;
}

std::vector<std::string> device_names() {
  std::vector<std::string> names;
  for (const DeviceFile& file : device_files()) names.push_back(stem(file.name));
  return names;
}

static std::vector<std::string> names_of_gpus() {
  std::vector<std::string> names;
  for (const DeviceFile& file : device_files()) {
    const DeviceSheet sheet = parse_device(file.text, file.name);
    if (!sheet.per_core) names.push_back(stem(file.name));
  }
  return names;
}

DeviceSheet find_device(std::string_view name) {
  if (name.ends_with(".device")) return parse_device(read_file(std::string(name)), name);
  for (const DeviceFile& file : device_files()) {
    if (stem(file.name) == name) return parse_device(file.text, file.name);
  }
  for (const std::string_view any : {"gpu", "cuda", "nvidia"}) {
    if (lowered(name) == any) {
      fail("a plan is for one kind of GPU, found '", name, "'; say ", join(names_of_gpus(), ", "),
           ", or a file that ends in .device");
    }
  }
  fail("there is no device '", name, "' (there are ", join(device_names(), ", "),
       ", or a file that ends in .device)", did_you_mean(name, device_names()));
}

}  // namespace adjoint
