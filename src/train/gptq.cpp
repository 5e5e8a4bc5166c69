#include "train/gptq.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/error.h"
#include "device/parallel.h"
#include "kernels/quantize.h"

namespace adjoint {

namespace {

// Of the mean of the diagonal, added to it: inputs that hardly vary must not make H singular.
constexpr double kDamping = 0.01;

// Makes U of H, in place: H = R R^T with R upper triangular, from the last column back, and then
// U = R^-1, because (R R^T)^-1 = R^-T R^-1.
void factor_of_inverse(std::vector<double>& h, int64_t n) {
  double mean = 0;
  for (int64_t i = 0; i < n; ++i) mean += h[i * n + i] / static_cast<double>(n);
  const double damping = mean > 0 ? kDamping * mean : 1;
  for (int64_t i = 0; i < n; ++i) h[i * n + i] += damping;
  for (int64_t j = n; j-- > 0;) {
    const double* const later = &h[j * n];
    const auto reduced = [&](int64_t i) {
      double sum = h[i * n + j];
      for (int64_t k = j + 1; k < n; ++k) sum -= h[i * n + k] * later[k];
      return sum;
    };
    const double square = reduced(j);
    CHECK(square > 0, "a damped sum of squares is positive definite");
    const double root = std::sqrt(square);
    parallel_for(j, std::max<int64_t>(1, 16384 / (n - j)), [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) h[i * n + j] = reduced(i) / root;
    });
    h[j * n + j] = root;
  }
  std::vector<double> row(n);
  for (int64_t i = n; i-- > 0;) {
    const double inverse = 1 / h[i * n + i];
    std::copy_n(&h[i * n], n, row.begin());
    parallel_for(n - i - 1, 256, [&](int64_t begin, int64_t end, int) {
      double* const to = &h[i * n + i + 1];
      std::fill(to + begin, to + end, 0.0);
      for (int64_t k = i + 1; k < n; ++k) {
        const int64_t first = std::max(begin, k - i - 1);  // U is 0 left of its diagonal
        const double factor = -row[k] * inverse;
        const double* const from = &h[k * n + i + 1];
        for (int64_t j = first; j < end; ++j) to[j] += factor * from[j];
      }
    });
    h[i * n + i] = inverse;
  }
}

float largest_of(std::span<const float> numbers) {
  float most = 0;
  for (const float x : numbers) most = std::max(most, std::abs(x));
  return most;
}

int64_t per_scale(const Type& type, const CodeFormat& format) {
  if (format.per == CodeFormat::Per::kTensor) return type.num_elements();
  return format.per == CodeFormat::Per::kChannel ? type.dim(-1) : format.group;
}

EncodedMatrix empty_codes(const Type& type, const CodeFormat& format) {
  return {std::vector<std::byte>(codes_type(type, format).bytes().count),
          std::vector<float>(scales_type(type, format).num_elements())};
}

}  // namespace

EncodedMatrix round_to_codes(std::span<const float> matrix, const Type& type,
                             const CodeFormat& format) {
  EncodedMatrix made = empty_codes(type, format);
  quantize(matrix.data(), type, format, made.codes.data(), made.scales.data());
  return made;
}

EncodedMatrix gptq(std::span<const float> matrix, const Type& type, const CodeFormat& format,
                   std::vector<double> hessian) {
  CHECK(type.rank() == 2, "a linear map's weight has two axes");
  const int64_t rows = type.dim(0), n = type.dim(1);
  CHECK(static_cast<int64_t>(hessian.size()) == n * n, "one number for each two columns");
  factor_of_inverse(hessian, n);
  const std::vector<double>& u = hessian;
  EncodedMatrix made = empty_codes(type, format);
  const float most = largest_level(format.kind);
  const int64_t shared = per_scale(type, format);
  const bool grouped = format.per == CodeFormat::Per::kGroup;
  if (format.per == CodeFormat::Per::kTensor) made.scales[0] = largest_of(matrix) / most;
  // A row does not know of the others. As many as a cache line has floats are taken at once, so
  // that U is read once for all of them, and the columns of a tile lie side by side.
  constexpr int64_t kTile = 16;
  parallel_for((rows + kTile - 1) / kTile, 1, [&](int64_t begin, int64_t end, int) {
    std::vector<float> w(n * kTile);
    for (int64_t tile = begin; tile < end; ++tile) {
      const int64_t first = tile * kTile, count = std::min(kTile, rows - first);
      std::fill(w.begin(), w.end(), 0.0f);
      for (int64_t r = 0; r < count; ++r) {
        for (int64_t j = 0; j < n; ++j) w[j * kTile + r] = matrix[(first + r) * n + j];
      }
      std::array<float, kTile> scales = {}, errors = {};
      if (format.per == CodeFormat::Per::kTensor) scales.fill(made.scales[0]);
      for (int64_t j = 0; j < n; ++j) {
        const bool begins = grouped ? j % shared == 0 : j == 0;
        for (int64_t r = 0; r < count; ++r) {
          if (begins && format.per != CodeFormat::Per::kTensor) {
            float all = 0;
            for (int64_t k = j; k < j + shared; ++k) {
              all = std::max(all, std::abs(w[k * kTile + r]));
            }
            scales[r] = all / most;
            made.scales[((first + r) * n + j) / shared] = scales[r];
          }
          const float x = w[j * kTile + r];
          const int code = code_of(x, scales[r], format.kind);
          store_code(made.codes.data(), (first + r) * n + j, code, format.kind);
          const float error = x - level_of(code, format.kind) * scales[r];
          errors[r] = static_cast<float>(error / u[j * n + j]);
        }
        for (int64_t k = j + 1; k < n; ++k) {
          const auto factor = static_cast<float>(u[j * n + k]);
          for (int64_t r = 0; r < kTile; ++r) w[k * kTile + r] -= factor * errors[r];
        }
      }
    }
  });
  return made;
}

std::vector<float> decoded(const EncodedMatrix& encoded, const Type& type,
                           const CodeFormat& format) {
  std::vector<float> numbers(type.num_elements());
  const int64_t shared = per_scale(type, format);
  for (int64_t i = 0; i < type.num_elements(); ++i) {
    numbers[i] = level_of(load_code(encoded.codes.data(), i, format.kind), format.kind) *
                 encoded.scales[i / shared];
  }
  return numbers;
}

double output_error(std::span<const float> a, std::span<const float> b, const Type& type,
                    std::span<const double> hessian) {
  const int64_t rows = type.dim(0), n = type.dim(1);
  double sum = 0;
  std::vector<double> change(n);
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t j = 0; j < n; ++j) change[j] = double{a[r * n + j]} - b[r * n + j];
    for (int64_t i = 0; i < n; ++i) {
      double product = 0;
      for (int64_t j = 0; j < n; ++j) product += hessian[i * n + j] * change[j];
      sum += change[i] * product;
    }
  }
  return sum / static_cast<double>(rows);
}

}  // namespace adjoint
