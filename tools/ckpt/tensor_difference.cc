#include "cohort/tools/ckpt/tensor_difference.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "ATen/core/Tensor.h"
#include "absl/functional/function_ref.h"
#include "c10/core/ScalarType.h"
#include "c10/util/complex.h"

namespace cohort::ckpt {
namespace {

constexpr int64_t kPieceElements = 1 << 18;

void AddFloat(double a, double b, TensorDifference& difference) {
  const double apart = std::abs(a - b);
  // Infinities of one sign have the same bits in every dtype, so this is a NaN on one side.
  if (std::isnan(apart)) {
    ++difference.num_nan;
  } else {
    difference.max = std::max(difference.max, apart);
  }
}

// Row-major tensors of few elements.
void ComparePiece(const at::Tensor& a, const at::Tensor& b, TensorDifference& difference) {
  const int64_t n = a.numel();
  const size_t size = a.element_size();
  const char* const bytes_a = static_cast<const char*>(a.const_data_ptr());
  const char* const bytes_b = static_cast<const char*>(b.const_data_ptr());
  if (std::memcmp(bytes_a, bytes_b, n * size) == 0) return;
  const at::ScalarType dtype = a.scalar_type();
  const bool is_complex = c10::isComplexType(dtype);
  const at::ScalarType wide = is_complex ? at::kComplexDouble : difference.is_integral ? at::kLong : at::kDouble;
  // LibTorch cannot convert every uint64, and need not: it has the bits of an int64.
  const auto widened = [&](const at::Tensor& t) { return dtype == at::kUInt64 ? t.view(at::kLong) : t.to(wide); };
  const at::Tensor wide_a = widened(a);
  const at::Tensor wide_b = widened(b);
  for (int64_t i = 0; i < n; ++i) {
    if (std::memcmp(bytes_a + i * size, bytes_b + i * size, size) == 0) continue;
    ++difference.num_different;
    if (is_complex) {
      const c10::complex<double> apart =
          wide_a.const_data_ptr<c10::complex<double>>()[i] - wide_b.const_data_ptr<c10::complex<double>>()[i];
      AddFloat(std::hypot(apart.real(), apart.imag()), 0, difference);
    } else if (difference.is_integral) {
      const int64_t x = wide_a.const_data_ptr<int64_t>()[i];
      const int64_t y = wide_b.const_data_ptr<int64_t>()[i];
      const bool is_less = dtype == at::kUInt64 ? static_cast<uint64_t>(x) < static_cast<uint64_t>(y) : x < y;
      const uint64_t apart = static_cast<uint64_t>(is_less ? y : x) - static_cast<uint64_t>(is_less ? x : y);
      difference.max_integral = std::max(difference.max_integral, apart);
    } else {
      AddFloat(wide_a.const_data_ptr<double>()[i], wide_b.const_data_ptr<double>()[i], difference);
    }
  }
}

void CompareInPieces(const at::Tensor& a, const at::Tensor& b, absl::FunctionRef<void(int64_t)> done_more,
                     TensorDifference& difference) {
  if (a.numel() <= kPieceElements) {
    if (a.numel() > 0) {
      ComparePiece(a.resolve_conj().resolve_neg().contiguous(), b.resolve_conj().resolve_neg().contiguous(),
                   difference);
    }
    done_more(a.numel());
    return;
  }
  int64_t dimension = 0;
  while (a.size(dimension) == 1) ++dimension;
  const int64_t half = a.size(dimension) / 2;
  const int64_t rest = a.size(dimension) - half;
  CompareInPieces(a.narrow(dimension, 0, half), b.narrow(dimension, 0, half), done_more, difference);
  CompareInPieces(a.narrow(dimension, half, rest), b.narrow(dimension, half, rest), done_more, difference);
}

}  // namespace

TensorDifference Compare(const at::Tensor& a, const at::Tensor& b, absl::FunctionRef<void(int64_t)> done_more) {
  TensorDifference difference;
  difference.is_integral = c10::isIntegralType(a.scalar_type(), /*includeBool=*/true);
  CompareInPieces(a, b, done_more, difference);
  return difference;
}

}  // namespace cohort::ckpt
