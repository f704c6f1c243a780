// File: lr_scheduler.h
//
// Learning-rate schedules with the formulas and the state of Python's torch.optim.lr_scheduler, bit for bit. LibTorch's
// own hide their state, so that a run could not go on where it stopped.

#ifndef COHORT_TRAINERS_LR_SCHEDULER_H_
#define COHORT_TRAINERS_LR_SCHEDULER_H_

#if __cplusplus < 202002L
#error "cohort needs C++20: build with --cxxopt=-std=c++20"
#endif

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ATen/core/ivalue.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cohort/third_party/libtorch/string_abi.h"

namespace torch::optim {
class Optimizer;
}  // namespace torch::optim

namespace cohort {
namespace internal {
struct Field;
}  // namespace internal

// What all schedules share. A schedule reads and sets the learning rate of every group of an optimizer that it does not
// own, and is not for several threads at once.
//
// To go on with a run, as in Python: make the schedule (which sets the learning rates of its first epoch), then load the
// optimizer's state, then the schedule's.
class LRScheduler {
 public:
  virtual ~LRScheduler() = default;
  LRScheduler(const LRScheduler&) = delete;
  LRScheduler& operator=(const LRScheduler&) = delete;

  // Local. The learning rates that it set last, one a group.
  const std::vector<double>& last_lr() const { return last_lr_; }

  // Local. Python's state_dict(), every key in Python's order.
  c10::IValue State() const;

  // Local. Takes over such a state, options included, as Python's load_state_dict does; the optimizer is left alone.
  //
  // Errors:
  //   InvalidArgument    not the state of a schedule of this class: a key is missing, unknown, or has a value of another
  //                      type or out of its range (names it); another number of groups. Nothing is changed.
  absl::Status Load(const c10::IValue& state);

 protected:
  LRScheduler(std::string_view name, torch::optim::Optimizer& optimizer);

  // FailedPrecondition if the optimizer has another number of groups than when the schedule was made.
  absl::StatusOr<std::vector<double>> GetRates() const;
  void SetRates(const std::vector<double>& rates);
  size_t num_groups() const;
  absl::Status Refuse(std::string_view key, double value, std::string_view allowed) const;

  // Of a schedule that is whole; otherwise the first thing that is wrong.
  virtual absl::Status Check() const;

  int64_t last_epoch_ = 0;
  std::vector<double> last_lr_;

 private:
  // All of the state, in Python's order.
  virtual std::vector<internal::Field> Fields() = 0;

  std::string_view name_;
  torch::optim::Optimizer& optimizer_;
};

// A schedule that depends on the epoch alone.
class EpochScheduler : public LRScheduler {
 public:
  // Local. The next epoch begins: to be called once after each, when the optimizer has made its steps.
  //
  // Errors:
  //   FailedPrecondition    the optimizer has another number of groups than when the schedule was made
  absl::Status Step();

 protected:
  EpochScheduler(std::string_view name, torch::optim::Optimizer& optimizer);
  absl::Status Check() const override;

  // The fields that follow a class's own.
  std::vector<internal::Field> WithCommon(std::vector<internal::Field> own);

  // The rates of the first epoch, from those that the optimizer has.
  absl::Status Begin();

 private:
  // A group's rate of epoch last_epoch_, from that of the epoch before and the first one.
  virtual double Next(double lr, double base_lr) const = 0;
  virtual double First(double lr) const { return lr; }

  int64_t step_count_ = 1;
  bool is_initial_ = false;                 // true only in the middle of Python's constructor
  bool get_lr_called_within_step_ = false;  // true only in the middle of Python's step()
  std::vector<double> base_lrs_;
};

struct StepLROptions {
  int64_t step_size;  // epochs, at least 1
  double gamma = 0.1;
};

// The rate times gamma after every step_size epochs.
class StepLR : public EpochScheduler {
 public:
  // Local. Errors: InvalidArgument if an option is out of range (names it).
  static absl::StatusOr<std::unique_ptr<StepLR>> Create(torch::optim::Optimizer& optimizer,
                                                        const StepLROptions& options);

 private:
  StepLR(torch::optim::Optimizer& optimizer, const StepLROptions& options);
  absl::Status Check() const override;
  std::vector<internal::Field> Fields() override;
  double Next(double lr, double base_lr) const override;

  StepLROptions options_;
};

struct CosineAnnealingLROptions {
  int64_t T_max;  // epochs from the first rate to eta_min, at least 1
  double eta_min = 0;
};

// Half a cosine from the first rate down to eta_min in T_max epochs, then up again.
class CosineAnnealingLR : public EpochScheduler {
 public:
  // Local. Errors: InvalidArgument if an option is out of range (names it).
  static absl::StatusOr<std::unique_ptr<CosineAnnealingLR>> Create(torch::optim::Optimizer& optimizer,
                                                                   const CosineAnnealingLROptions& options);

 private:
  CosineAnnealingLR(torch::optim::Optimizer& optimizer, const CosineAnnealingLROptions& options);
  absl::Status Check() const override;
  std::vector<internal::Field> Fields() override;
  double Next(double lr, double base_lr) const override;

  CosineAnnealingLROptions options_;
};

struct LinearLROptions {
  double start_factor = 1.0 / 3;  // above 0, at most 1
  double end_factor = 1;          // 0 to 1
  int64_t total_iters = 5;        // epochs, at least 0
};

// Warm-up: the rate times a factor that goes linearly from start_factor to end_factor in total_iters epochs.
class LinearLR : public EpochScheduler {
 public:
  // Local. Errors: InvalidArgument if an option is out of range (names it).
  static absl::StatusOr<std::unique_ptr<LinearLR>> Create(torch::optim::Optimizer& optimizer,
                                                          const LinearLROptions& options);

 private:
  LinearLR(torch::optim::Optimizer& optimizer, const LinearLROptions& options);
  absl::Status Check() const override;
  std::vector<internal::Field> Fields() override;
  double Next(double lr, double base_lr) const override;
  double First(double lr) const override { return lr * options_.start_factor; }

  LinearLROptions options_;
};

struct ReduceLROnPlateauOptions {
  std::string mode = "min";  // whether the metric should fall, or rise ("max")
  double factor = 0.1;       // below 1
  int64_t patience = 10;     // epochs without improvement that are let pass
  double threshold = 1e-4;
  std::string threshold_mode = "rel";  // or "abs"
  int64_t cooldown = 0;                // epochs after a reduction that are not looked at
  std::vector<double> min_lr = {0};    // one for all groups, or one a group
  double eps = 1e-8;                   // smaller reductions are not made
};

// The rate times a factor when a metric no longer gets better.
class ReduceLROnPlateau : public LRScheduler {
 public:
  // Local. Errors: InvalidArgument if an option is out of range (names it).
  static absl::StatusOr<std::unique_ptr<ReduceLROnPlateau>> Create(torch::optim::Optimizer& optimizer,
                                                                   const ReduceLROnPlateauOptions& options = {});

  // Local. An epoch has ended with `metric`. Ranks that train together must pass the same number.
  //
  // Errors:
  //   FailedPrecondition    the optimizer has another number of groups than when the schedule was made
  absl::Status Step(double metric);

 private:
  ReduceLROnPlateau(torch::optim::Optimizer& optimizer, const ReduceLROnPlateauOptions& options);
  absl::Status Check() const override;
  std::vector<internal::Field> Fields() override;
  bool IsBetter(double metric) const;

  std::string mode_, threshold_mode_;
  double factor_, threshold_, eps_;
  int64_t patience_, cooldown_;
  std::optional<double> default_min_lr_;
  std::vector<double> min_lrs_;
  double mode_worse_, best_;
  int64_t cooldown_counter_ = 0, num_bad_epochs_ = 0;
};

}  // namespace cohort

#endif  // COHORT_TRAINERS_LR_SCHEDULER_H_
