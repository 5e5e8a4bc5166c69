#include "kernels/cuda/cublaslt/tuned_products.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"

namespace adjoint {

namespace {

using nlohmann::json;

// 1: timed on zeros, with which a GPU is faster.
constexpr const char* kFormat = "adjoint tuned products 2";
constexpr size_t kDigits = 16;  // of a word

struct Attribute {
  const char* name;
  int64_t ProductAlgorithm::*value;
  int64_t most;  // of the type that the library has for it
  int64_t least = 0;
};
constexpr Attribute kAttributes[] = {
    {"id", &ProductAlgorithm::id, INT32_MAX},
    {"tile", &ProductAlgorithm::tile, UINT32_MAX},
    {"stages", &ProductAlgorithm::stages, UINT32_MAX},
    {"split_k", &ProductAlgorithm::split_k, INT32_MAX, -1},  // the library decides
    {"reduction", &ProductAlgorithm::reduction, UINT32_MAX},
    {"swizzle", &ProductAlgorithm::swizzle, UINT32_MAX},
    {"custom", &ProductAlgorithm::custom, UINT32_MAX},
    {"inner_shape", &ProductAlgorithm::inner_shape, UINT16_MAX},
    {"cluster_shape", &ProductAlgorithm::cluster_shape, UINT16_MAX},
};

std::string hex(const std::array<uint64_t, 8>& words) {
  std::string text;
  for (const uint64_t word : words) {
    for (size_t i = kDigits; i-- > 0;) text += "0123456789abcdef"[word >> (4 * i) & 15];
  }
  return text;
}

// Errors name the file, the product and the field.
class Reader {
 public:
  Reader(std::string file, std::string product)
      : file_(std::move(file)), product_(std::move(product)) {}

  TunedProduct tuned(const json& entry) const {
    if (!entry.is_object()) wrong("an object", entry);
    TunedProduct tuned;
    for (const Attribute& attribute : kAttributes) {
      const json& found = field(entry, attribute.name);
      const bool fits = found.is_number_integer() && found.get<int64_t>() >= attribute.least &&
                        found.get<int64_t>() <= attribute.most;
      if (!fits) {
        wrong(join_parts("'", attribute.name, "' from ", attribute.least, " to ", attribute.most),
              found);
      }
      tuned.algorithm.*attribute.value = found.get<int64_t>();
    }
    tuned.algorithm.words = words(field(entry, "words"));
    const json& time = field(entry, "microseconds");
    if (!time.is_number() || !(time.get<double>() > 0) || !std::isfinite(time.get<double>())) {
      wrong("'microseconds' above 0", time);
    }
    tuned.microseconds = time.get<double>();
    if (entry.size() != std::size(kAttributes) + 2) wrong("no other fields", entry);
    return tuned;
  }

 private:
  [[noreturn]] void wrong(const std::string& wanted, const json& found) const {
    fail(file_, ": ", product_, ": wanted ", wanted, ", found ",
         found.dump(-1, ' ', false, json::error_handler_t::replace));
  }
  const json& field(const json& entry, const char* name) const {
    const auto at = entry.find(name);
    if (at == entry.end()) wrong(join_parts("'", name, "'"), entry);
    return *at;
  }
  std::array<uint64_t, 8> words(const json& found) const {
    std::array<uint64_t, 8> words = {};
    const std::string text = found.is_string() ? found.get<std::string>() : "";
    if (text.size() != words.size() * kDigits ||
        text.find_first_not_of("0123456789abcdef") != std::string::npos) {
      wrong(join_parts("'words' of ", words.size() * kDigits, " hexadecimal digits"), found);
    }
    for (size_t i = 0; i < words.size(); ++i) {
      words[i] = std::stoull(text.substr(i * kDigits, kDigits), nullptr, 16);
    }
    return words;
  }

  std::string file_, product_;
};

json written(const TunedProduct& tuned) {
  json entry = {{"words", hex(tuned.algorithm.words)}, {"microseconds", tuned.microseconds}};
  for (const Attribute& attribute : kAttributes) {
    entry[attribute.name] = tuned.algorithm.*attribute.value;
  }
  return entry;
}

}  // namespace

std::string to_string(const ProductAlgorithm& algorithm) {
  std::string text;
  for (const Attribute& attribute : kAttributes) {
    text += join_parts(text.empty() ? "" : ", ", attribute.name, " ", algorithm.*attribute.value);
  }
  return text;
}

std::string product_machine(std::string_view gpu, Bytes memory, size_t library) {
  return join_parts(gpu, ", ", memory.count, " bytes, cuBLASLt ", library);
}

ProductMachine machine_named(const std::string& machine) {
  const size_t comma = machine.find(", ");
  ProductMachine found{.gpu = machine.substr(0, comma)};
  if (comma != std::string::npos) {
    found.memory = {std::strtoll(machine.c_str() + comma + 2, nullptr, 10)};
  }
  return found;
}

TunedProducts TunedProducts::read(const std::filesystem::path& path) {
  return parse(read_file(path), path.string());
}

TunedProducts TunedProducts::parse(const std::string& text, const std::string& file) {
  const json all = json::parse(text, nullptr, /*allow_exceptions=*/false);
  const bool ours = all.is_object() && all.size() == 2 && all.contains("format") &&
                    all["format"] == kFormat && all.contains("machines") &&
                    all["machines"].is_object();
  if (!ours) fail(file, ": this is no table of tuned products ('", kFormat, "')");
  TunedProducts table;
  for (const auto& [machine, products] : all["machines"].items()) {
    if (!products.is_object()) fail(file, ": ", machine, ": wanted an object of products");
    for (const auto& [product, entry] : products.items()) {
      table.remember(machine, product, Reader(file, product).tuned(entry));
    }
  }
  return table;
}

std::string TunedProducts::text() const {
  json all = {{"format", kFormat}, {"machines", json::object()}};
  for (const auto& [machine, products] : machines_) {
    json& written_here = all["machines"][machine] = json::object();
    for (const auto& [product, tuned] : products) written_here[product] = written(tuned);
  }
  return all.dump(1) + "\n";
}

void TunedProducts::write(const std::filesystem::path& path) const {
  write_file_atomically(path, text());
}

const TunedProduct* TunedProducts::find(const std::string& machine,
                                        const std::string& product) const {
  const auto products = machines_.find(machine);
  if (products == machines_.end()) return nullptr;
  const auto tuned = products->second.find(product);
  return tuned == products->second.end() ? nullptr : &tuned->second;
}

void TunedProducts::remember(const std::string& machine, const std::string& product,
                             const TunedProduct& tuned) {
  machines_[machine][product] = tuned;
}

void TunedProducts::remember(const TunedProducts& others) {
  for (const auto& [machine, products] : others.machines_) {
    for (const auto& [product, tuned] : products) remember(machine, product, tuned);
  }
}

const std::map<std::string, TunedProduct>& TunedProducts::of(const std::string& machine) const {
  static const std::map<std::string, TunedProduct> none;
  const auto products = machines_.find(machine);
  return products == machines_.end() ? none : products->second;
}

std::vector<std::string> TunedProducts::machines() const {
  std::vector<std::string> names;
  for (const auto& [machine, products] : machines_) names.push_back(machine);
  return names;
}

size_t TunedProducts::size() const {
  size_t count = 0;
  for (const auto& [machine, products] : machines_) count += products.size();
  return count;
}

}  // namespace adjoint
