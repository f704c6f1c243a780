#include "cohort/trainers/trainer_options.h"

#include <cmath>
#include <limits>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/status_matchers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort {
namespace {

using ::absl_testing::IsOk;
using ::absl_testing::StatusIs;
using ::testing::HasSubstr;

absl::Status Check(const TrainerOptions& options) { return CheckTrainerOptions(options, {"r2"}); }

auto Refused(std::string_view message) { return StatusIs(absl::StatusCode::kInvalidArgument, std::string(message)); }

TEST(CheckTrainerOptionsTest, WhatIsTrainedIsNamedWithItsValueAndWhatIsAllowed) {
  EXPECT_THAT(Check({}), IsOk());
  EXPECT_THAT(Check({.epochs = 0}), Refused("epochs=0: must be from 1 to 1000000000"));
  EXPECT_THAT(Check({.batch_size = 0}), Refused("batch_size=0: must be at least 1"));
  EXPECT_THAT(Check({.accumulate = 0}), Refused("accumulate=0: must be at least 1"));
  EXPECT_THAT(Check({.optimizer = "lbfgs"}), Refused("optimizer=lbfgs: must be sgd, adam, adamw, rmsprop or adagrad"));
  for (const double bad : {0.0, -1.0, std::nan(""), std::numeric_limits<double>::infinity()}) {
    EXPECT_THAT(Check({.learning_rate = bad}),
                Refused(absl::StrCat("learning_rate=", bad, ": must be more than 0, and finite as a float")));
    EXPECT_THAT(Check({.clip_grad_norm = bad}),
                Refused(absl::StrCat("clip_grad_norm=", bad, ": must be more than 0, and finite as a float")));
  }
  for (const double bad : {1.0, -0.1, std::nan("")}) {
    EXPECT_THAT(Check({.validation = bad}),
                Refused(absl::StrCat("validation=", bad, ": must be at least 0 and below 1")));
  }
  EXPECT_THAT(Check({.prefetch = -1}), Refused("prefetch=-1: must be from 0 to 1024"));
  EXPECT_THAT(Check({.prefetch = 1025}), Refused("prefetch=1025: must be from 0 to 1024"));
}

TEST(CheckTrainerOptionsTest, ThereIsOneScheduleAtMost) {
  EXPECT_THAT(Check({.lr_step_size = 2, .lr_gamma = 0.5}), IsOk());
  EXPECT_THAT(Check({.lr_cosine_epochs = 2}), IsOk());
  EXPECT_THAT(Check({.lr_warmup_epochs = 2}), IsOk());
  EXPECT_THAT(Check({.lr_warmup_epochs = -1}),
              Refused("lr_warmup_epochs=-1: must be at least 1, or 0 for a rate that stays"));
  EXPECT_THAT(Check({.lr_step_size = 2, .lr_cosine_epochs = 3}),
              Refused("lr_cosine_epochs=3: there is a schedule already, lr_step_size; one at a time"));
  EXPECT_THAT(Check({.lr_gamma = 0.5}), Refused("lr_gamma=0.5: means nothing without lr_step_size"));
}

TEST(CheckTrainerOptionsTest, WhatIsSavedIsNamedWithItsValueAndWhatIsAllowed) {
  EXPECT_THAT(Check({.checkpoint_dir = ""}), Refused("checkpoint_dir=: must be the path of a directory"));
  EXPECT_THAT(Check({.format = "pth"}), Refused("format=pth: must be pt or safetensors"));
  EXPECT_THAT(Check({.save_every = -1}), Refused("save_every=-1: must be at least 1"));
  EXPECT_THAT(Check({.save_every_steps = 0}), Refused("save_every_steps=0: must be at least 1"));
  EXPECT_THAT(Check({.save_every_time = absl::ZeroDuration()}),
              Refused("save_every_time=0: must be more than 0, for example 90s or 30m"));
  EXPECT_THAT(Check({.stop_check_every = 0}), Refused("stop_check_every=0: must be at least 1"));
  EXPECT_THAT(Check({.keep = 0}), Refused("keep=0: must be at least 1"));
  EXPECT_THAT(Check({.keep_best = 0}), Refused("keep_best=0: must be at least 1"));
  EXPECT_THAT(Check({.run_id = std::string(257, 'x')}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("at most 256 printable ASCII characters")));
}

TEST(CheckTrainerOptionsTest, TheBestAreBestByAMetricOfTheTask) {
  EXPECT_THAT(Check({.keep_best = 1, .keep_best_metric = "r2"}), IsOk());
  EXPECT_THAT(Check({.keep_best = 1, .keep_best_metric = "loss"}), IsOk());
  EXPECT_THAT(Check({.keep_best = 1, .keep_best_metric = "x\n"}), Refused("keep_best_metric=x\\n: must be loss or r2"));
  EXPECT_THAT(CheckTrainerOptions({.keep_best = 1, .keep_best_metric = "r2"}, {"accuracy"}),
              Refused("keep_best_metric=r2: must be loss or accuracy"));
}

TEST(ShowTrainerOptionsTest, OtherOptionsLookOtherwise) {
  const std::string shown = ShowTrainerOptions({});
  EXPECT_NE(ShowTrainerOptions({.accumulate = 2}), shown);
  EXPECT_NE(ShowTrainerOptions({.clip_grad_norm = 1}), shown);
  EXPECT_NE(ShowTrainerOptions({.validation = 0.1}), shown);
  EXPECT_NE(ShowTrainerOptions({.stop_signals = {15}}), shown);
  EXPECT_NE(ShowTrainerOptions({.stop_check_every = 1}), shown);
}

}  // namespace
}  // namespace cohort
