#include "ops/product_letters.h"

namespace adjoint {

std::optional<ProductLetters> product_letters(const std::string& map) {
  const size_t comma = map.find(','), arrow = map.find("->");
  if (comma == std::string::npos || arrow == std::string::npos || comma > arrow) {
    return std::nullopt;
  }
  return ProductLetters{map.substr(0, comma), map.substr(comma + 1, arrow - comma - 1),
                        map.substr(arrow + 2)};
}

std::string leading_letters_of(const Type& x) {
  return std::string("abcdefgh").substr(0, x.rank() - 1);
}

std::string linear_map(const Type& x) {
  const std::string leading = leading_letters_of(x);
  return leading + "i,oi->" + leading + "o";
}

}  // namespace adjoint
