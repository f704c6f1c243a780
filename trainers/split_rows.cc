#include "cohort/trainers/split_rows.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>

#include "ATen/CPUGeneratorImpl.h"
#include "ATen/core/Tensor.h"
#include "ATen/ops/randperm.h"
#include "absl/status/status.h"
#include "absl/status/status_macros.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "cohort/runtime/torch_status.h"

namespace cohort {
namespace {

constexpr uint64_t kSeed = 20230607;

RowSplit Split(int64_t num_rows, int64_t num_held_out) {
  RowSplit split;
  if (num_held_out == 0) {
    split.learned.resize(num_rows);
    std::iota(split.learned.begin(), split.learned.end(), 0);
    return split;
  }
  const at::Tensor order = at::randperm(num_rows, at::make_generator<at::CPUGeneratorImpl>(kSeed), at::kLong);
  const int64_t* const rows = order.const_data_ptr<int64_t>();
  split.held_out.assign(rows, rows + num_held_out);
  split.learned.assign(rows + num_held_out, rows + num_rows);
  std::sort(split.held_out.begin(), split.held_out.end());
  std::sort(split.learned.begin(), split.learned.end());
  return split;
}

}  // namespace

absl::StatusOr<RowSplit> SplitRows(int64_t num_rows, double fraction) {
  const auto num_held_out = static_cast<int64_t>(std::llround(fraction * static_cast<double>(num_rows)));
  if (fraction > 0 && (num_held_out < 1 || num_held_out >= num_rows)) {
    return absl::InvalidArgumentError(
        absl::StrCat("validation=", fraction, " holds out ", num_held_out, " of ", num_rows,
                     " rows; there must be at least one to hold out and one to learn from"));
  }
  return InvokeTorch([&] { return Split(num_rows, num_held_out); });
}

}  // namespace cohort
