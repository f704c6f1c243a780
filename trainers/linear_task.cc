#include "cohort/trainers/linear_task.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ATen/core/Tensor.h"
#include "ATen/ops/cat.h"
#include "absl/status/status.h"
#include "absl/status/status_macros.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "c10/core/Device.h"
#include "cohort/checkpoint/internal/quoted.h"
#include "cohort/models/linear.h"
#include "cohort/runtime/process_group.h"
#include "cohort/runtime/torch_status.h"
#include "cohort/trainers/data/row_source.h"
#include "cohort/trainers/task.h"
#include "cohort/trainers/trained_model.h"
#include "cohort/trainers/trainer_options.h"

namespace cohort {
namespace {

constexpr TaskMetric kMetrics[] = {{.name = "r2", .label = "R2", .is_best_when_greatest = true}};
constexpr int64_t kLookedAt = 65536;  // rows

class LinearTask final : public Task {
 public:
  LinearTask(int64_t features, int64_t targets, double scale, at::Tensor origin)
      : features_(features), targets_(targets), scale_(scale), origin_(std::move(origin)) {}

  std::string model_name() const override { return absl::StrCat("Linear(", features_, ", ", targets_, ")"); }
  std::string settings() const override { return ""; }
  absl::Span<const TaskMetric> metrics() const override { return kMetrics; }

  double LearningRate(const TrainerOptions& options) const override {
    const double fresh = 1 - options.momentum.value_or(0);
    if (options.optimizer == "sgd") return 0.5 * fresh / static_cast<double>(features_ + 1);
    if (options.optimizer == "rmsprop") return 0.02 * fresh * scale_;
    return (options.optimizer == "adagrad" ? 0.5 : 0.02) * scale_;
  }
  double weight_decay() const override { return 0.01 / scale_; }

  absl::StatusOr<std::unique_ptr<TrainedModel>> MakeModel(ProcessGroup* group, at::Device device) override {
    auto model = std::make_shared<Linear>(features_, targets_);
    model->to(device);
    origin_ = origin_.to(device);
    return TrainOnAllRanks(group, std::move(model));
  }

  at::Tensor Loss(const at::Tensor& output, const at::Tensor& targets) const override {
    return (output - targets).to(at::kDouble).square().sum();
  }
  int64_t loss_values_per_row() const override { return targets_; }

  // The squared error; and for each target the sum, and the sum of squares, of its distance from the origin.
  at::Tensor Sums(const at::Tensor& output, const at::Tensor& targets) const override {
    const at::Tensor distance = targets.to(at::kDouble) - origin_;
    return at::cat({Loss(output, targets).reshape({1}), distance.sum(0), distance.square().sum(0)});
  }
  int64_t num_sums() const override { return 1 + 2 * targets_; }

  std::vector<double> Metrics(absl::Span<const double> sums, int64_t num_rows) const override {
    double variation = 0;
    for (int64_t target = 0; target < targets_; ++target) {
      const double sum = sums[1 + target];
      variation += sums[1 + targets_ + target] - sum * sum / static_cast<double>(num_rows);
    }
    return {variation > 0 ? 1 - sums[0] / variation : std::numeric_limits<double>::quiet_NaN()};
  }

 private:
  const int64_t features_, targets_;
  const double scale_;  // of the targets: their root mean square
  at::Tensor origin_;   // the first row's targets: near the others, so that little is lost when squares are subtracted
};

// What is looked at of the targets, as doubles.
absl::StatusOr<at::Tensor> FirstTargets(const RowSource& rows) {
  std::vector<at::Tensor> targets;
  ABSL_RETURN_IF_ERROR(VisitRows(rows, 0, std::min(rows.num_rows(), kLookedAt), [&](int64_t, const RowBatch& batch) {
    targets.push_back(batch.targets);
    return absl::OkStatus();
  }));
  return InvokeTorch([&] { return at::cat(targets).to(at::kDouble); });
}

absl::Status CheckFormat(const RowSource& rows, std::string_view name, const RowFormat& format) {
  if (format.sizes.size() == 1 && format.sizes[0] >= 1 && format.dtype == at::kFloat) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(internal::Printable(rows.info().name), ": the ", name,
                                                 " of a row are ", format.ToString(),
                                                 "; a linear model needs a list of floats, at least one"));
}

}  // namespace

absl::Span<const TaskMetric> LinearMetrics() { return kMetrics; }

absl::StatusOr<std::unique_ptr<Task>> MakeLinearTask(const RowSource& rows) {
  ABSL_RETURN_IF_ERROR(CheckFormat(rows, "features", rows.info().features));
  ABSL_RETURN_IF_ERROR(CheckFormat(rows, "targets", rows.info().targets));
  ABSL_ASSIGN_OR_RETURN(const at::Tensor targets, FirstTargets(rows));
  return InvokeTorch([&]() -> std::unique_ptr<Task> {
    const double mean_square = targets.square().mean().item<double>();
    const double scale = std::isfinite(mean_square) && mean_square > 0 ? std::sqrt(mean_square) : 1;
    return std::make_unique<LinearTask>(rows.info().features.sizes[0], rows.info().targets.sizes[0], scale,
                                        targets.select(0, 0).clone());
  });
}

}  // namespace cohort
