#include "cohort/trainers/data/row_source.h"

#include <cstdint>
#include <vector>

#include "ATen/core/Tensor.h"
#include "ATen/core/grad_mode.h"
#include "ATen/ops/empty.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "cohort/checkpoint/internal/quoted.h"
#include "cohort/runtime/torch_status.h"

namespace cohort {
namespace {

at::Tensor Empty(int64_t num_rows, const RowFormat& format) {
  std::vector<int64_t> sizes = {num_rows};
  sizes.insert(sizes.end(), format.sizes.begin(), format.sizes.end());
  return at::empty(sizes, format.dtype);
}

}  // namespace

absl::StatusOr<RowBatch> RowSource::Read(absl::Span<const int64_t> rows) const {
  for (const int64_t row : rows) {
    if (row >= 0 && row < info_.num_rows) continue;
    return absl::InvalidArgumentError(absl::StrCat(internal::Quoted(info_.name), ": there is no row ", row,
                                                   "; there are ", info_.num_rows, ", from 0 on"));
  }
  const auto num_rows = static_cast<int64_t>(rows.size());
  absl::StatusOr<RowBatch> batch = InvokeTorch(absl::InfiniteFuture(), [&] {
    return RowBatch{.features = Empty(num_rows, info_.features), .targets = Empty(num_rows, info_.targets)};
  });
  if (!batch.ok()) {
    // Whatever LibTorch calls it.
    return absl::ResourceExhaustedError(
        absl::StrCat(internal::Quoted(info_.name), ": no memory for ", num_rows, " rows: ", batch.status().message()));
  }
  absl::Status read;
  const absl::Status thrown = InvokeTorch(absl::InfiniteFuture(), [&] {
    const at::NoGradGuard no_grad;
    read = ReadInto(rows, *batch);
  });
  const absl::Status& status = thrown.ok() ? read : thrown;
  if (!status.ok()) {
    return absl::Status(status.code(), absl::StrCat(internal::Quoted(info_.name), ": ", status.message()));
  }
  return batch;
}

}  // namespace cohort
