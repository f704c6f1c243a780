#include "cohort/trainers/lr_scheduler.h"

#include <cmath>
#include <limits>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "ATen/ops/ones.h"
#include "absl/status/status.h"
#include "absl/status/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "torch/optim/sgd.h"

namespace cohort {
namespace {

using ::absl_testing::IsOk;
using ::absl_testing::StatusIs;
using ::c10::impl::GenericDict;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Two groups, with rates 1 and 2.
torch::optim::SGD MakeOptimizer() {
  std::vector<torch::optim::OptimizerParamGroup> groups;
  groups.push_back(torch::optim::OptimizerParamGroup({at::ones({1})}));
  groups.push_back(torch::optim::OptimizerParamGroup({at::ones({1})}));
  torch::optim::SGD optimizer(groups, torch::optim::SGDOptions(1));
  optimizer.param_groups()[1].options().set_lr(2);
  return optimizer;
}

std::vector<double> RatesOf(const torch::optim::SGD& optimizer) {
  std::vector<double> rates;
  for (const auto& group : optimizer.param_groups()) rates.push_back(group.options().get_lr());
  return rates;
}

std::vector<std::string> KeysOf(const LRScheduler& scheduler) {
  std::vector<std::string> keys;
  const c10::IValue state = scheduler.State();
  for (const auto& entry : state.toGenericDict()) keys.push_back(entry.key().toStringRef());
  return keys;
}

std::string Dump(const LRScheduler& scheduler) {
  std::ostringstream out;
  out.precision(std::numeric_limits<double>::max_digits10);
  out << scheduler.State();
  return out.str();
}

TEST(StepLRTest, MultipliesEveryFewEpochs) {
  torch::optim::SGD optimizer = MakeOptimizer();
  const auto scheduler = StepLR::Create(optimizer, {.step_size = 2, .gamma = 0.5}).value();
  std::vector<double> rates;
  for (int i = 0; i < 5; ++i) {
    rates.push_back(RatesOf(optimizer)[1]);
    EXPECT_EQ(scheduler->last_lr(), RatesOf(optimizer));
    EXPECT_THAT(scheduler->Step(), IsOk());
  }
  EXPECT_THAT(rates, ElementsAre(2, 2, 1, 1, 0.5));
}

TEST(CosineAnnealingLRTest, GoesDownAndUpAgain) {
  torch::optim::SGD optimizer = MakeOptimizer();
  const auto scheduler = CosineAnnealingLR::Create(optimizer, {.T_max = 4, .eta_min = 0.5}).value();
  std::vector<double> rates;
  for (int i = 0; i < 9; ++i) {
    rates.push_back(RatesOf(optimizer)[1]);
    ASSERT_THAT(scheduler->Step(), IsOk());
  }
  for (int i = 0; i < 9; ++i) EXPECT_NEAR(rates[i], 0.5 + 1.5 * (1 + std::cos(std::acos(-1) * i / 4)) / 2, 1e-12) << i;
}

TEST(LinearLRTest, WarmsUp) {
  torch::optim::SGD optimizer = MakeOptimizer();
  const auto scheduler = LinearLR::Create(optimizer, {.start_factor = 0.25, .total_iters = 3}).value();
  std::vector<double> rates;
  for (int i = 0; i < 6; ++i) {
    rates.push_back(RatesOf(optimizer)[0]);
    ASSERT_THAT(scheduler->Step(), IsOk());
  }
  EXPECT_THAT(rates, ElementsAre(0.25, 0.5, 0.75, 1, 1, 1));
}

TEST(ReduceLROnPlateauTest, ReducesWhenTheMetricStalls) {
  torch::optim::SGD optimizer = MakeOptimizer();
  const auto scheduler =
      ReduceLROnPlateau::Create(optimizer, {.factor = 0.5, .patience = 1, .cooldown = 1, .min_lr = {0.75, 0}}).value();
  std::vector<double> rates;
  for (const double metric : {5.0, 4.0, 4.0, 4.0, 4.0, 4.0, 4.0}) {
    ASSERT_THAT(scheduler->Step(metric), IsOk());
    rates.push_back(RatesOf(optimizer)[1]);
  }
  EXPECT_THAT(rates, ElementsAre(2, 2, 2, 1, 1, 1, 0.5));
  EXPECT_THAT(scheduler->last_lr(), ElementsAre(0.75, 0.5));
}

TEST(ReduceLROnPlateauTest, NaNIsNoImprovement) {
  torch::optim::SGD optimizer = MakeOptimizer();
  for (const char* mode : {"min", "max"}) {
    for (const char* threshold_mode : {"rel", "abs"}) {
      const auto scheduler =
          ReduceLROnPlateau::Create(optimizer, {.mode = mode, .patience = 0, .threshold_mode = threshold_mode}).value();
      const double before = RatesOf(optimizer)[0];
      ASSERT_THAT(scheduler->Step(std::nan("")), IsOk());
      EXPECT_LT(RatesOf(optimizer)[0], before) << mode << " " << threshold_mode;
    }
  }
}

// ---- State ----

TEST(LRSchedulerTest, StatesHavePythonsKeysInPythonsOrder) {
  torch::optim::SGD optimizer = MakeOptimizer();
  EXPECT_THAT(KeysOf(*StepLR::Create(optimizer, {.step_size = 2}).value()),
              ElementsAre("step_size", "gamma", "base_lrs", "last_epoch", "_step_count", "_is_initial",
                          "_get_lr_called_within_step", "_last_lr"));
  EXPECT_THAT(
      KeysOf(*ReduceLROnPlateau::Create(optimizer).value()),
      ElementsAre("factor", "default_min_lr", "min_lrs", "patience", "cooldown", "eps", "last_epoch", "_last_lr",
                  "mode_worse", "mode", "threshold", "threshold_mode", "best", "cooldown_counter", "num_bad_epochs"));
}

// Runs `steps`, then a fresh schedule with other options takes over; both go on alike.
template <typename Scheduler, typename Options, typename Step>
void ExpectResumes(const Options& options, const Options& others, const Step& step) {
  torch::optim::SGD optimizer = MakeOptimizer(), other_optimizer = MakeOptimizer();
  const auto scheduler = Scheduler::Create(optimizer, options).value();
  const auto resumed = Scheduler::Create(other_optimizer, others).value();
  for (int i = 0; i < 7; ++i) ASSERT_THAT(step(*scheduler, i), IsOk());
  for (size_t i = 0; i < 2; ++i) {  // which loading the optimizer does
    other_optimizer.param_groups()[i].options().set_lr(RatesOf(optimizer)[i]);
  }
  ASSERT_THAT(resumed->Load(scheduler->State()), IsOk());
  EXPECT_EQ(Dump(*resumed), Dump(*scheduler));
  for (int i = 7; i < 20; ++i) {
    ASSERT_THAT(step(*scheduler, i), IsOk());
    ASSERT_THAT(step(*resumed, i), IsOk());
    EXPECT_EQ(RatesOf(other_optimizer), RatesOf(optimizer)) << i;
  }
  EXPECT_EQ(Dump(*resumed), Dump(*scheduler));
}

TEST(LRSchedulerTest, GoesOnWhereItStopped) {
  const auto step = [](EpochScheduler& scheduler, int) { return scheduler.Step(); };
  ExpectResumes<StepLR, StepLROptions>({.step_size = 3, .gamma = 0.7}, {.step_size = 1}, step);
  ExpectResumes<CosineAnnealingLR, CosineAnnealingLROptions>({.T_max = 5, .eta_min = 0.1}, {.T_max = 1}, step);
  ExpectResumes<LinearLR, LinearLROptions>({.start_factor = 0.1, .total_iters = 9}, {}, step);
  ExpectResumes<ReduceLROnPlateau, ReduceLROnPlateauOptions>(
      {.mode = "max", .patience = 2, .threshold_mode = "abs"}, {.min_lr = {1, 1}},
      [](ReduceLROnPlateau& scheduler, int i) { return scheduler.Step(i % 4); });
}

// Expects that a change of one key is refused and changes nothing.
template <typename Matcher>
void ExpectRefused(LRScheduler& scheduler, const char* key, const c10::IValue& value, const Matcher& message) {
  const std::string before = Dump(scheduler);
  GenericDict state = scheduler.State().toGenericDict();
  state.insert_or_assign("last_epoch", 77);
  state.insert_or_assign(key, value);
  EXPECT_THAT(scheduler.Load(state), StatusIs(absl::StatusCode::kInvalidArgument, message));
  EXPECT_EQ(Dump(scheduler), before);
}

TEST(LRSchedulerTest, RefusesStatesThatAreNone) {
  torch::optim::SGD optimizer = MakeOptimizer();
  const auto step = StepLR::Create(optimizer, {.step_size = 2}).value();
  EXPECT_THAT(step->Load(3), StatusIs(absl::StatusCode::kInvalidArgument, "the state of StepLR is an int, not a dict"));
  ExpectRefused(*step, "step_size", 0, "StepLR: step_size is 0, not 1 or more");
  ExpectRefused(*step, "gamma", "0.1", HasSubstr("\"gamma\" is a str"));
  ExpectRefused(*step, "last_epoch", -1, HasSubstr("last_epoch is -1"));
  ExpectRefused(*step, "last_epoch", int64_t{1} << 62, HasSubstr("last_epoch is"));
  ExpectRefused(*step, "_step_count", 0, HasSubstr("_step_count is 0"));
  ExpectRefused(*step, "base_lrs", c10::List<double>(), HasSubstr("base_lrs is of 0 groups"));
  ExpectRefused(*step, "_last_lr", c10::List<double>({1, 2, 3}), HasSubstr("_last_lr is of 3 groups"));
  ExpectRefused(*step, "lr_lambdas", c10::List<double>(), "the state of StepLR: unknown key \"lr_lambdas\"");

  const auto cosine = CosineAnnealingLR::Create(optimizer, {.T_max = 2}).value();
  ExpectRefused(*cosine, "T_max", 0, HasSubstr("T_max is 0"));
  EXPECT_THAT(cosine->Load(step->State()), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("unknown key")));

  const auto linear = LinearLR::Create(optimizer, {}).value();
  ExpectRefused(*linear, "start_factor", 0.0, HasSubstr("start_factor is 0"));
  ExpectRefused(*linear, "end_factor", std::nan(""), HasSubstr("end_factor is nan"));
  ExpectRefused(*linear, "total_iters", -1, HasSubstr("total_iters is -1"));

  const auto plateau = ReduceLROnPlateau::Create(optimizer).value();
  ExpectRefused(*plateau, "mode", "mid\n", "ReduceLROnPlateau: mode is mid\\n, not min or max");
  ExpectRefused(*plateau, "mode_worse", -kInfinity, HasSubstr("mode_worse is -inf"));
  ExpectRefused(*plateau, "threshold_mode", "none", HasSubstr("threshold_mode is none"));
  ExpectRefused(*plateau, "factor", 1.0, HasSubstr("factor is 1"));
  ExpectRefused(*plateau, "min_lrs", c10::List<double>({0}), HasSubstr("min_lrs is of 1 groups"));
  ExpectRefused(*plateau, "cooldown_counter", -1, HasSubstr("cooldown_counter is -1"));
}

TEST(LRSchedulerTest, TakesStatesOfOlderPythons) {
  torch::optim::SGD optimizer = MakeOptimizer();
  const auto scheduler = StepLR::Create(optimizer, {.step_size = 2}).value();
  GenericDict state = scheduler->State().toGenericDict();
  EXPECT_EQ(state.erase("_is_initial"), 1u);
  state.insert("verbose", false);
  state.insert_or_assign("gamma", 1);
  EXPECT_THAT(scheduler->Load(state), IsOk());
  EXPECT_EQ(state.erase("gamma"), 1u);
  EXPECT_THAT(scheduler->Load(state),
              StatusIs(absl::StatusCode::kInvalidArgument, "the state of StepLR has no \"gamma\""));
}

TEST(LRSchedulerTest, RefusesOptionsOutOfRangeAndLeavesTheRates) {
  torch::optim::SGD optimizer = MakeOptimizer();
  constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
  EXPECT_THAT(StepLR::Create(optimizer, {.step_size = 0}), StatusIs(kInvalid, HasSubstr("step_size is 0")));
  EXPECT_THAT(CosineAnnealingLR::Create(optimizer, {.T_max = -1}), StatusIs(kInvalid, HasSubstr("T_max is -1")));
  EXPECT_THAT(LinearLR::Create(optimizer, {.start_factor = 1.5}), StatusIs(kInvalid, HasSubstr("start_factor is 1.5")));
  EXPECT_THAT(ReduceLROnPlateau::Create(optimizer, {.factor = 1}), StatusIs(kInvalid, HasSubstr("factor is 1")));
  EXPECT_THAT(ReduceLROnPlateau::Create(optimizer, {.mode = "up"}), StatusIs(kInvalid, HasSubstr("mode is up")));
  EXPECT_THAT(ReduceLROnPlateau::Create(optimizer, {.min_lr = {1, 2, 3}}),
              StatusIs(kInvalid, HasSubstr("3 numbers for 2 groups")));
  EXPECT_THAT(RatesOf(optimizer), ElementsAre(1, 2));
}

TEST(LRSchedulerTest, NoticesGroupsThatWereAddedLater) {
  torch::optim::SGD optimizer = MakeOptimizer();
  const auto scheduler = StepLR::Create(optimizer, {.step_size = 1}).value();
  const auto plateau = ReduceLROnPlateau::Create(optimizer, {.patience = 0}).value();
  optimizer.add_param_group(torch::optim::OptimizerParamGroup({at::ones({1})}));
  EXPECT_THAT(scheduler->Step(),
              StatusIs(absl::StatusCode::kFailedPrecondition, "StepLR was made for 2 groups, and the optimizer has 3"));
  EXPECT_THAT(plateau->Step(1), StatusIs(absl::StatusCode::kFailedPrecondition));
}

}  // namespace
}  // namespace cohort
