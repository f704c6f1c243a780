// The formulas are Python's, operation by operation: each rate is made from the one before, and rounding goes along. The
// target is compiled without contraction, since a fused multiply-add rounds once where Python rounds twice.

#include "cohort/trainers/lr_scheduler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <utility>

#include "absl/log/absl_check.h"
#include "absl/memory/memory.h"
#include "absl/status/status_macros.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "cohort/checkpoint/internal/value_fields.h"
#include "torch/optim/optimizer.h"

namespace cohort {
namespace {

using ::cohort::internal::Field;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Epochs are counted in ints and computed with as doubles.
constexpr int64_t kMaxEpochs = int64_t{1} << 53;

bool IsCount(int64_t value, int64_t least) { return least <= value && value <= kMaxEpochs; }

// Within [0, 1] as Python asks for; NaN is not.
bool IsFactor(double value) { return value >= 0 && value <= 1; }

}  // namespace

// ---- LRScheduler ----

LRScheduler::LRScheduler(std::string_view name, torch::optim::Optimizer& optimizer)
    : name_(name), optimizer_(optimizer) {
  for (const auto& group : optimizer.param_groups()) last_lr_.push_back(group.options().get_lr());
}

size_t LRScheduler::num_groups() const { return optimizer_.param_groups().size(); }

absl::StatusOr<std::vector<double>> LRScheduler::GetRates() const {
  if (num_groups() != last_lr_.size()) {
    return absl::FailedPreconditionError(
        absl::StrCat(name_, " was made for ", last_lr_.size(), " groups, and the optimizer has ", num_groups()));
  }
  std::vector<double> rates;
  for (const auto& group : optimizer_.param_groups()) rates.push_back(group.options().get_lr());
  return rates;
}

void LRScheduler::SetRates(const std::vector<double>& rates) {
  for (size_t i = 0; i < rates.size(); ++i) optimizer_.param_groups()[i].options().set_lr(rates[i]);
  last_lr_ = rates;
}

absl::Status LRScheduler::Refuse(std::string_view key, double value, std::string_view allowed) const {
  return absl::InvalidArgumentError(absl::StrCat(name_, ": ", key, " is ", value, ", not ", allowed));
}

absl::Status LRScheduler::Check() const {
  if (!IsCount(last_epoch_, 0)) return Refuse("last_epoch", last_epoch_, "0 or more");
  if (last_lr_.size() == num_groups()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(name_, ": _last_lr is of ", last_lr_.size(), " groups, and the optimizer has ", num_groups()));
}

c10::IValue LRScheduler::State() const {
  c10::impl::GenericDict state = internal::NewDict();
  // Fields are for reading and writing; this only reads.
  PutFields(const_cast<LRScheduler*>(this)->Fields(), state);
  return state;
}

absl::Status LRScheduler::Load(const c10::IValue& state) {
  const std::string what = absl::StrCat("the state of ", name_);
  ABSL_ASSIGN_OR_RETURN(const c10::impl::GenericDict given, internal::AsDict(state, what));
  c10::impl::GenericDict dict = internal::NewDict();
  for (const auto& entry : given) {
    // Older Pythons had a flag that made them print.
    if (entry.key() != "verbose") dict.insert(entry.key(), entry.value());
  }
  const c10::impl::GenericDict before = State().toGenericDict();
  absl::Status status = ReadFields(dict, Fields(), what);
  if (status.ok()) status = Check();
  if (!status.ok()) ABSL_CHECK_OK(ReadFields(before, Fields(), what));
  return status;
}

// ---- EpochScheduler ----

EpochScheduler::EpochScheduler(std::string_view name, torch::optim::Optimizer& optimizer)
    : LRScheduler(name, optimizer), base_lrs_(last_lr()) {}

absl::Status EpochScheduler::Begin() {
  ABSL_RETURN_IF_ERROR(Check());
  std::vector<double> rates;
  for (const double lr : base_lrs_) rates.push_back(First(lr));
  SetRates(rates);
  return absl::OkStatus();
}

absl::Status EpochScheduler::Step() {
  ABSL_ASSIGN_OR_RETURN(std::vector<double> rates, GetRates());
  ++step_count_;
  ++last_epoch_;
  for (size_t i = 0; i < rates.size(); ++i) rates[i] = Next(rates[i], base_lrs_[i]);
  SetRates(rates);
  return absl::OkStatus();
}

std::vector<Field> EpochScheduler::WithCommon(std::vector<Field> own) {
  own.insert(own.end(), {{"base_lrs", &base_lrs_},
                         {"last_epoch", &last_epoch_},
                         {"_step_count", &step_count_},
                         {"_is_initial", &is_initial_, false},
                         {"_get_lr_called_within_step", &get_lr_called_within_step_, false},
                         {"_last_lr", &last_lr_}});
  return own;
}

absl::Status EpochScheduler::Check() const {
  ABSL_RETURN_IF_ERROR(LRScheduler::Check());
  if (!IsCount(step_count_, 1)) return Refuse("_step_count", step_count_, "1 or more");
  if (base_lrs_.size() == num_groups()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("base_lrs is of ", base_lrs_.size(), " groups, and the optimizer has ", num_groups()));
}

// ---- StepLR ----

absl::StatusOr<std::unique_ptr<StepLR>> StepLR::Create(torch::optim::Optimizer& optimizer,
                                                       const StepLROptions& options) {
  auto scheduler = absl::WrapUnique(new StepLR(optimizer, options));
  ABSL_RETURN_IF_ERROR(scheduler->Begin());
  return scheduler;
}

StepLR::StepLR(torch::optim::Optimizer& optimizer, const StepLROptions& options)
    : EpochScheduler("StepLR", optimizer), options_(options) {}

absl::Status StepLR::Check() const {
  if (!IsCount(options_.step_size, 1)) return Refuse("step_size", options_.step_size, "1 or more");
  return EpochScheduler::Check();
}

std::vector<Field> StepLR::Fields() {
  return WithCommon({{"step_size", &options_.step_size}, {"gamma", &options_.gamma}});
}

double StepLR::Next(double lr, double /*base_lr*/) const {
  return last_epoch_ % options_.step_size == 0 ? lr * options_.gamma : lr;
}

// ---- CosineAnnealingLR ----

absl::StatusOr<std::unique_ptr<CosineAnnealingLR>> CosineAnnealingLR::Create(torch::optim::Optimizer& optimizer,
                                                                             const CosineAnnealingLROptions& options) {
  auto scheduler = absl::WrapUnique(new CosineAnnealingLR(optimizer, options));
  ABSL_RETURN_IF_ERROR(scheduler->Begin());
  return scheduler;
}

CosineAnnealingLR::CosineAnnealingLR(torch::optim::Optimizer& optimizer, const CosineAnnealingLROptions& options)
    : EpochScheduler("CosineAnnealingLR", optimizer), options_(options) {}

absl::Status CosineAnnealingLR::Check() const {
  if (!IsCount(options_.T_max, 1)) return Refuse("T_max", options_.T_max, "1 or more");
  return EpochScheduler::Check();
}

std::vector<Field> CosineAnnealingLR::Fields() {
  return WithCommon({{"T_max", &options_.T_max}, {"eta_min", &options_.eta_min}});
}

double CosineAnnealingLR::Next(double lr, double base_lr) const {
  constexpr double kPi = std::numbers::pi;
  const int64_t t_max = options_.T_max;
  const double epoch = last_epoch_, period = t_max, eta_min = options_.eta_min;
  // At the bottom the ratio below is 0/0.
  if ((last_epoch_ - 1 - t_max) % (2 * t_max) == 0) {
    return lr + (base_lr - eta_min) * (1 - std::cos(kPi / period)) / 2;
  }
  return (1 + std::cos(kPi * epoch / period)) / (1 + std::cos(kPi * (epoch - 1) / period)) * (lr - eta_min) + eta_min;
}

// ---- LinearLR ----

absl::StatusOr<std::unique_ptr<LinearLR>> LinearLR::Create(torch::optim::Optimizer& optimizer,
                                                           const LinearLROptions& options) {
  auto scheduler = absl::WrapUnique(new LinearLR(optimizer, options));
  ABSL_RETURN_IF_ERROR(scheduler->Begin());
  return scheduler;
}

LinearLR::LinearLR(torch::optim::Optimizer& optimizer, const LinearLROptions& options)
    : EpochScheduler("LinearLR", optimizer), options_(options) {}

absl::Status LinearLR::Check() const {
  if (!IsFactor(options_.start_factor) || options_.start_factor == 0) {
    return Refuse("start_factor", options_.start_factor, "above 0 and at most 1");
  }
  if (!IsFactor(options_.end_factor)) return Refuse("end_factor", options_.end_factor, "from 0 to 1");
  if (!IsCount(options_.total_iters, 0)) return Refuse("total_iters", options_.total_iters, "0 or more");
  return EpochScheduler::Check();
}

std::vector<Field> LinearLR::Fields() {
  return WithCommon({{"start_factor", &options_.start_factor},
                     {"end_factor", &options_.end_factor},
                     {"total_iters", &options_.total_iters}});
}

double LinearLR::Next(double lr, double /*base_lr*/) const {
  if (last_epoch_ > options_.total_iters) return lr;
  const double rise = options_.end_factor - options_.start_factor;
  const double total = options_.total_iters, done = last_epoch_ - 1;
  return lr * (1.0 + rise / (total * options_.start_factor + done * rise));
}

// ---- ReduceLROnPlateau ----

absl::StatusOr<std::unique_ptr<ReduceLROnPlateau>> ReduceLROnPlateau::Create(torch::optim::Optimizer& optimizer,
                                                                             const ReduceLROnPlateauOptions& options) {
  if (options.min_lr.size() != 1 && options.min_lr.size() != optimizer.param_groups().size()) {
    return absl::InvalidArgumentError(absl::StrCat("ReduceLROnPlateau: min_lr has ", options.min_lr.size(),
                                                   " numbers for ", optimizer.param_groups().size(), " groups"));
  }
  auto scheduler = absl::WrapUnique(new ReduceLROnPlateau(optimizer, options));
  ABSL_RETURN_IF_ERROR(scheduler->Check());
  return scheduler;
}

ReduceLROnPlateau::ReduceLROnPlateau(torch::optim::Optimizer& optimizer, const ReduceLROnPlateauOptions& options)
    : LRScheduler("ReduceLROnPlateau", optimizer),
      mode_(options.mode),
      threshold_mode_(options.threshold_mode),
      factor_(options.factor),
      threshold_(options.threshold),
      eps_(options.eps),
      patience_(options.patience),
      cooldown_(options.cooldown),
      min_lrs_(options.min_lr),
      mode_worse_(mode_ == "min" ? kInfinity : -kInfinity),
      best_(mode_worse_) {
  if (min_lrs_.size() != 1) return;
  default_min_lr_ = min_lrs_[0];
  min_lrs_.assign(num_groups(), *default_min_lr_);
}

absl::Status ReduceLROnPlateau::Check() const {
  ABSL_RETURN_IF_ERROR(LRScheduler::Check());
  const auto refuse = [](std::string_view key, std::string_view value, std::string_view allowed) {
    // A file may have any text there.
    return absl::InvalidArgumentError(
        absl::StrCat("ReduceLROnPlateau: ", key, " is ", absl::CHexEscape(value.substr(0, 40)), ", not ", allowed));
  };
  if (mode_ != "min" && mode_ != "max") return refuse("mode", mode_, "min or max");
  if (threshold_mode_ != "rel" && threshold_mode_ != "abs") {
    return refuse("threshold_mode", threshold_mode_, "rel or abs");
  }
  if (mode_worse_ != (mode_ == "min" ? kInfinity : -kInfinity)) {
    return Refuse("mode_worse", mode_worse_, mode_ == "min" ? "inf" : "-inf");
  }
  if (!(factor_ < 1)) return Refuse("factor", factor_, "below 1");
  if (!IsCount(patience_, 0)) return Refuse("patience", patience_, "0 or more");
  if (!IsCount(cooldown_, 0)) return Refuse("cooldown", cooldown_, "0 or more");
  if (!IsCount(cooldown_counter_, 0)) return Refuse("cooldown_counter", cooldown_counter_, "0 or more");
  if (!IsCount(num_bad_epochs_, 0)) return Refuse("num_bad_epochs", num_bad_epochs_, "0 or more");
  if (min_lrs_.size() == num_groups()) return absl::OkStatus();
  return refuse("min_lrs", absl::StrCat("of ", min_lrs_.size(), " groups"), absl::StrCat("of ", num_groups()));
}

std::vector<Field> ReduceLROnPlateau::Fields() {
  return {{"factor", &factor_},
          {"default_min_lr", &default_min_lr_, false},
          {"min_lrs", &min_lrs_},
          {"patience", &patience_},
          {"cooldown", &cooldown_},
          {"eps", &eps_},
          {"last_epoch", &last_epoch_},
          {"_last_lr", &last_lr_},
          {"mode_worse", &mode_worse_},
          {"mode", &mode_},
          {"threshold", &threshold_},
          {"threshold_mode", &threshold_mode_},
          {"best", &best_},
          {"cooldown_counter", &cooldown_counter_},
          {"num_bad_epochs", &num_bad_epochs_}};
}

bool ReduceLROnPlateau::IsBetter(double metric) const {
  const bool is_relative = threshold_mode_ == "rel";
  if (mode_ == "min") return metric < (is_relative ? best_ * (1.0 - threshold_) : best_ - threshold_);
  return metric > (is_relative ? best_ * (threshold_ + 1.0) : best_ + threshold_);
}

absl::Status ReduceLROnPlateau::Step(double metric) {
  ABSL_ASSIGN_OR_RETURN(std::vector<double> rates, GetRates());
  ++last_epoch_;
  if (IsBetter(metric)) {
    best_ = metric;
    num_bad_epochs_ = 0;
  } else {
    ++num_bad_epochs_;
  }
  if (cooldown_counter_ > 0) {
    --cooldown_counter_;
    num_bad_epochs_ = 0;
  }
  if (num_bad_epochs_ > patience_) {
    for (size_t i = 0; i < rates.size(); ++i) {
      const double reduced = std::max(rates[i] * factor_, min_lrs_[i]);
      if (rates[i] - reduced > eps_) rates[i] = reduced;
    }
    cooldown_counter_ = cooldown_;
    num_bad_epochs_ = 0;
  }
  SetRates(rates);
  return absl::OkStatus();
}

}  // namespace cohort
