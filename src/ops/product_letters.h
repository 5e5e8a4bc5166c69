// The index maps of matrix products.
#pragma once
#include <optional>
#include <string>

#include "scheme/type.h"

namespace adjoint {

// "bsi,oi->bso": the letters of both operands and of the result; nothing when it is no such text.
struct ProductLetters {
  std::string a, b, c;
};
std::optional<ProductLetters> product_letters(const std::string& map);

std::string leading_letters_of(const Type& x);  // all but the last: "ab"
std::string linear_map(const Type& x);          // of linear: "abi,oi->abo"

}  // namespace adjoint
