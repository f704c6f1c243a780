#include "cohort/trainers/run_schedule.h"

#include <cstdint>
#include <memory>
#include <vector>

#include "ATen/core/ivalue.h"
#include "ATen/ops/zeros.h"
#include "absl/status/status.h"
#include "absl/status/status_matchers.h"
#include "absl/status/statusor.h"
#include "cohort/trainers/lr_scheduler.h"
#include "cohort/trainers/run_settings.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "torch/optim/sgd.h"

namespace cohort {
namespace {

using ::absl_testing::IsOk;
using ::absl_testing::StatusIs;
using ::testing::HasSubstr;

RunSettings Steps(int64_t size, double gamma) { return {.lr_step_size = size, .lr_gamma = gamma}; }

class RunScheduleTest : public ::testing::Test {
 protected:
  double rate() { return optimizer_.param_groups()[0].options().get_lr(); }

  // The learning rate of each of `epochs` epochs and of the one after them.
  std::vector<double> Rates(EpochScheduler* schedule, int epochs) {
    std::vector<double> rates = {rate()};
    for (int epoch = 0; epoch < epochs; ++epoch) {
      if (schedule != nullptr) {
        EXPECT_THAT(schedule->Step(), IsOk());
      }
      rates.push_back(rate());
    }
    return rates;
  }

  torch::optim::SGD optimizer_{{at::zeros({1})}, torch::optim::SGDOptions(1)};
};

TEST_F(RunScheduleTest, WithoutOneTheRateStays) {
  const auto schedule = MakeSchedule({}, optimizer_);
  ABSL_ASSERT_OK(schedule);
  EXPECT_EQ(*schedule, nullptr);
  EXPECT_EQ(rate(), 1);
}

TEST_F(RunScheduleTest, IsTheOneThatTheSettingsSay) {
  const auto steps = MakeSchedule(Steps(2, 0.5), optimizer_);
  ABSL_ASSERT_OK(steps);
  EXPECT_THAT(Rates(steps->get(), 4), ::testing::ElementsAre(1, 1, 0.5, 0.5, 0.25));
  optimizer_.param_groups()[0].options().set_lr(1);
  const auto cosine = MakeSchedule({.lr_cosine_epochs = 2}, optimizer_);
  ABSL_ASSERT_OK(cosine);
  EXPECT_THAT(Rates(cosine->get(), 2),
              ::testing::ElementsAre(1, ::testing::DoubleNear(0.5, 1e-12), ::testing::DoubleNear(0, 1e-12)));
  optimizer_.param_groups()[0].options().set_lr(1);
  const auto warmup = MakeSchedule({.lr_warmup_epochs = 2}, optimizer_);
  ABSL_ASSERT_OK(warmup);
  EXPECT_THAT(Rates(warmup->get(), 3),
              ::testing::ElementsAre(0.1, ::testing::DoubleNear(0.55, 1e-12), ::testing::DoubleNear(1, 1e-12),
                                     ::testing::DoubleNear(1, 1e-12)));
}

// A run of 3 epochs with `settings`; what it saved, and the rate it had come to, which is that of the optimizer.
c10::IValue SavedAfterThree(const RunSettings& settings, torch::optim::Optimizer& optimizer) {
  const auto schedule = MakeSchedule(settings, optimizer);
  EXPECT_THAT(schedule, IsOk());
  for (int epoch = 0; epoch < 3; ++epoch) EXPECT_THAT((*schedule)->Step(), IsOk());
  return (*schedule)->State();
}

TEST_F(RunScheduleTest, GoesOnAsItWouldHaveAndLeavesTheRateToTheOptimizersState) {
  for (const RunSettings& settings :
       {Steps(2, 0.5), RunSettings{.lr_cosine_epochs = 7}, RunSettings{.lr_warmup_epochs = 7}}) {
    torch::optim::SGD straight({at::zeros({1})}, torch::optim::SGDOptions(1));
    const auto unbroken = MakeSchedule(settings, straight);
    ABSL_ASSERT_OK(unbroken);
    optimizer_.param_groups()[0].options().set_lr(1);
    const c10::IValue saved = SavedAfterThree(settings, optimizer_);
    const double before = rate();
    const auto resumed = ResumeSchedule(saved, 3, settings, settings, optimizer_);
    ABSL_ASSERT_OK(resumed);
    EXPECT_EQ(rate(), before);
    for (int epoch = 0; epoch < 6; ++epoch) {
      ABSL_ASSERT_OK((*unbroken)->Step());
      if (epoch >= 3) {
        ABSL_ASSERT_OK((*resumed)->Step());
      }
    }
    EXPECT_EQ(rate(), straight.param_groups()[0].options().get_lr());
  }
}

TEST_F(RunScheduleTest, ChangedStepsCountEpochsFromTheBeginning) {
  const c10::IValue saved = SavedAfterThree(Steps(2, 0.5), optimizer_);
  ASSERT_EQ(rate(), 0.5);
  const auto changed = ResumeSchedule(saved, 3, Steps(2, 0.5), Steps(5, 0.1), optimizer_);
  ABSL_ASSERT_OK(changed);
  EXPECT_THAT(Rates(changed->get(), 2), ::testing::ElementsAre(0.5, 0.5, ::testing::DoubleNear(0.05, 1e-12)));
}

TEST_F(RunScheduleTest, MayComeAndGo) {
  const auto come = ResumeSchedule(c10::IValue(), 3, {}, Steps(4, 0.5), optimizer_);
  ABSL_ASSERT_OK(come);
  EXPECT_THAT(Rates(come->get(), 2), ::testing::ElementsAre(1, 0.5, 0.5));
  const c10::IValue saved = (*come)->State();
  const auto gone = ResumeSchedule(saved, 5, Steps(4, 0.5), {}, optimizer_);
  ABSL_ASSERT_OK(gone);
  EXPECT_EQ(*gone, nullptr);
  EXPECT_EQ(rate(), 0.5);
}

TEST_F(RunScheduleTest, RefusesAStateOfAnotherSchedule) {
  const c10::IValue saved = SavedAfterThree(Steps(2, 0.5), optimizer_);
  EXPECT_THAT(ResumeSchedule(saved, 3, {}, {}, optimizer_),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("without a schedule it must be None")));
  EXPECT_THAT(ResumeSchedule(saved, 3, {.lr_cosine_epochs = 2}, {.lr_cosine_epochs = 2}, optimizer_),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("CosineAnnealingLR")));
  EXPECT_THAT(ResumeSchedule(c10::IValue(), 3, Steps(2, 0.5), Steps(2, 0.5), optimizer_),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("StepLR")));
}

}  // namespace
}  // namespace cohort
