// Which algorithm was the fastest for a matrix product on a machine, and how long it took: measured
// once, kept in a file, an input of every plan. Nothing here needs a GPU, so that a cost model
// reads the times wherever it runs.
#pragma once
#include <array>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"

namespace adjoint {

// An algorithm of cuBLASLt's. Its words are what the library runs: it lets them be stored and
// restored by the same version of itself. The rest says to people what is in them.
struct ProductAlgorithm {
  int64_t id = 0, tile = 0, stages = 0, split_k = 1, reduction = 0, swizzle = 0, custom = 0;
  int64_t inner_shape = 0, cluster_shape = 0;
  std::array<uint64_t, 8> words = {};

  bool operator==(const ProductAlgorithm&) const = default;
};
std::string to_string(const ProductAlgorithm& algorithm);  // "id 66, tile 24, stages 36, ..."

struct TunedProduct {
  ProductAlgorithm algorithm;
  double microseconds = 0;

  bool operator==(const TunedProduct&) const = default;
};

// What a table is keyed by: a GPU, by its name and memory, and a version of the library.
std::string product_machine(std::string_view gpu, Bytes memory, size_t library);
struct ProductMachine {
  std::string gpu;
  Bytes memory = {0};
};
ProductMachine machine_named(const std::string& machine);  // what of the GPU is in its name

class TunedProducts {
 public:
  // An Error that names the file where it is missing or not what `write` writes.
  static TunedProducts read(const std::filesystem::path& path);
  static TunedProducts parse(const std::string& text, const std::string& file);
  std::string text() const;
  void write(const std::filesystem::path& path) const;  // whole or not at all

  // A machine is a device and a version of the library, see product_machine; a product is its
  // shape, layouts and dtypes, see product_key. Null where nothing is known.
  const TunedProduct* find(const std::string& machine, const std::string& product) const;
  void remember(const std::string& machine, const std::string& product, const TunedProduct& tuned);
  void remember(const TunedProducts& others);  // all of them, in the place of its own
  size_t size() const;
  std::vector<std::string> machines() const;
  const std::map<std::string, TunedProduct>& of(const std::string& machine) const;

  bool operator==(const TunedProducts&) const = default;

 private:
  std::map<std::string, std::map<std::string, TunedProduct>> machines_;
};

}  // namespace adjoint
