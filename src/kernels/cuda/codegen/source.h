// What generated CUDA sources are written with.
#pragma once
#include <fmt/format.h>

#include <string>
#include <string_view>
#include <utility>

#include "kernels/cuda/codegen/body.h"

namespace adjoint::cuda_source {

std::string_view element_of(Dtype dtype);
std::string literal(double value, bool wide);
// A node as an expression of its arguments.
std::string expression(const ExprNode& n, const std::string& a, const std::string& b,
                       const std::string& c);

// The position along every axis but the last, of the row that is named so; and how far it is there.
std::string position(const BodySpace& space, std::string_view row);
std::string offset(const Strides& strides);
// Opens the loop over a thread's chunks: each begins at `col` and has `n` elements.
std::string chunk_loop(const CudaCut& cut);
// A chunk of numbers, on their way to where they belong.
std::string stored(size_t output, const char* to, const char* from, std::string_view type,
                   bool whole, int64_t stride);

// Of those who write line by line.
class Lines {
 protected:
  template <class... Parts>
  void line(fmt::format_string<Parts...> format, Parts&&... parts) {
    out_ += fmt::format(format, std::forward<Parts>(parts)...) + "\n";
  }

  std::string out_;
};

}  // namespace adjoint::cuda_source
