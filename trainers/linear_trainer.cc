// A step, on every rank:
//   1  Take this rank's share of the batch; compute the gradients of its *sum* of squared errors. Not of its mean:
//      shares differ in size, and the mean of means is not the mean.
//   2  One all-reduce adds up, over the ranks: gradients, squared error, and the number of ranks that failed. In
//      double, so that the result hardly depends on how many ranks share the work.
//   3  Divide the gradients by the number of values in the batch, and let the optimizer step. All ranks have the same
//      gradients, so they go on having the same parameters.
// A rank that fails in 1 or 3 still comes to the next 2, and says so there: if it left instead, its error would be the
// others' wait. All then meet in Agree, which gives every rank the error itself.

#include "cohort/trainers/linear_trainer.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ATen/Context.h"
#include "ATen/core/Tensor.h"
#include "ATen/core/grad_mode.h"
#include "ATen/ops/from_blob.h"
#include "ATen/ops/zeros.h"
#include "absl/status/status.h"
#include "absl/status/status_macros.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "cohort/checkpoint/main_only_saver.h"
#include "cohort/checkpoint/module_state.h"
#include "cohort/checkpoint/torch_file.h"
#include "cohort/models/linear.h"
#include "cohort/runtime/process_group.h"
#include "cohort/runtime/tensor_collectives.h"
#include "cohort/runtime/torch_status.h"
#include "cohort/trainers/agree_on_same.h"
#include "cohort/trainers/data/dataset.h"
#include "cohort/trainers/data/sharding.h"
#include "torch/optim/adam.h"
#include "torch/optim/sgd.h"

namespace cohort {
namespace {

// Calls LibTorch for work that waits for nobody.
template <typename Function>
auto Torch(Function function) {
  return InvokeTorch(absl::InfiniteFuture(), function);
}

at::Tensor ToFloats(const std::vector<double>& values, int64_t rows, int64_t columns, at::Device device) {
  // from_blob takes a pointer to non-const; nothing here writes through it.
  return at::from_blob(const_cast<double*>(values.data()), {rows, columns}, at::kDouble).to(device, at::kFloat);
}

// The model on this rank, and the data and the sums it is trained with.
class Training {
 public:
  // Throws what LibTorch throws.
  Training(ProcessGroup& group, const Dataset& data, const LinearTrainerOptions& options);

  // Collective. One epoch; returns its loss.
  absl::StatusOr<double> TrainEpoch(int64_t epoch);

  // Collective. The sum of squared errors over all rows.
  absl::StatusOr<double> TotalError();

  // Collective.
  absl::StatusOr<SaveReport> Save(std::string_view path);

 private:
  // Calls `function` unless something failed before, and remembers if it fails: the next SumOverRanks or Save says so.
  template <typename Function>
  void Try(Function function) {
    if (mine_.ok()) mine_ = Torch(function);
  }

  // The sum of squared errors on `rows`; differentiable.
  at::Tensor SquaredError(absl::Span<const int64_t> rows);
  // Puts the gradients of my share, and its error, into `sums_`.
  void ComputeGradients(absl::Span<const int64_t> share);
  // Steps with the gradients in `sums_`, which are those of `num_rows` rows.
  void ApplyGradients(int64_t num_rows);
  // Collective. Adds up `sums_` over the ranks, unless one of them has failed.
  absl::Status SumOverRanks(std::string_view what);

  // An error unless the sum over all ranks, `total_error`, is finite. As all have the same sum, all get the same
  // answer.
  absl::Status CheckFinite(double total_error, std::string_view where) const;

  // The places in `sums_` behind the gradients.
  at::Tensor error() { return sums_[sums_.numel() - 2]; }
  at::Tensor failures() { return sums_[sums_.numel() - 1]; }

  ProcessGroup& group_;
  const LinearTrainerOptions& options_;
  const at::Device device_;
  const int64_t num_rows_;
  const int64_t num_targets_;
  const double learning_rate_;
  MainOnlySaver saver_;
  std::shared_ptr<Linear> model_;
  std::vector<at::Tensor> parameters_;
  std::unique_ptr<torch::optim::Optimizer> optimizer_;
  at::Tensor features_, targets_;
  at::Tensor sums_;  // double: gradients of all parameters, squared error, failed ranks
  absl::Status mine_;
};

Training::Training(ProcessGroup& group, const Dataset& data, const LinearTrainerOptions& options)
    : group_(group),
      options_(options),
      device_(TensorDevice(group)),
      num_rows_(data.num_rows),
      num_targets_(data.num_targets()),
      learning_rate_(LearningRate(options, data)),
      saver_(&group) {
  at::manual_seed(options.seed);
  model_ = std::make_shared<Linear>(data.num_features(), data.num_targets());
  model_->to(device_);
  parameters_ = model_->parameters();
  if (options.optimizer == "adam") {
    optimizer_ = std::make_unique<torch::optim::Adam>(parameters_, torch::optim::AdamOptions(learning_rate_));
  } else {
    optimizer_ = std::make_unique<torch::optim::SGD>(parameters_, torch::optim::SGDOptions(learning_rate_));
  }
  features_ = ToFloats(data.features, data.num_rows, data.num_features(), device_);
  targets_ = ToFloats(data.targets, data.num_rows, data.num_targets(), device_);
  int64_t size = 2;
  for (const at::Tensor& parameter : parameters_) size += parameter.numel();
  sums_ = at::zeros({size}, at::TensorOptions(at::kDouble).device(device_));
}

at::Tensor Training::SquaredError(absl::Span<const int64_t> rows) {
  const at::Tensor index =
      at::from_blob(const_cast<int64_t*>(rows.data()), {static_cast<int64_t>(rows.size())}, at::kLong).to(device_);
  const at::Tensor error = model_->forward(features_.index_select(0, index)) - targets_.index_select(0, index);
  return error.to(at::kDouble).square().sum();
}

void Training::ComputeGradients(absl::Span<const int64_t> share) {
  sums_.zero_();
  if (share.empty()) return;
  optimizer_->zero_grad();
  const at::Tensor squared_error = SquaredError(share);
  squared_error.backward();
  int64_t begin = 0;
  for (const at::Tensor& parameter : parameters_) {
    sums_.narrow(0, begin, parameter.numel()).copy_(parameter.grad().flatten());
    begin += parameter.numel();
  }
  error().copy_(squared_error.detach());
}

void Training::ApplyGradients(int64_t num_rows) {
  int64_t begin = 0;
  for (at::Tensor& parameter : parameters_) {
    const at::Tensor mean = sums_.narrow(0, begin, parameter.numel()) / static_cast<double>(num_rows * num_targets_);
    parameter.mutable_grad() = mean.view_as(parameter).to(parameter.scalar_type());
    begin += parameter.numel();
  }
  optimizer_->step();
}

absl::Status Training::SumOverRanks(std::string_view what) {
  // If a rank has failed nobody uses the sums: only the count of failures must be right.
  ABSL_RETURN_IF_ERROR(Torch([&] { failures().fill_(mine_.ok() ? 0 : 1); }));
  ABSL_RETURN_IF_ERROR(AllReduceSum(group_, absl::MakeConstSpan(&sums_, 1)));
  ABSL_ASSIGN_OR_RETURN(const double failed, Torch([&] { return failures().item<double>(); }));
  return failed == 0 ? absl::OkStatus() : group_.Agree(what, mine_);
}

absl::Status Training::CheckFinite(double total_error, std::string_view where) const {
  if (std::isfinite(total_error)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("the error is no longer a finite number in ", where,
                                                 ": learning_rate=", learning_rate_, " is too high for this data"));
}

absl::StatusOr<double> Training::TrainEpoch(int64_t epoch) {
  const std::vector<int64_t> order = EpochOrder(num_rows_, options_.seed, epoch);
  double total_error = 0;
  for (int64_t begin = 0; begin < num_rows_; begin += options_.batch_size) {
    const int64_t size = std::min(options_.batch_size, num_rows_ - begin);
    const absl::Span<const int64_t> batch = absl::MakeConstSpan(order).subspan(begin, size);
    Try([&] { ComputeGradients(ShareOf(batch, group_.rank(), group_.world_size())); });
    const std::string step = absl::StrCat("epoch ", epoch, ", row ", begin);
    ABSL_RETURN_IF_ERROR(SumOverRanks(step));
    Try([&] {
      total_error += error().item<double>();
      ApplyGradients(size);
    });
    ABSL_RETURN_IF_ERROR(CheckFinite(total_error, step));
  }
  return total_error / static_cast<double>(num_rows_ * num_targets_);
}

absl::StatusOr<double> Training::TotalError() {
  Try([&] {
    const at::NoGradGuard no_grad;
    std::vector<int64_t> rows(num_rows_);
    std::iota(rows.begin(), rows.end(), 0);
    const absl::Span<const int64_t> share = ShareOf(rows, group_.rank(), group_.world_size());
    sums_.zero_();
    error().copy_(SquaredError(share));
  });
  ABSL_RETURN_IF_ERROR(SumOverRanks("evaluation"));
  ABSL_ASSIGN_OR_RETURN(const double total_error, Torch([&] { return error().item<double>(); }));
  ABSL_RETURN_IF_ERROR(CheckFinite(total_error, "evaluation"));
  return total_error;
}

absl::StatusOr<SaveReport> Training::Save(std::string_view path) {
  const auto write = [&](WritableFile& file) { return WriteTorchFile(ModuleState(*model_), file); };
  return saver_.Save(path, write, mine_);
}

absl::Status OutOfRange(std::string_view option, const auto& value, std::string_view allowed) {
  return absl::InvalidArgumentError(absl::StrCat(option, "=", value, ": must be ", allowed));
}

// What all ranks must have in common: of the data...
absl::StatusOr<std::string> Describe(const absl::StatusOr<Dataset>& data, int num_ranks) {
  ABSL_RETURN_IF_ERROR(data.status());
  if (data->num_rows < num_ranks) {
    return absl::InvalidArgumentError(absl::StrCat(data->source, ": ", data->num_rows, " rows are too few for ",
                                                   num_ranks, " ranks; there must be at least one for each"));
  }
  return absl::StrCat(data->num_rows, " rows of ", data->num_features(), " features and ", data->num_targets(),
                      " targets with checksum ", absl::Hex(Checksum(*data), absl::kZeroPad8), ", from ", data->source);
}

// ... and of the options.
std::string Describe(const LinearTrainerOptions& options, const Dataset& data) {
  return absl::StrCat("epochs=", options.epochs, " save_every=", options.save_every, " batch_size=", options.batch_size,
                      " optimizer=", options.optimizer, " learning_rate=", LearningRate(options, data),
                      " seed=", options.seed);
}

}  // namespace

absl::Status CheckLinearTrainerOptions(const LinearTrainerOptions& options) {
  constexpr int64_t kMost = 1'000'000'000;
  if (options.epochs < 1 || options.epochs > kMost) return OutOfRange("epochs", options.epochs, "from 1 to 1000000000");
  if (options.save_every < 1) return OutOfRange("save_every", options.save_every, "at least 1");
  if (options.checkpoint_dir.empty()) return OutOfRange("checkpoint_dir", "", "the path of a directory");
  if (options.batch_size < 1) return OutOfRange("batch_size", options.batch_size, "at least 1");
  if (options.optimizer != "sgd" && options.optimizer != "adam")
    return OutOfRange("optimizer", options.optimizer, "sgd or adam");
  const double rate = options.learning_rate.value_or(1);
  if (!(rate > 0 && rate <= std::numeric_limits<float>::max())) {
    return OutOfRange("learning_rate", rate, "more than 0, and finite as a float");
  }
  return absl::OkStatus();
}

double LearningRate(const LinearTrainerOptions& options, const Dataset& data) {
  if (options.learning_rate.has_value()) return *options.learning_rate;
  if (options.optimizer == "sgd") return 0.5 / static_cast<double>(data.num_features() + 1);
  double squares = 0;
  for (const double target : data.targets) squares += target * target;
  return squares > 0 ? 0.02 * std::sqrt(squares / static_cast<double>(data.targets.size())) : 0.02;
}

absl::StatusOr<Dataset> AgreeOnDataset(ProcessGroup& group, absl::StatusOr<Dataset> mine) {
  ABSL_RETURN_IF_ERROR(AgreeOnSame(group, "data", Describe(mine, group.world_size())));
  StandardizeFeatures(*mine);
  return mine;
}

absl::StatusOr<EpochReport> TrainLinear(ProcessGroup& group, const Dataset& data, const LinearTrainerOptions& options,
                                        const LinearTrainerObserver& observer) {
  const absl::Status valid = CheckLinearTrainerOptions(options);
  ABSL_RETURN_IF_ERROR(
      AgreeOnSame(group, "training", valid.ok() ? absl::StatusOr<std::string>(Describe(options, data)) : valid));
  std::optional<Training> training;
  ABSL_RETURN_IF_ERROR(group.Agree("the model is made", Torch([&] { training.emplace(group, data, options); })));

  const double variation = TargetVariation(data);
  EpochReport report;
  for (int64_t epoch = 0; epoch < options.epochs; ++epoch) {
    report.epoch = epoch;
    ABSL_ASSIGN_OR_RETURN(report.loss, training->TrainEpoch(epoch));
    ABSL_ASSIGN_OR_RETURN(const double error, training->TotalError());
    report.r2 = variation > 0 ? 1 - error / variation : std::numeric_limits<double>::quiet_NaN();
    if (observer.on_epoch) observer.on_epoch(report);
    if (epoch % options.save_every != 0 && epoch != options.epochs - 1) continue;
    ABSL_ASSIGN_OR_RETURN(const SaveReport saved,
                          training->Save(absl::StrCat(options.checkpoint_dir, "/model_epoch_", epoch, ".pth")));
    if (observer.on_save) observer.on_save(saved);
  }
  return report;
}

}  // namespace cohort
