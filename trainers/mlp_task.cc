#include "cohort/trainers/mlp_task.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ATen/core/Reduction.h"
#include "ATen/core/Tensor.h"
#include "ATen/ops/aminmax.h"
#include "ATen/ops/cross_entropy_loss.h"
#include "ATen/ops/stack.h"
#include "absl/status/status.h"
#include "absl/status/status_macros.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"
#include "c10/core/Device.h"
#include "c10/core/ScalarType.h"
#include "c10/util/Exception.h"
#include "cohort/checkpoint/internal/quoted.h"
#include "cohort/models/mlp.h"
#include "cohort/runtime/process_group.h"
#include "cohort/runtime/torch_status.h"
#include "cohort/trainers/data/row_source.h"
#include "cohort/trainers/task.h"
#include "cohort/trainers/trained_model.h"
#include "cohort/trainers/trainer_options.h"

namespace cohort {
namespace {

constexpr TaskMetric kMetrics[] = {{.name = "accuracy", .label = "accuracy", .is_best_when_greatest = true}};

class MlpTask final : public Task {
 public:
  MlpTask(int64_t features, int64_t classes, const MlpTaskOptions& options)
      : features_(features), classes_(classes), options_(options) {}

  std::string model_name() const override {
    std::vector<int64_t> sizes = {features_};
    sizes.insert(sizes.end(), options_.hidden.begin(), options_.hidden.end());
    sizes.push_back(classes_);
    return absl::StrCat("Mlp(", absl::StrJoin(sizes, ", "), ")");
  }
  std::string settings() const override { return absl::StrCat("dropout=", options_.dropout); }
  absl::Span<const TaskMetric> metrics() const override { return kMetrics; }

  double LearningRate(const TrainerOptions& options) const override {
    const double fresh = 1 - options.momentum.value_or(0);
    if (options.optimizer == "sgd") return 0.1 * fresh;
    if (options.optimizer == "adagrad") return 0.01;
    return options.optimizer == "rmsprop" ? 0.001 * fresh : 0.001;
  }
  double weight_decay() const override { return 0.01; }

  absl::StatusOr<std::unique_ptr<TrainedModel>> MakeModel(ProcessGroup* group, at::Device device) override {
    auto model = std::make_shared<Mlp>(features_, options_.hidden, classes_, options_.dropout);
    model->to(device);
    return TrainOnAllRanks(group, std::move(model));
  }

  at::Tensor Loss(const at::Tensor& output, const at::Tensor& targets) const override {
    CheckClasses(targets);
    return at::cross_entropy_loss(output, targets, /*weight=*/{}, at::Reduction::Sum);
  }
  int64_t loss_values_per_row() const override { return 1; }

  // How many are right; and the loss, which shows parameters that are no longer finite.
  at::Tensor Sums(const at::Tensor& output, const at::Tensor& targets) const override {
    return at::stack({output.argmax(1).eq(targets).sum().to(at::kDouble), Loss(output, targets).to(at::kDouble)});
  }
  int64_t num_sums() const override { return 2; }

  std::vector<double> Metrics(absl::Span<const double> sums, int64_t num_rows) const override {
    return {sums[0] / static_cast<double>(num_rows)};
  }

 private:
  // With MlpTaskOptions::classes nobody has looked at the rows before.
  void CheckClasses(const at::Tensor& targets) const {
    if (!options_.classes.has_value() || targets.numel() == 0) return;
    const auto [least, greatest] = at::aminmax(targets);
    for (const int64_t target : {least.item<int64_t>(), greatest.item<int64_t>()}) {
      TORCH_CHECK_VALUE(target >= 0 && target < classes_, "a row is of class ", target, "; with classes=", classes_,
                        " they must be from 0 to ", classes_ - 1);
    }
  }

  const int64_t features_, classes_;
  const MlpTaskOptions options_;
};

// The greatest class there is. InvalidArgument if one is below 0 or not below `limit`.
absl::StatusOr<int64_t> GreatestClass(const RowSource& rows, int64_t limit) {
  int64_t greatest = 0;
  ABSL_RETURN_IF_ERROR(VisitRows(rows, 0, rows.num_rows(), [&](int64_t first, const RowBatch& batch) {
    const int64_t* const classes = batch.targets.const_data_ptr<int64_t>();
    for (int64_t i = 0; i < batch.targets.numel(); ++i) {
      greatest = std::max(greatest, classes[i]);
      if (classes[i] >= 0 && classes[i] < limit) continue;
      return absl::InvalidArgumentError(absl::StrCat(internal::Printable(rows.info().name), ": row ", first + i,
                                                     " is of class ", classes[i], "; classes must be from 0 to ",
                                                     limit - 1));
    }
    return absl::OkStatus();
  }));
  return greatest;
}

absl::StatusOr<int64_t> CountClasses(const RowSource& rows) {
  ABSL_ASSIGN_OR_RETURN(const int64_t greatest, GreatestClass(rows, kMaxLayer));
  if (greatest >= 1) return greatest + 1;
  return absl::InvalidArgumentError(absl::StrCat(internal::Printable(rows.info().name),
                                                 ": all rows are of class 0; there must be at least 2 classes"));
}

}  // namespace

absl::Status CheckMlpTaskOptions(const MlpTaskOptions& options) {
  const auto refuse = [](std::string_view name, const auto& value, std::string_view allowed) {
    return absl::InvalidArgumentError(absl::StrCat(name, "=", value, ": must be ", allowed));
  };
  for (const int64_t size : options.hidden) {
    if (size >= 1 && size <= kMaxLayer) continue;
    return refuse("hidden", absl::StrJoin(options.hidden, ","), absl::StrCat("sizes from 1 to ", kMaxLayer));
  }
  if (!(options.dropout >= 0 && options.dropout < 1)) {
    return refuse("dropout", options.dropout, "at least 0 and below 1");
  }
  const int64_t classes = options.classes.value_or(2);
  if (classes >= 2 && classes <= kMaxLayer) return absl::OkStatus();
  return refuse("classes", classes, absl::StrCat("from 2 to ", kMaxLayer));
}

absl::Span<const TaskMetric> MlpMetrics() { return kMetrics; }

absl::StatusOr<std::unique_ptr<Task>> MakeMlpTask(const RowSource& rows, const MlpTaskOptions& options) {
  ABSL_RETURN_IF_ERROR(CheckMlpTaskOptions(options));
  const RowSourceInfo& data = rows.info();
  if (!data.targets.sizes.empty() || data.targets.dtype != at::kLong) {
    return absl::InvalidArgumentError(absl::StrCat(internal::Printable(data.name), ": the targets of a row are ",
                                                   data.targets.ToString(),
                                                   "; a classifier needs one class, an int64"));
  }
  if (at::isComplexType(data.features.dtype)) {
    return absl::InvalidArgumentError(
        absl::StrCat(internal::Printable(data.name), ": the features of a row are ", data.features.ToString(),
                     "; a classifier needs real numbers, as the real and the imaginary part apart"));
  }
  const int64_t features = data.features.num_values();
  if (features < 1 || features > kMaxLayer) {
    return absl::InvalidArgumentError(absl::StrCat(internal::Printable(data.name), ": a row has ", features,
                                                   " features; there must be from 1 to ", kMaxLayer));
  }
  int64_t classes = options.classes.value_or(0);
  if (classes == 0) {
    ABSL_ASSIGN_OR_RETURN(classes, CountClasses(rows));
  }
  return std::make_unique<MlpTask>(features, classes, options);
}

}  // namespace cohort
