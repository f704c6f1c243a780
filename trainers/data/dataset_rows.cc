#include "cohort/trainers/data/dataset_rows.h"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "ATen/core/Tensor.h"
#include "ATen/ops/from_blob.h"
#include "absl/status/status.h"
#include "absl/status/status_macros.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "cohort/checkpoint/internal/quoted.h"
#include "cohort/runtime/torch_status.h"
#include "cohort/trainers/data/dataset.h"
#include "cohort/trainers/data/row_source.h"

namespace cohort {
namespace {

constexpr double kMaxClass = static_cast<double>(int64_t{1} << 53);

// On this thread alone, where index_select would start LibTorch's workers for whoever reads ahead.
void CopyRows(const at::Tensor& from, absl::Span<const int64_t> rows, const at::Tensor& to) {
  if (to.numel() == 0) return;
  const size_t row_bytes = to.nbytes() / rows.size();
  const char* const source = static_cast<const char*>(from.const_data_ptr());
  char* target = static_cast<char*>(to.mutable_data_ptr());
  for (const int64_t row : rows) {
    std::memcpy(target, source + row * row_bytes, row_bytes);
    target += row_bytes;
  }
}

class DatasetRows : public RowSource {
 public:
  DatasetRows(RowSourceInfo info, at::Tensor features, at::Tensor targets)
      : RowSource(std::move(info)), features_(std::move(features)), targets_(std::move(targets)) {}

 private:
  absl::Status ReadInto(absl::Span<const int64_t> rows, RowBatch& batch) const override {
    CopyRows(features_, rows, batch.features);
    CopyRows(targets_, rows, batch.targets);
    return absl::OkStatus();
  }

  const at::Tensor features_, targets_;
};

// from_blob takes a pointer to non-const; nothing writes through it.
at::Tensor Converted(const std::vector<double>& values, const std::vector<int64_t>& sizes, at::ScalarType dtype) {
  return at::from_blob(const_cast<double*>(values.data()), sizes, at::kDouble).to(dtype);
}

absl::Status CheckClasses(const Dataset& data) {
  const auto refuse = [&](const auto&... why) {
    return absl::InvalidArgumentError(absl::StrCat(internal::Quoted(data.source), ": ", why...));
  };
  if (data.num_targets() != 1) return refuse("a class is one column, and there are ", data.num_targets(), " targets");
  for (int64_t row = 0; row < data.num_rows; ++row) {
    const double value = data.targets[row];
    if (value >= 0 && value < kMaxClass && value == std::floor(value)) continue;
    return refuse("row ", row, ": ", value, " is no class; it must be a whole number from 0 on");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<RowSource>> MakeDatasetRows(const Dataset& data, TargetKind kind) {
  if (data.num_rows < 1) {
    return absl::InvalidArgumentError(absl::StrCat(internal::Quoted(data.source), ": there is no row"));
  }
  RowSourceInfo info = {.name = data.source,
                        .num_rows = data.num_rows,
                        .features = {.sizes = {data.num_features()}},
                        .targets = {.sizes = {data.num_targets()}},
                        .checksum = data.checksum != 0 ? data.checksum : Checksum(data)};
  std::vector<int64_t> target_sizes = {data.num_rows, data.num_targets()};
  if (kind == TargetKind::kClass) {
    ABSL_RETURN_IF_ERROR(CheckClasses(data));
    info.targets = {.sizes = {}, .dtype = at::kLong};
    target_sizes.pop_back();
  }
  return InvokeTorch([&]() -> std::unique_ptr<RowSource> {
    at::Tensor x = Converted(data.features, {data.num_rows, data.num_features()}, at::kFloat);
    at::Tensor y = Converted(data.targets, target_sizes, info.targets.dtype);
    return std::make_unique<DatasetRows>(std::move(info), std::move(x), std::move(y));
  });
}

}  // namespace cohort
