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
#include "ATen/core/ivalue.h"
#include "ATen/ops/from_blob.h"
#include "ATen/ops/zeros.h"
#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/status/status_macros.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "cohort/checkpoint/main_only_saver.h"
#include "cohort/checkpoint/module_state.h"
#include "cohort/checkpoint/optimizer_state.h"
#include "cohort/checkpoint/safetensors_file.h"
#include "cohort/checkpoint/state_file.h"
#include "cohort/checkpoint/torch_file.h"
#include "cohort/checkpoint/training_state.h"
#include "cohort/checkpoint/writable_file.h"
#include "cohort/models/linear.h"
#include "cohort/runtime/process_group.h"
#include "cohort/runtime/tensor_collectives.h"
#include "cohort/runtime/torch_status.h"
#include "cohort/trainers/agree_on_same.h"
#include "cohort/trainers/data/dataset.h"
#include "cohort/trainers/data/sharding.h"
#include "cohort/trainers/lr_scheduler.h"
#include "cohort/trainers/make_optimizer.h"
#include "cohort/trainers/run_settings.h"
#include "torch/optim/optimizer.h"

namespace cohort {
namespace {

constexpr double kDefaultGamma = 0.1;

// Calls LibTorch for work that waits for nobody.
template <typename Function>
auto Torch(Function function) {
  return InvokeTorch(absl::InfiniteFuture(), function);
}

at::Tensor ToFloats(const std::vector<double>& values, int64_t rows, int64_t columns, at::Device device) {
  // from_blob takes a pointer to non-const; nothing here writes through it.
  return at::from_blob(const_cast<double*>(values.data()), {rows, columns}, at::kDouble).to(device, at::kFloat);
}

double RootMeanSquare(const std::vector<double>& values) {
  double squares = 0;
  for (const double value : values) squares += value * value;
  return squares > 0 ? std::sqrt(squares / static_cast<double>(values.size())) : 1;
}

RunSettings SettingsOf(const LinearTrainerOptions& options, const Dataset& data) {
  return {.rows = data.num_rows,
          .features = data.num_features(),
          .targets = data.num_targets(),
          .data_checksum = data.checksum,
          .batch_size = std::min(options.batch_size, data.num_rows),
          .seed = absl::StrCat(options.seed),
          .optimizer = options.optimizer,
          .momentum = options.momentum.value_or(0),
          .lr_step_size = options.lr_step_size,
          .lr_gamma = options.lr_step_size > 0 ? options.lr_gamma.value_or(kDefaultGamma) : 0};
}

// The model on this rank, and the data and the sums it is trained with.
class Training {
 public:
  Training(ProcessGroup& group, const Dataset& data, const LinearTrainerOptions& options);

  // Local. Makes the model as it is before the first step, and everything else. Throws what LibTorch throws.
  absl::Status Begin(const Dataset& data);

  // Collective. Goes on from the state file that the options name.
  absl::StatusOr<ResumeReport> Resume();

  int64_t epochs_done() const { return epochs_done_; }

  // Collective. The next epoch; returns its loss.
  absl::StatusOr<double> TrainEpoch();

  // Collective. The sum of squared errors over all rows.
  absl::StatusOr<double> TotalError();

  // Collective.
  absl::StatusOr<SaveReport> SaveModel(std::string_view path);
  absl::StatusOr<SaveReport> SaveState(std::string_view path);

 private:
  // Calls `function` unless something failed before, and remembers if it fails: the next SumOverRanks or Save says so.
  template <typename Function>
  void Try(Function function) {
    if (mine_.ok()) mine_ = Torch(function);
  }

  // Whether a saved run is the one that the options describe, so far and no further. Loads the schedule: its state is
  // what else may not fit.
  absl::Status Accept(const TrainingState& state);

  StateFormat format() const { return options_.format == "pt" ? StateFormat::kTorch : StateFormat::kSafetensors; }
  torch::optim::OptimizerOptions& optimizer_options() { return optimizer_->param_groups()[0].options(); }

  // The sum of squared errors on `rows`; differentiable.
  at::Tensor SquaredError(absl::Span<const int64_t> rows);
  // Puts the gradients of my share, and its error, into `sums_`.
  void ComputeGradients(absl::Span<const int64_t> share);
  // Makes a step with the gradients in `sums_`, which are those of `num_rows` rows.
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
  const RunSettings settings_;
  MainOnlySaver saver_;
  std::shared_ptr<Linear> model_;
  std::vector<at::Tensor> parameters_;
  std::unique_ptr<torch::optim::Optimizer> optimizer_;
  OptimizerExtras optimizer_extras_;
  std::unique_ptr<StepLR> schedule_;  // null if the learning rate stays
  int64_t steps_done_ = 0, epochs_done_ = 0;
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
      settings_(SettingsOf(options, data)),
      saver_(&group) {}

absl::Status Training::Begin(const Dataset& data) {
  at::manual_seed(options_.seed);
  model_ = std::make_shared<Linear>(data.num_features(), data.num_targets());
  model_->to(device_);
  parameters_ = model_->parameters();
  ABSL_ASSIGN_OR_RETURN(optimizer_, MakeOptimizer(options_.optimizer, parameters_,
                                                  {.learning_rate = LearningRate(options_, data),
                                                   .momentum = settings_.momentum,
                                                   .weight_decay = 0.01 / RootMeanSquare(data.targets)}));
  if (settings_.lr_step_size > 0) {
    ABSL_ASSIGN_OR_RETURN(
        schedule_, StepLR::Create(*optimizer_, {.step_size = settings_.lr_step_size, .gamma = settings_.lr_gamma}));
  }
  features_ = ToFloats(data.features, data.num_rows, data.num_features(), device_);
  targets_ = ToFloats(data.targets, data.num_rows, data.num_targets(), device_);
  int64_t size = 2;
  for (const at::Tensor& parameter : parameters_) size += parameter.numel();
  sums_ = at::zeros({size}, at::TensorOptions(at::kDouble).device(device_));
  return absl::OkStatus();
}

absl::Status Training::Accept(const TrainingState& state) {
  ABSL_RETURN_IF_ERROR(settings_.CheckSavedAs(state.data));
  if (state.epoch >= options_.epochs) {
    return absl::InvalidArgumentError(absl::StrCat("has ", state.epoch, " epochs done already, and epochs=",
                                                   options_.epochs, " are to be made in all; ask for more"));
  }
  const int64_t steps_an_epoch = (settings_.rows - 1) / settings_.batch_size + 1;
  if (state.step != state.epoch * steps_an_epoch) {
    return absl::InvalidArgumentError(absl::StrCat("was saved within an epoch, at step ", state.step, ": ", state.epoch,
                                                   " epochs are ", state.epoch * steps_an_epoch,
                                                   " steps; a run goes on from the end of an epoch"));
  }
  if (schedule_ != nullptr) return schedule_->Load(state.lr_scheduler);
  if (state.lr_scheduler.isNone()) return absl::OkStatus();
  return absl::InvalidArgumentError("has an \"lr_scheduler\"; with lr_step_size=0 it must be None");
}

absl::StatusOr<ResumeReport> Training::Resume() {
  TrainingStateOptions loading;
  loading.accept = [this](const TrainingState& state) { return Accept(state); };
  ABSL_ASSIGN_OR_RETURN(TrainingState state,
                        LoadTrainingState(group_, *options_.resume, *model_, *optimizer_, loading));
  steps_done_ = state.step;
  epochs_done_ = state.epoch;
  optimizer_extras_ = std::move(state.optimizer_extras);
  ResumeReport report{.epochs = epochs_done_, .step = steps_done_};
  report.saved_learning_rate = optimizer_options().get_lr();
  report.learning_rate = options_.learning_rate.value_or(report.saved_learning_rate);
  optimizer_options().set_lr(report.learning_rate);
  return report;
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
  ++steps_done_;
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
                                                 ": learning_rate=", optimizer_->param_groups()[0].options().get_lr(),
                                                 " is too high for this data"));
}

absl::StatusOr<double> Training::TrainEpoch() {
  const int64_t epoch = epochs_done_;
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
  ++epochs_done_;
  if (schedule_ != nullptr) {
    ABSL_RETURN_IF_ERROR(schedule_->Step());
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

absl::StatusOr<SaveReport> Training::SaveModel(std::string_view path) {
  const NamedTensors state = ModuleState(*model_);
  const auto write = [&](WritableFile& file) -> absl::Status {
    if (format() == StateFormat::kTorch) return WriteTorchFile(state, file);
    c10::impl::GenericDict dict(c10::StringType::get(), c10::TensorType::get());
    for (const auto& [name, tensor] : state) dict.insert(name, tensor);
    return WriteSafetensorsFile(c10::IValue(std::move(dict)), {}, file);
  };
  return saver_.Save(path, write, mine_);
}

absl::StatusOr<SaveReport> Training::SaveState(std::string_view path) {
  const TrainingState state{.step = steps_done_,
                            .epoch = epochs_done_,
                            .lr_scheduler = schedule_ != nullptr ? schedule_->State() : c10::IValue(),
                            .data = settings_.State(),
                            .optimizer_extras = optimizer_extras_};
  return SaveTrainingState(group_, saver_, path, *model_, *optimizer_, state, {.format = format()}, mine_);
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
                      " format=", options.format, " resume=", options.resume.value_or(""),
                      " optimizer=", options.optimizer, " learning_rate=", LearningRate(options, data),
                      options.learning_rate.has_value() ? "" : " (default)", " momentum=", options.momentum.value_or(0),
                      " lr_step_size=", options.lr_step_size, " lr_gamma=", options.lr_gamma.value_or(kDefaultGamma),
                      " seed=", options.seed);
}

bool IsFactor(double value) { return value > 0 && value <= std::numeric_limits<float>::max(); }

absl::Status CheckOptimizerOptions(const LinearTrainerOptions& options) {
  constexpr std::string_view kPositive = "more than 0, and finite as a float";
  constexpr std::string_view kNames[] = {"sgd", "adam", "adamw", "rmsprop", "adagrad"};
  if (!absl::c_linear_search(kNames, options.optimizer)) {
    return OutOfRange("optimizer", options.optimizer, "sgd, adam, adamw, rmsprop or adagrad");
  }
  if (options.momentum.has_value()) {
    const double momentum = *options.momentum;
    if (options.optimizer != "sgd" && options.optimizer != "rmsprop") {
      return absl::InvalidArgumentError(
          absl::StrCat("momentum=", momentum, ": is for sgd and rmsprop, not for ", options.optimizer));
    }
    if (!(momentum >= 0 && momentum < 1)) return OutOfRange("momentum", momentum, "at least 0 and below 1");
  }
  const double rate = options.learning_rate.value_or(1), gamma = options.lr_gamma.value_or(1);
  if (!IsFactor(rate)) return OutOfRange("learning_rate", rate, kPositive);
  if (options.lr_step_size < 0) {
    return OutOfRange("lr_step_size", options.lr_step_size, "at least 1, or 0 for a rate that stays");
  }
  if (!IsFactor(gamma)) return OutOfRange("lr_gamma", gamma, kPositive);
  if (options.lr_gamma.has_value() && options.lr_step_size == 0) {
    return absl::InvalidArgumentError(absl::StrCat("lr_gamma=", gamma, ": means nothing without lr_step_size"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckLinearTrainerOptions(const LinearTrainerOptions& options) {
  constexpr int64_t kMost = 1'000'000'000;
  if (options.epochs < 1 || options.epochs > kMost) return OutOfRange("epochs", options.epochs, "from 1 to 1000000000");
  if (options.save_every < 1) return OutOfRange("save_every", options.save_every, "at least 1");
  if (options.checkpoint_dir.empty()) return OutOfRange("checkpoint_dir", "", "the path of a directory");
  if (options.format != "pt" && options.format != "safetensors") {
    return OutOfRange("format", options.format, "pt or safetensors");
  }
  if (options.resume == "") return OutOfRange("resume", "", "the path of a state file");
  if (options.batch_size < 1) return OutOfRange("batch_size", options.batch_size, "at least 1");
  return CheckOptimizerOptions(options);
}

double LearningRate(const LinearTrainerOptions& options, const Dataset& data) {
  if (options.learning_rate.has_value()) return *options.learning_rate;
  const double fresh = 1 - options.momentum.value_or(0);
  if (options.optimizer == "sgd") return 0.5 * fresh / static_cast<double>(data.num_features() + 1);
  const double scale = RootMeanSquare(data.targets);
  if (options.optimizer == "rmsprop") return 0.02 * fresh * scale;
  return (options.optimizer == "adagrad" ? 0.5 : 0.02) * scale;
}

absl::StatusOr<Dataset> AgreeOnDataset(ProcessGroup& group, absl::StatusOr<Dataset> mine) {
  ABSL_RETURN_IF_ERROR(AgreeOnSame(group, "data", Describe(mine, group.world_size())));
  mine->checksum = Checksum(*mine);
  StandardizeFeatures(*mine);
  return mine;
}

absl::StatusOr<EpochReport> TrainLinear(ProcessGroup& group, const Dataset& data, const LinearTrainerOptions& options,
                                        const LinearTrainerObserver& observer) {
  const absl::Status valid = CheckLinearTrainerOptions(options);
  ABSL_RETURN_IF_ERROR(
      AgreeOnSame(group, "training", valid.ok() ? absl::StatusOr<std::string>(Describe(options, data)) : valid));
  Training training(group, data, options);
  absl::Status begun;
  const absl::Status thrown = Torch([&] { begun = training.Begin(data); });
  ABSL_RETURN_IF_ERROR(group.Agree("the model is made", thrown.ok() ? begun : thrown));
  if (options.resume.has_value()) {
    ABSL_ASSIGN_OR_RETURN(const ResumeReport resumed, training.Resume());
    if (observer.on_resume) observer.on_resume(resumed);
  }

  const double variation = TargetVariation(data);
  EpochReport report;
  while (training.epochs_done() < options.epochs) {
    report.epoch = training.epochs_done();
    ABSL_ASSIGN_OR_RETURN(report.loss, training.TrainEpoch());
    ABSL_ASSIGN_OR_RETURN(const double error, training.TotalError());
    report.r2 = variation > 0 ? 1 - error / variation : std::numeric_limits<double>::quiet_NaN();
    if (observer.on_epoch) observer.on_epoch(report);
    if (report.epoch % options.save_every != 0 && report.epoch != options.epochs - 1) continue;
    const bool is_pt = options.format == "pt";
    ABSL_ASSIGN_OR_RETURN(const SaveReport model,
                          training.SaveModel(absl::StrCat(options.checkpoint_dir, "/model_epoch_", report.epoch,
                                                          is_pt ? ".pth" : ".safetensors")));
    if (observer.on_save) observer.on_save(model);
    ABSL_ASSIGN_OR_RETURN(const SaveReport state,
                          training.SaveState(absl::StrCat(options.checkpoint_dir, "/state_epoch_", report.epoch,
                                                          is_pt ? ".pt" : ".safetensors")));
    if (observer.on_save) observer.on_save(state);
  }
  return report;
}

}  // namespace cohort
