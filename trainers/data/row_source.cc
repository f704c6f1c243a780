#include "cohort/trainers/data/row_source.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "ATen/core/Tensor.h"
#include "ATen/core/grad_mode.h"
#include "ATen/ops/empty.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/status_macros.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
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

int64_t RowFormat::num_values() const {
  return std::accumulate(sizes.begin(), sizes.end(), int64_t{1}, std::multiplies<>());
}

std::string RowFormat::ToString() const {
  return absl::StrCat("[", absl::StrJoin(sizes, ", "), "] of ", c10::toString(dtype));
}

absl::StatusOr<RowBatch> RowSource::Read(absl::Span<const int64_t> rows) const {
  for (const int64_t row : rows) {
    if (row >= 0 && row < info_.num_rows) continue;
    return absl::InvalidArgumentError(absl::StrCat(internal::Quoted(info_.name), ": there is no row ", row,
                                                   "; there are ", info_.num_rows, ", from 0 on"));
  }
  const auto num_rows = static_cast<int64_t>(rows.size());
  absl::StatusOr<RowBatch> batch = InvokeTorch(
      [&] { return RowBatch{.features = Empty(num_rows, info_.features), .targets = Empty(num_rows, info_.targets)}; });
  if (!batch.ok()) {
    // Whatever LibTorch calls it.
    return absl::ResourceExhaustedError(
        absl::StrCat(internal::Quoted(info_.name), ": no memory for ", num_rows, " rows: ", batch.status().message()));
  }
  const absl::Status status = InvokeTorch([&] {
    const at::NoGradGuard no_grad;
    return ReadInto(rows, *batch);
  });
  if (!status.ok()) {
    return absl::Status(status.code(), absl::StrCat(internal::Quoted(info_.name), ": ", status.message()));
  }
  return batch;
}

absl::Status VisitRows(const RowSource& rows, int64_t begin, int64_t end,
                       absl::FunctionRef<absl::Status(int64_t first, const RowBatch& batch)> visit) {
  constexpr int64_t kAtOnce = 1024;
  std::vector<int64_t> numbers;
  for (int64_t first = begin; first < end; first += kAtOnce) {
    numbers.resize(std::min(kAtOnce, end - first));
    std::iota(numbers.begin(), numbers.end(), first);
    ABSL_ASSIGN_OR_RETURN(const RowBatch batch, rows.Read(numbers));
    ABSL_RETURN_IF_ERROR(visit(first, batch));
  }
  return absl::OkStatus();
}

}  // namespace cohort
