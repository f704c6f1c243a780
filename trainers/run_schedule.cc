#include "cohort/trainers/run_schedule.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "ATen/core/ivalue.h"
#include "absl/status/status.h"
#include "absl/status/status_macros.h"
#include "absl/status/statusor.h"
#include "cohort/trainers/lr_scheduler.h"
#include "cohort/trainers/run_settings.h"
#include "torch/optim/optimizer.h"

namespace cohort {
namespace {

using Schedule = std::unique_ptr<EpochScheduler>;

template <typename T>
absl::StatusOr<Schedule> AsSchedule(absl::StatusOr<std::unique_ptr<T>> made) {
  if (!made.ok()) return made.status();
  return Schedule(*std::move(made));
}

// Puts the learning rates back that making a schedule changes.
class KeptRates {
 public:
  explicit KeptRates(torch::optim::Optimizer& optimizer) : optimizer_(optimizer) {
    for (const auto& group : optimizer.param_groups()) rates_.push_back(group.options().get_lr());
  }
  KeptRates(const KeptRates&) = delete;
  KeptRates& operator=(const KeptRates&) = delete;
  ~KeptRates() {
    for (size_t i = 0; i < rates_.size(); ++i) optimizer_.param_groups()[i].options().set_lr(rates_[i]);
  }

 private:
  torch::optim::Optimizer& optimizer_;
  std::vector<double> rates_;
};

// A StepLR that has `settings`, and has come to `epoch` with whatever rate the optimizer has.
absl::StatusOr<Schedule> ChangeStepLR(const c10::IValue& state, int64_t epoch, const RunSettings& settings,
                                      Schedule schedule) {
  c10::impl::GenericDict dict = state.toGenericDict();
  dict.insert_or_assign("step_size", settings.lr_step_size);
  dict.insert_or_assign("gamma", settings.lr_gamma);
  dict.insert_or_assign("last_epoch", epoch);
  dict.insert_or_assign("_step_count", epoch + 1);
  ABSL_RETURN_IF_ERROR(schedule->Load(state));
  return schedule;
}

}  // namespace

absl::StatusOr<Schedule> MakeSchedule(const RunSettings& settings, torch::optim::Optimizer& optimizer) {
  if (settings.lr_step_size > 0) {
    return AsSchedule(StepLR::Create(optimizer, {.step_size = settings.lr_step_size, .gamma = settings.lr_gamma}));
  }
  if (settings.lr_cosine_epochs > 0) {
    return AsSchedule(CosineAnnealingLR::Create(optimizer, {.T_max = settings.lr_cosine_epochs}));
  }
  if (settings.lr_warmup_epochs > 0) {
    return AsSchedule(LinearLR::Create(optimizer, {.start_factor = 0.1, .total_iters = settings.lr_warmup_epochs}));
  }
  return Schedule();
}

absl::StatusOr<Schedule> ResumeSchedule(const c10::IValue& state, int64_t epoch, const RunSettings& saved,
                                        const RunSettings& now, torch::optim::Optimizer& optimizer) {
  const KeptRates kept(optimizer);
  ABSL_ASSIGN_OR_RETURN(Schedule schedule, MakeSchedule(saved, optimizer));
  if (schedule == nullptr && !state.isNone()) {
    return absl::InvalidArgumentError("has an \"lr_scheduler\"; without a schedule it must be None");
  }
  if (schedule != nullptr) {
    ABSL_RETURN_IF_ERROR(schedule->Load(state));
  }
  if (saved.lr_step_size == now.lr_step_size && saved.lr_gamma == now.lr_gamma) return schedule;
  if (now.lr_step_size == 0) return Schedule();
  if (schedule == nullptr) {
    ABSL_ASSIGN_OR_RETURN(schedule, MakeSchedule(now, optimizer));
  }
  const c10::IValue changed = schedule->State();
  return ChangeStepLR(changed, epoch, now, std::move(schedule));
}

}  // namespace cohort
