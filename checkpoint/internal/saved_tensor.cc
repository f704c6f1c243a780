#include "cohort/checkpoint/internal/saved_tensor.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string_view>

#include "ATen/core/Tensor.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/status_macros.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "c10/core/Layout.h"
#include "c10/core/ScalarType.h"
#include "cohort/checkpoint/internal/dtype.h"
#include "cohort/checkpoint/internal/quoted.h"

namespace cohort::internal {
namespace {

// Two copies of this size exist at a time.
constexpr int64_t kStagingBytes = int64_t{16} << 20;

// In the order of Dtype.
constexpr at::ScalarType kScalarTypes[] = {
    at::kBool,
    at::kByte,
    at::kUInt16,
    at::kUInt32,
    at::kUInt64,
    at::kChar,
    at::kShort,
    at::kInt,
    at::kLong,
    at::kHalf,
    at::kBFloat16,
    at::kFloat,
    at::kDouble,
    at::kComplexHalf,
    at::kComplexFloat,
    at::kComplexDouble,
    at::kFloat8_e5m2,
    at::kFloat8_e5m2fnuz,
    at::kFloat8_e4m3fn,
    at::kFloat8_e4m3fnuz,
    at::kFloat8_e8m0fnu,
};

absl::Status Refuse(absl::StatusCode code, std::string_view name, std::string_view why) {
  return absl::Status(code, absl::StrCat("tensor ", Quoted(name), " ", why));
}

absl::Status CheckKind(std::string_view name, const at::Tensor& tensor) {
  if (!tensor.defined()) return Refuse(absl::StatusCode::kInvalidArgument, name, "is undefined");
  if (tensor.is_nested())
    return Refuse(absl::StatusCode::kUnimplemented, name, "is nested; only dense tensors can be saved");
  if (tensor.layout() != at::kStrided) {
    return Refuse(
        absl::StatusCode::kUnimplemented, name,
        absl::StrFormat("has layout %s; only dense tensors can be saved", absl::FormatStreamed(tensor.layout())));
  }
  if (!DtypeOf(tensor.scalar_type()).has_value()) {
    return Refuse(absl::StatusCode::kUnimplemented, name,
                  absl::StrCat("has dtype ", c10::toString(tensor.scalar_type()),
                               ", which files do not hold exactly"));
  }
  if (tensor.is_meta() || !tensor.has_storage()) {
    return Refuse(absl::StatusCode::kInvalidArgument, name,
                  absl::StrCat("has no data (device ", tensor.device().str(), ")"));
  }
  return absl::OkStatus();
}

// An integer type of the same size: copying as integers is exact and works for every dtype, also those that LibTorch's
// kernels know little of.
at::ScalarType IntegerOfSize(int64_t num_bytes) {
  switch (num_bytes) {
    case 1:
      return at::kByte;
    case 2:
      return at::kShort;
    case 4:
      return at::kInt;
    case 8:
      return at::kLong;
    default:
      return at::kComplexDouble;  // 16 bytes; no integer is as long
  }
}

}  // namespace

std::optional<Dtype> DtypeOf(at::ScalarType type) {
  const auto* found = std::find(std::begin(kScalarTypes), std::end(kScalarTypes), type);
  if (found == std::end(kScalarTypes)) return std::nullopt;
  return static_cast<Dtype>(found - std::begin(kScalarTypes));
}

at::ScalarType ScalarTypeOf(Dtype dtype) { return kScalarTypes[static_cast<size_t>(dtype)]; }

absl::StatusOr<SavedTensor> Savable(std::string_view name, const at::Tensor& tensor) {
  ABSL_RETURN_IF_ERROR(CheckKind(name, tensor));
  SavedTensor saved{.tensor = tensor.detach(),
                    .dtype = *DtypeOf(tensor.scalar_type()),
                    .conjugated = tensor.is_conj(),
                    .negated = tensor.is_neg()};
  if (saved.conjugated) saved.tensor = saved.tensor._conj();
  if (saved.negated) saved.tensor = saved.tensor._neg_view();
  saved.begin = saved.end = saved.tensor.storage_offset();
  if (tensor.numel() == 0) return saved;
  ++saved.end;
  for (int64_t i = 0; i < tensor.dim(); ++i) saved.end += (tensor.size(i) - 1) * tensor.stride(i);
  const int64_t available = static_cast<int64_t>(tensor.storage().nbytes()) / tensor.element_size();
  if (saved.end > available) {
    return Refuse(absl::StatusCode::kInvalidArgument, name,
                  absl::StrCat("needs ", saved.end, " elements of its storage, which has ", available,
                               "; was it freed or resized?"));
  }
  return saved;
}

absl::Status AppendElements(const at::Tensor& tensor, absl::FunctionRef<absl::Status(std::string_view)> append) {
  const int64_t num_bytes = static_cast<int64_t>(tensor.nbytes());
  if (tensor.is_cpu() && tensor.is_contiguous()) {
    return append(std::string_view(static_cast<const char*>(tensor.const_data_ptr()), num_bytes));
  }
  if (num_bytes <= kStagingBytes) {
    return AppendElements(tensor.view(IntegerOfSize(tensor.element_size())).contiguous().cpu(), append);
  }
  const int64_t rows = tensor.size(0);
  if (rows == 1) return AppendElements(tensor.select(0, 0), append);
  ABSL_RETURN_IF_ERROR(AppendElements(tensor.narrow(0, 0, rows / 2), append));
  return AppendElements(tensor.narrow(0, rows / 2, rows - rows / 2), append);
}

}  // namespace cohort::internal
