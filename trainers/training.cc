// A step, on every rank:
//   1  Take this rank's share of the step's rows from the loader.
//   2  Work it off in parts. The loss of a part is the *sum* of its rows' losses, not their mean (shares differ in
//      size, and the mean of means is not the mean), times the number of ranks, over the number of the step's rows on
//      all ranks: so that the mean over the ranks, which DistributedDataParallel makes, is the gradient of the mean
//      over all rows. Only the last part, which may be of no rows, is averaged, together with what the others have
//      added.
//   3  All ranks have the same gradients. The optimizer steps, and all ranks go on having the same parameters.
// Nothing else travels. What is reported is added up by each rank for itself, and over the ranks when the epoch is
// over. In a checkpoint within an epoch every rank's own sum is saved, and not their sum: adding up in another order
// rounds otherwise, and whether a run was interrupted must not be seen in its numbers.
//
// A rank that fails in 1 or 3, or whose loss is not finite, tells the others with ProcessGroup::Abort, since it does
// not come to their next collective.

#include "cohort/trainers/training.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <functional>
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
#include "ATen/ops/isfinite.h"
#include "ATen/ops/zeros.h"
#include "absl/algorithm/container.h"
#include "absl/cleanup/cleanup.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/status_macros.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "cohort/checkpoint/module_state.h"
#include "cohort/checkpoint/safetensors_file.h"
#include "cohort/checkpoint/state_file.h"
#include "cohort/checkpoint/torch_file.h"
#include "cohort/checkpoint/training_state.h"
#include "cohort/checkpoint/writable_file.h"
#include "cohort/runtime/process_group.h"
#include "cohort/runtime/tensor_collectives.h"
#include "cohort/runtime/torch_status.h"
#include "cohort/trainers/data/batch_loader.h"
#include "cohort/trainers/data/distributed_sampler.h"
#include "cohort/trainers/data/row_source.h"
#include "cohort/trainers/data/row_subset.h"
#include "cohort/trainers/lr_scheduler.h"
#include "cohort/trainers/make_optimizer.h"
#include "cohort/trainers/run_schedule.h"
#include "cohort/trainers/run_settings.h"
#include "cohort/trainers/split_rows.h"
#include "cohort/trainers/task.h"
#include "cohort/trainers/trained_model.h"
#include "torch/nn/utils/clip_grad.h"
#include "torch/optim/optimizer.h"

namespace cohort {
namespace {

static_assert(kMaxTrainerPrefetch == kMaxPrefetch);

RunSettings SettingsOf(const TrainerOptions& options, const Task& task, const RowSourceInfo& data) {
  const std::string own = task.settings();
  return {.rows = data.num_rows,
          .features = data.features.num_values(),
          .targets = data.targets.num_values(),
          .data_checksum = data.checksum,
          .validation = options.validation,
          .task = absl::StrCat(task.model_name(), own.empty() ? "" : " ", own),
          .batch_size = std::min(options.batch_size, data.num_rows),
          .accumulate = options.accumulate,
          .clip_grad_norm = options.clip_grad_norm.value_or(0),
          .seed = absl::StrCat(options.seed),
          .optimizer = options.optimizer,
          .momentum = options.momentum.value_or(0),
          .lr_step_size = options.lr_step_size,
          .lr_gamma = options.lr_step_size > 0 ? Gamma(options) : 0,
          .lr_cosine_epochs = options.lr_cosine_epochs,
          .lr_warmup_epochs = options.lr_warmup_epochs};
}

// What LibTorch's optimizers multiply by at most a million stays a float.
constexpr double kLargeRate = 1e30;

std::string Shown(double value) {
  char digits[32];
  return std::string(digits, std::to_chars(digits, digits + sizeof(digits), value).ptr);
}

// What is wrong with the data themselves, if that is why a loss is not finite. `row_of` says which row of the data the i-th is.
absl::Status CheckFinite(const RowBatch& rows, absl::FunctionRef<int64_t(int64_t i)> row_of) {
  return InvokeTorch([&] {
    for (const auto& [name, values] : {std::pair("features", &rows.features), std::pair("targets", &rows.targets)}) {
      if (at::isfinite(*values).all().item<bool>()) continue;
      for (int64_t i = 0; i < values->size(0); ++i) {
        if (at::isfinite(values->select(0, i)).all().item<bool>()) continue;
        return absl::InvalidArgumentError(absl::StrCat("the ", name, " of row ", row_of(i), " are not finite numbers"));
      }
    }
    return absl::OkStatus();
  });
}

absl::StatusOr<std::vector<double>> Numbers(const at::Tensor& tensor) {
  return InvokeTorch([&] {
    const at::Tensor on_cpu = tensor.cpu();
    const double* const numbers = on_cpu.const_data_ptr<double>();
    return std::vector<double>(numbers, numbers + on_cpu.numel());
  });
}

}  // namespace

uint64_t SeedOfRank(uint64_t seed, int rank) {
  uint64_t mixed = seed + 0x9e3779b97f4a7c15;
  mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9;
  mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111eb;
  mixed ^= mixed >> 31;
  return (mixed + static_cast<uint64_t>(rank)) & 0xffffffff;
}

Training::Training(ProcessGroup& group, const RowSource& rows, Task& task, const TrainerOptions& options)
    : group_(group),
      rows_(rows),
      task_(task),
      options_(options),
      device_(TensorDevice(group)),
      settings_(SettingsOf(options, task, rows.info())) {}

absl::Status Training::Begin() {
  ABSL_RETURN_IF_ERROR(group_.Agree("the data are divided", SplitData()));
  absl::StatusOr<std::unique_ptr<TrainedModel>> model;
  const absl::Status thrown = InvokeTorch([&] {
    at::manual_seed(options_.seed);
    model = task_.MakeModel(&group_, device_);
  });
  // Another rank may wait for this one in there.
  if (!thrown.ok()) return Fail(thrown);
  ABSL_RETURN_IF_ERROR(model.status());
  model_ = *std::move(model);
  return group_.Agree("the optimizer is made", MakeOptimizerAndSchedule());
}

absl::Status Training::SplitData() {
  learned_ = measured_ = &rows_;
  if (options_.validation > 0) {
    ABSL_ASSIGN_OR_RETURN(RowSplit split, SplitRows(rows_.num_rows(), options_.validation));
    ABSL_ASSIGN_OR_RETURN(learned_part_, MakeRowSubset(rows_, std::move(split.learned)));
    ABSL_ASSIGN_OR_RETURN(held_out_part_, MakeRowSubset(rows_, std::move(split.held_out)));
    learned_ = learned_part_.get();
    measured_ = held_out_part_.get();
  }
  if (learned_->num_rows() < group_.world_size()) {
    return absl::InvalidArgumentError(absl::StrCat(learned_->num_rows(), " rows to learn from are too few for ",
                                                   group_.world_size(), " ranks; there must be at least one for each"));
  }
  ABSL_ASSIGN_OR_RETURN(DistributedSampler sampler,
                        DistributedSampler::Create({.num_items = learned_->num_rows(),
                                                    .num_replicas = group_.world_size(),
                                                    .rank = group_.rank(),
                                                    .seed = options_.seed,
                                                    .data_checksum = learned_->info().checksum}));
  ABSL_ASSIGN_OR_RETURN(loader_,
                        BatchLoader::Create(*learned_, std::move(sampler),
                                            {.items_of_all = options_.batch_size, .prefetch = options_.prefetch}));
  return absl::OkStatus();
}

absl::Status Training::MakeOptimizerAndSchedule() {
  ABSL_ASSIGN_OR_RETURN(optimizer_, InvokeTorch([&] {
                          // Dropout on one rank is not that on another one.
                          at::manual_seed(SeedOfRank(options_.seed, group_.rank()));
                          parameters_ = model_->module().parameters();
                          return MakeOptimizer(
                              options_.optimizer, parameters_,
                              {.learning_rate = options_.learning_rate.value_or(task_.LearningRate(options_)),
                               .momentum = settings_.momentum,
                               .weight_decay = task_.weight_decay()});
                        }));
  ABSL_ASSIGN_OR_RETURN(schedule_, MakeSchedule(settings_, *optimizer_));
  return absl::OkStatus();
}

// ---- Going on ----

TrainingStateOptions Training::StateOptions() const {
  TrainingStateOptions options{.format = format(), .allow_other_world_size = true};
  if (device_.is_cuda()) options.cuda_devices = {device_.index()};
  return options;
}

absl::StatusOr<Training::Found> Training::Examine(const TrainingState& state) const {
  Found found;
  ABSL_ASSIGN_OR_RETURN(found.run, ReadRunState(state.data));
  ABSL_RETURN_IF_ERROR(CheckCanGoOn(found.run, settings_));
  DistributedSampler position = loader_->position();
  ABSL_RETURN_IF_ERROR(position.Load(found.run.sampler));
  if (position.epoch() != state.epoch || position.is_at_end()) {
    return absl::InvalidArgumentError(absl::StrCat("the run is in epoch ", state.epoch, ", and its sampler after ",
                                                   position.items_done(), " of ", position.items_in_epoch(),
                                                   " items of epoch ", position.epoch()));
  }
  const int64_t sums = static_cast<int64_t>(found.run.loss_sums.size());
  if (const int64_t expected = position.items_done() > 0 ? state.saved_world_size : 0; sums != expected) {
    return absl::InvalidArgumentError(absl::StrCat("\"data\": \"loss_sums\" has ", sums, " numbers; after ",
                                                   position.items_done(), " items of an epoch, saved by ",
                                                   state.saved_world_size, " ranks, it must have ", expected));
  }
  ABSL_ASSIGN_OR_RETURN(found.schedule,
                        ResumeSchedule(state.lr_scheduler, state.epoch, found.run.settings, settings_, *optimizer_));
  return found;
}

absl::StatusOr<std::vector<std::string>> Training::Load(std::string_view path,
                                                        std::function<void(std::string_view)> on_warning) {
  Found found;
  TrainingStateOptions loading = StateOptions();
  loading.on_warning = std::move(on_warning);
  loading.accept = [&](const TrainingState& state) -> absl::Status {
    ABSL_ASSIGN_OR_RETURN(found, Examine(state));
    return absl::OkStatus();
  };
  ABSL_ASSIGN_OR_RETURN(const TrainingState state,
                        LoadTrainingState(group_, path, model_->module(), *optimizer_, loading));
  const RunSettings saved = found.run.settings;
  if (const absl::Status taken = TakeOver(state, std::move(found)); !taken.ok()) return Fail(taken);
  return ApplyChanges(saved);
}

absl::Status Training::TakeOver(const TrainingState& state, Found found) {
  ABSL_RETURN_IF_ERROR(loader_->Load(found.run.sampler));
  steps_done_ = state.step;
  epochs_done_ = state.epoch;
  optimizer_extras_ = state.optimizer_extras;
  schedule_ = std::move(found.schedule);
  const std::vector<double>& sums = found.run.loss_sums;
  if (state.saved_world_size == group_.world_size()) {
    loss_sum_ = sums.empty() ? 0 : sums[group_.rank()];
  } else {
    loss_sum_ = group_.is_main() ? std::accumulate(sums.begin(), sums.end(), 0.0) : 0;
  }
  return absl::OkStatus();
}

std::vector<std::string> Training::ApplyChanges(const RunSettings& saved) {
  std::vector<std::string> changes;
  for (const SettingChange& change : ChangesOf(saved, settings_)) {
    changes.push_back(absl::StrCat(change.name, " ", change.now, ", was ", change.saved));
    if (change.name == "momentum") SetMomentum(*optimizer_, settings_.momentum);
  }
  if (const double rate = learning_rate(); options_.learning_rate.value_or(rate) != rate) {
    optimizer_->param_groups()[0].options().set_lr(*options_.learning_rate);
    changes.push_back(absl::StrCat("learning_rate ", Shown(*options_.learning_rate), ", was ", Shown(rate)));
  }
  return changes;
}

// ---- Training ----

absl::Status Training::Fail(const absl::Status& why) { return group_.Abort(why); }

std::string Training::Place() const { return absl::StrCat("epoch ", epochs_done_, ", row ", rows_done()); }

absl::Status Training::NotFinite(std::string_view what) const {
  return absl::InvalidArgumentError(
      absl::StrCat(what, ": learning_rate=", learning_rate(), " is too high for this data"));
}

absl::Status Training::Step() {
  absl::StatusOr<std::optional<LoadedBatch>> batch = loader_->Next();
  if (!batch.ok()) return Fail(batch.status());
  if (!batch->has_value()) return Fail(absl::InternalError(absl::StrCat("a step at the end of ", Place())));
  last_rows_ = (*batch)->items;
  ABSL_RETURN_IF_ERROR(AddGradients(**batch));
  const absl::Status applied = ApplyGradients();
  ++steps_done_;
  return applied.ok() ? applied : Fail(applied);
}

absl::Status Training::AddGradients(const LoadedBatch& batch) {
  const auto share = static_cast<int64_t>(batch.items.size());
  RowBatch rows;
  const absl::Status thrown = InvokeTorch([&] {
    optimizer_->zero_grad();
    rows = {.features = batch.rows.features.to(device_), .targets = batch.rows.targets.to(device_)};
  });
  if (!thrown.ok()) return Fail(thrown);
  const int64_t parts = std::clamp<int64_t>(options_.accumulate, 1, std::max<int64_t>(share, 1));
  for (int64_t part = 0; part < parts; ++part) {
    const int64_t begin = share * part / parts, size = share * (part + 1) / parts - begin;
    const at::Tensor targets = rows.targets.narrow(0, begin, size);
    const auto loss = [&](const at::Tensor& output) -> absl::StatusOr<at::Tensor> {
      absl::StatusOr<at::Tensor> mine = LossOf(output, targets, batch.num_of_all);
      if (absl::IsInvalidArgument(mine.status())) {
        ABSL_RETURN_IF_ERROR(CheckLearnedFinite(batch));
      }
      return mine;
    };
    ABSL_RETURN_IF_ERROR(
        model_->AddGradients(rows.features.narrow(0, begin, size), loss, /*is_last=*/part == parts - 1));
  }
  return absl::OkStatus();
}

absl::StatusOr<at::Tensor> Training::LossOf(const at::Tensor& output, const at::Tensor& targets, int64_t rows_of_all) {
  at::Tensor loss;
  double sum = 0;
  ABSL_RETURN_IF_ERROR(InvokeTorch([&] {
    loss = task_.Loss(output, targets);
    sum = loss.item<double>();
    const auto values = static_cast<double>(rows_of_all * task_.loss_values_per_row());
    loss = loss * (static_cast<double>(group_.world_size()) / values);
  }));
  if (!std::isfinite(sum)) return NotFinite(absl::StrCat("the loss is no longer a finite number at ", Place()));
  loss_sum_ += sum;
  return loss;
}

absl::Status Training::ApplyGradients() {
  double norm = 0;
  const absl::Status stepped = InvokeTorch([&] {
    if (options_.clip_grad_norm.has_value()) {
      norm = torch::nn::utils::clip_grad_norm_(parameters_, *options_.clip_grad_norm);
    }
    if (std::isfinite(norm)) optimizer_->step();
  });
  // LibTorch makes a float of a multiple of the rate, and has no error of its own for one that is none.
  if (absl::IsInternal(stepped) && learning_rate() > kLargeRate) {
    return NotFinite(absl::StrCat("the optimizer's step is not a finite number at ", Place()));
  }
  if (!stepped.ok() || std::isfinite(norm)) return stepped;
  return NotFinite(absl::StrCat("the gradients' length is no longer a finite number at ", Place()));
}

absl::StatusOr<at::Tensor> Training::EvaluateShare() {
  const int64_t num_rows = measured_->num_rows(), rank = group_.rank(), ranks = group_.world_size();
  const int64_t begin = num_rows * rank / ranks, end = num_rows * (rank + 1) / ranks;
  at::Tensor sums;
  torch::nn::Module& module = model_->module();
  const absl::Cleanup back_to_training = [&module] { module.train(); };
  ABSL_RETURN_IF_ERROR(InvokeTorch([&] {
    module.eval();
    sums = at::zeros({task_.num_sums()}, at::TensorOptions(at::kDouble).device(device_));
  }));
  ABSL_RETURN_IF_ERROR(VisitRows(*measured_, begin, end, [&](int64_t, const RowBatch& batch) {
    return InvokeTorch([&] {
      const at::NoGradGuard no_grad;
      sums += task_.Sums(model_->Evaluate(batch.features.to(device_)), batch.targets.to(device_));
    });
  }));
  return sums;
}

absl::Status Training::CheckLearnedFinite(const LoadedBatch& batch) const {
  std::vector<int64_t> rows = batch.items;
  if (options_.validation > 0) {
    ABSL_ASSIGN_OR_RETURN(const RowSplit split, SplitRows(rows_.num_rows(), options_.validation));
    for (int64_t& row : rows) row = split.learned[row];
  }
  return CheckFinite(batch.rows, [&](int64_t i) { return rows[i]; });
}

absl::Status Training::CheckMeasuredFinite() const {
  RowSplit split;
  if (options_.validation > 0) {
    ABSL_ASSIGN_OR_RETURN(split, SplitRows(rows_.num_rows(), options_.validation));
  }
  return VisitRows(*measured_, 0, measured_->num_rows(), [&](int64_t first, const RowBatch& batch) {
    return CheckFinite(batch,
                       [&](int64_t i) { return split.held_out.empty() ? first + i : split.held_out[first + i]; });
  });
}

absl::StatusOr<Training::EpochResult> Training::EndEpoch() {
  absl::StatusOr<at::Tensor> mine = EvaluateShare();
  if (!mine.ok()) return Fail(mine.status());
  const at::Tensor sums = *std::move(mine);
  at::Tensor loss_sum;
  const absl::Status thrown = InvokeTorch([&] { loss_sum = at::zeros({1}, sums.options()).fill_(loss_sum_); });
  if (!thrown.ok()) return Fail(thrown);
  ABSL_RETURN_IF_ERROR(AllReduceSum(group_, {loss_sum, sums}));
  // From here on every rank has the same numbers, and comes to the same answer.
  ABSL_ASSIGN_OR_RETURN(const std::vector<double> totals, Numbers(sums));
  ABSL_ASSIGN_OR_RETURN(const std::vector<double> loss, Numbers(loss_sum));
  const int64_t num_values = learned_->num_rows() * task_.loss_values_per_row();
  EpochResult result{.loss = loss[0] / static_cast<double>(num_values)};
  if (!absl::c_all_of(totals, [](double number) { return std::isfinite(number); })) {
    ABSL_RETURN_IF_ERROR(group_.Agree("the data are finite", CheckMeasuredFinite()));
    return NotFinite("the loss is no longer a finite number in evaluation");
  }
  result.metrics = task_.Metrics(totals, measured_->num_rows());
  ++epochs_done_;
  loss_sum_ = 0;
  ABSL_RETURN_IF_ERROR(loader_->SetEpoch(epochs_done_));
  if (schedule_ != nullptr) {
    ABSL_RETURN_IF_ERROR(schedule_->Step());
  }
  return result;
}

// ---- Saving ----

absl::StatusOr<std::vector<double>> Training::LossSums() {
  at::Tensor all;
  const absl::Status thrown = InvokeTorch([&] {
    all = at::zeros({group_.world_size()}, at::TensorOptions(at::kDouble).device(device_));
    all[group_.rank()].fill_(loss_sum_);
  });
  if (!thrown.ok()) return Fail(thrown);
  // Each number is one rank's, and nothing is added to it but zeros.
  ABSL_RETURN_IF_ERROR(AllReduceSum(group_, {all}));
  return Numbers(all);
}

absl::StatusOr<std::function<absl::Status(WritableFile& file)>> Training::GatherState(std::string_view name) {
  SavedRun run{.settings = settings_, .sampler = loader_->State()};
  if (rows_done() > 0) {
    ABSL_ASSIGN_OR_RETURN(run.loss_sums, LossSums());
  }
  const TrainingState state{.step = steps_done_,
                            .epoch = epochs_done_,
                            .lr_scheduler = schedule_ != nullptr ? schedule_->State() : c10::IValue(),
                            .data = RunState(run),
                            .optimizer_extras = optimizer_extras_};
  return GatherTrainingState(group_, name, model_->module(), *optimizer_, state, StateOptions());
}

absl::Status Training::WriteModel(WritableFile& file) const {
  const NamedTensors state = ModuleState(model_->module());
  if (format() == StateFormat::kTorch) return WriteTorchFile(state, file);
  c10::impl::GenericDict dict(c10::StringType::get(), c10::TensorType::get());
  for (const auto& [name, tensor] : state) dict.insert(name, tensor);
  return WriteSafetensorsFile(c10::IValue(std::move(dict)), {}, file);
}

}  // namespace cohort
