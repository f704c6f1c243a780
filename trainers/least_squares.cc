#include "cohort/trainers/least_squares.h"

#include <tuple>

#include "ATen/core/Tensor.h"
#include "ATen/ops/cat.h"
#include "ATen/ops/from_blob.h"
#include "ATen/ops/linalg_lstsq.h"
#include "ATen/ops/ones.h"
#include "absl/status/statusor.h"
#include "cohort/runtime/torch_status.h"
#include "cohort/trainers/data/dataset.h"

namespace cohort {

absl::StatusOr<double> LeastSquaresError(const Dataset& data) {
  return InvokeTorch([&] {
    // from_blob takes a pointer to non-const; nothing here writes through it.
    const at::Tensor features =
        at::from_blob(const_cast<double*>(data.features.data()), {data.num_rows, data.num_features()}, at::kDouble);
    const at::Tensor targets =
        at::from_blob(const_cast<double*>(data.targets.data()), {data.num_rows, data.num_targets()}, at::kDouble);
    const at::Tensor inputs = at::cat({features, at::ones({data.num_rows, 1}, at::kDouble)}, 1);
    // gelsd: by singular values, because a constant feature makes the inputs depend on each other.
    const at::Tensor solution = std::get<0>(at::linalg_lstsq(inputs, targets, /*rcond=*/std::nullopt, "gelsd"));
    return inputs.matmul(solution).sub(targets).square().sum().item<double>();
  });
}

}  // namespace cohort
