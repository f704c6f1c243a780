// A step, on every rank:
//   1  Take this rank's share of the batch; compute the gradients of its *sum* of squared errors. Not of its mean:
//      shares differ in size, and the mean of means is not the mean.
//   2  One all-reduce adds up, over the ranks: gradients, squared error, and the number of ranks that failed. In
//      double, so that the result hardly depends on how many ranks share the work.
//   3  Divide the gradients by the number of values in the batch, and let the optimizer step. All ranks have the same
//      gradients, so they go on having the same parameters.
// A rank that fails in 1 or 3 still comes to the next 2, and says so there: if it left instead, its error would be the
// others' wait. All then meet in Agree, which gives every rank the error itself.

#include "cohort/trainers/linear_training.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>
#include <numeric>
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
#include "absl/status/status.h"
#include "absl/status/status_macros.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "cohort/checkpoint/module_state.h"
#include "cohort/checkpoint/safetensors_file.h"
#include "cohort/checkpoint/state_file.h"
#include "cohort/checkpoint/torch_file.h"
#include "cohort/checkpoint/training_state.h"
#include "cohort/checkpoint/writable_file.h"
#include "cohort/models/linear.h"
#include "cohort/runtime/process_group.h"
#include "cohort/runtime/tensor_collectives.h"
#include "cohort/runtime/torch_status.h"
#include "cohort/trainers/data/dataset.h"
#include "cohort/trainers/data/sharding.h"
#include "cohort/trainers/lr_scheduler.h"
#include "cohort/trainers/make_optimizer.h"
#include "cohort/trainers/run_settings.h"
#include "torch/optim/optimizer.h"

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
          .lr_gamma = options.lr_step_size > 0 ? Gamma(options) : 0};
}

std::string Shown(double value) {
  char digits[32];
  return std::string(digits, std::to_chars(digits, digits + sizeof(digits), value).ptr);
}

}  // namespace

template <typename Function>
void LinearTraining::Try(Function function) {
  if (mine_.ok()) mine_ = Torch(function);
}

LinearTraining::LinearTraining(ProcessGroup& group, const Dataset& data, const LinearTrainerOptions& options)
    : group_(group),
      data_(data),
      options_(options),
      device_(TensorDevice(group)),
      settings_(SettingsOf(options, data)) {}

absl::Status LinearTraining::Begin() {
  absl::Status made;
  const absl::Status thrown = Torch([&] { made = MakeAll(); });
  return group_.Agree("the model is made", thrown.ok() ? made : thrown);
}

absl::Status LinearTraining::MakeAll() {
  at::manual_seed(options_.seed);
  model_ = std::make_shared<Linear>(data_.num_features(), data_.num_targets());
  model_->to(device_);
  parameters_ = model_->parameters();
  ABSL_ASSIGN_OR_RETURN(optimizer_, MakeOptimizer(options_.optimizer, parameters_,
                                                  {.learning_rate = LearningRate(options_, data_),
                                                   .momentum = settings_.momentum,
                                                   .weight_decay = WeightDecay(data_)}));
  if (settings_.lr_step_size > 0) {
    ABSL_ASSIGN_OR_RETURN(
        schedule_, StepLR::Create(*optimizer_, {.step_size = settings_.lr_step_size, .gamma = settings_.lr_gamma}));
  }
  features_ = ToFloats(data_.features, data_.num_rows, data_.num_features(), device_);
  targets_ = ToFloats(data_.targets, data_.num_rows, data_.num_targets(), device_);
  int64_t size = 2;
  for (const at::Tensor& parameter : parameters_) size += parameter.numel();
  sums_ = at::zeros({size}, at::TensorOptions(at::kDouble).device(device_));
  return absl::OkStatus();
}

// ---- Going on ----

absl::StatusOr<std::unique_ptr<StepLR>> LinearTraining::ScheduleFrom(const TrainingState& state,
                                                                     const RunSettings& saved) const {
  if (saved.lr_step_size == 0 && !state.lr_scheduler.isNone()) {
    return absl::InvalidArgumentError("has an \"lr_scheduler\"; with lr_step_size=0 it must be None");
  }
  const bool is_same = saved.lr_step_size == settings_.lr_step_size && saved.lr_gamma == settings_.lr_gamma;
  std::unique_ptr<StepLR> schedule;
  if (saved.lr_step_size > 0) {
    ABSL_ASSIGN_OR_RETURN(schedule, StepLR::Create(*optimizer_, {.step_size = saved.lr_step_size}));
    ABSL_RETURN_IF_ERROR(schedule->Load(state.lr_scheduler));
    if (is_same) return schedule;
  }
  if (settings_.lr_step_size == 0) return nullptr;
  // Epochs are counted from the beginning of the run, whatever schedule it had then.
  if (schedule == nullptr) {
    ABSL_ASSIGN_OR_RETURN(schedule, StepLR::Create(*optimizer_, {.step_size = settings_.lr_step_size}));
  }
  const c10::IValue changed = schedule->State();
  c10::impl::GenericDict dict = changed.toGenericDict();
  dict.insert_or_assign("step_size", settings_.lr_step_size);
  dict.insert_or_assign("gamma", settings_.lr_gamma);
  dict.insert_or_assign("last_epoch", state.epoch);
  dict.insert_or_assign("_step_count", state.epoch + 1);
  ABSL_RETURN_IF_ERROR(schedule->Load(changed));
  return schedule;
}

absl::StatusOr<LinearTraining::Found> LinearTraining::Examine(const TrainingState& state) const {
  Found found;
  ABSL_ASSIGN_OR_RETURN(found.run, ReadRunState(state.data));
  ABSL_RETURN_IF_ERROR(CheckCanGoOn(found.run, settings_));
  ABSL_ASSIGN_OR_RETURN(found.schedule, ScheduleFrom(state, found.run.settings));
  return found;
}

absl::StatusOr<std::vector<std::string>> LinearTraining::Load(std::string_view path) {
  Found found;
  TrainingStateOptions loading;
  loading.accept = [&](const TrainingState& state) -> absl::Status {
    ABSL_ASSIGN_OR_RETURN(found, Examine(state));
    return absl::OkStatus();
  };
  ABSL_ASSIGN_OR_RETURN(TrainingState state, LoadTrainingState(group_, path, *model_, *optimizer_, loading));
  steps_done_ = state.step;
  epochs_done_ = state.epoch;
  position_ = found.run.position;
  order_.reset();
  optimizer_extras_ = std::move(state.optimizer_extras);
  schedule_ = std::move(found.schedule);

  std::vector<std::string> changes;
  for (const SettingChange& change : ChangesOf(found.run.settings, settings_)) {
    changes.push_back(absl::StrCat(change.name, " ", change.now, ", was ", change.saved));
    if (change.name == "momentum") SetMomentum(*optimizer_, settings_.momentum);
  }
  if (const double saved = learning_rate(); options_.learning_rate.value_or(saved) != saved) {
    optimizer_->param_groups()[0].options().set_lr(*options_.learning_rate);
    changes.push_back(absl::StrCat("learning_rate ", Shown(*options_.learning_rate), ", was ", Shown(saved)));
  }
  return changes;
}

// ---- Training ----

at::Tensor LinearTraining::SquaredError(absl::Span<const int64_t> rows) {
  const at::Tensor index =
      at::from_blob(const_cast<int64_t*>(rows.data()), {static_cast<int64_t>(rows.size())}, at::kLong).to(device_);
  const at::Tensor error = model_->forward(features_.index_select(0, index)) - targets_.index_select(0, index);
  return error.to(at::kDouble).square().sum();
}

void LinearTraining::ComputeGradients(absl::Span<const int64_t> share) {
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

void LinearTraining::ApplyGradients(int64_t num_rows) {
  const double num_values = static_cast<double>(num_rows * data_.num_targets());
  int64_t begin = 0;
  for (at::Tensor& parameter : parameters_) {
    const at::Tensor mean = sums_.narrow(0, begin, parameter.numel()) / num_values;
    parameter.mutable_grad() = mean.view_as(parameter).to(parameter.scalar_type());
    begin += parameter.numel();
  }
  optimizer_->step();
}

absl::Status LinearTraining::SumOverRanks(std::string_view what) {
  // If a rank has failed nobody uses the sums: only the count of failures must be right.
  ABSL_RETURN_IF_ERROR(Torch([&] { failures().fill_(mine_.ok() ? 0 : 1); }));
  ABSL_RETURN_IF_ERROR(AllReduceSum(group_, absl::MakeConstSpan(&sums_, 1)));
  ABSL_ASSIGN_OR_RETURN(const double failed, Torch([&] { return failures().item<double>(); }));
  return failed == 0 ? absl::OkStatus() : group_.Agree(what, mine_);
}

absl::Status LinearTraining::CheckFinite(double total_error, std::string_view where) const {
  if (std::isfinite(total_error)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("the error is no longer a finite number in ", where,
                                                 ": learning_rate=", learning_rate(), " is too high for this data"));
}

absl::Status LinearTraining::Step() {
  if (!order_.has_value()) order_ = EpochOrder(data_.num_rows, options_.seed, epochs_done_);
  const int64_t begin = position_.rows_done, size = std::min(options_.batch_size, data_.num_rows - begin);
  const absl::Span<const int64_t> batch = absl::MakeConstSpan(*order_).subspan(begin, size);
  Try([&] { ComputeGradients(ShareOf(batch, group_.rank(), group_.world_size())); });
  const std::string step = absl::StrCat("epoch ", epochs_done_, ", row ", begin);
  ABSL_RETURN_IF_ERROR(SumOverRanks(step));
  Try([&] {
    position_.squared_error += error().item<double>();
    ApplyGradients(size);
  });
  position_.rows_done += size;
  ++steps_done_;
  return CheckFinite(position_.squared_error, step);
}

absl::StatusOr<double> LinearTraining::EndEpoch() {
  const double loss = position_.squared_error / static_cast<double>(data_.num_rows * data_.num_targets());
  ++epochs_done_;
  position_ = {};
  order_.reset();
  if (schedule_ != nullptr) {
    ABSL_RETURN_IF_ERROR(schedule_->Step());
  }
  return loss;
}

absl::StatusOr<double> LinearTraining::TotalError() {
  Try([&] {
    const at::NoGradGuard no_grad;
    std::vector<int64_t> rows(data_.num_rows);
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

// ---- Saving ----

absl::Status LinearTraining::CheckLastStep() { return group_.Agree(absl::StrCat("step ", steps_done_), mine_); }

absl::StatusOr<std::function<absl::Status(WritableFile& file)>> LinearTraining::GatherState(std::string_view name) {
  const TrainingState state{.step = steps_done_,
                            .epoch = epochs_done_,
                            .lr_scheduler = schedule_ != nullptr ? schedule_->State() : c10::IValue(),
                            .data = RunState({.settings = settings_, .position = position_}),
                            .optimizer_extras = optimizer_extras_};
  return GatherTrainingState(group_, name, *model_, *optimizer_, state, {.format = format()}, mine_);
}

absl::Status LinearTraining::WriteModel(WritableFile& file) const {
  const NamedTensors state = ModuleState(*model_);
  if (format() == StateFormat::kTorch) return WriteTorchFile(state, file);
  c10::impl::GenericDict dict(c10::StringType::get(), c10::TensorType::get());
  for (const auto& [name, tensor] : state) dict.insert(name, tensor);
  return WriteSafetensorsFile(c10::IValue(std::move(dict)), {}, file);
}

}  // namespace cohort
