#include "cohort/trainers/run_settings.h"

#include <limits>
#include <string>
#include <vector>

#include "ATen/core/ivalue.h"
#include "absl/status/status.h"
#include "absl/status/status_matchers.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort {
namespace {

using ::absl_testing::IsOk;
using ::absl_testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

RunSettings Some() {
  return {.rows = 442,
          .features = 10,
          .targets = 1,
          .data_checksum = 0xfedcba98,
          .batch_size = 32,
          .seed = "18446744073709551615",
          .optimizer = "sgd",
          .momentum = 0.9,
          .lr_step_size = 5,
          .lr_gamma = 0.1};
}

// Every change as "NAME: SAVED -> NOW".
std::vector<std::string> Changes(const RunSettings& saved, const RunSettings& now) {
  std::vector<std::string> shown;
  for (const SettingChange& change : ChangesOf(saved, now)) {
    shown.push_back(absl::StrCat(change.name, ": ", change.saved, " -> ", change.now));
  }
  return shown;
}

auto Refused(const std::string& message) { return StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(message)); }

TEST(RunSettingsTest, AreReadAsTheyWereSaved) {
  const absl::StatusOr<SavedRun> read = ReadRunState(RunState({Some(), {.rows_done = 64, .squared_error = 0.1}}));
  ASSERT_THAT(read, IsOk());
  EXPECT_THAT(Changes(read->settings, Some()), IsEmpty());
  EXPECT_EQ(read->position.rows_done, 64);
  EXPECT_EQ(read->position.squared_error, 0.1);
  EXPECT_THAT(ReadRunState(RunState({})), IsOk());
}

TEST(RunSettingsTest, WithoutAPositionItIsTheEndOfAnEpoch) {
  const c10::IValue state = RunState({Some(), {.rows_done = 64, .squared_error = 0.1}});
  ASSERT_EQ(state.toGenericDict().erase("rows_done"), 1u);
  ASSERT_EQ(state.toGenericDict().erase("squared_error"), 1u);
  const absl::StatusOr<SavedRun> read = ReadRunState(state);
  ASSERT_THAT(read, IsOk());
  EXPECT_EQ(read->position.rows_done, 0);
  EXPECT_EQ(read->position.squared_error, 0);
}

TEST(RunSettingsTest, EveryChangeIsNamedWithBothValues) {
  RunSettings now = Some();
  now.batch_size = 3;
  now.seed = "0";
  EXPECT_THAT(Changes(Some(), now), ElementsAre("batch_size: 32 -> 3", "seed: \"18446744073709551615\" -> \"0\""));
  EXPECT_THAT(Changes(Some(), RunSettings()),
              ElementsAre("rows: 442 -> 0", "features: 10 -> 0", "targets: 1 -> 0", "data_checksum: 4275878552 -> 0",
                          "batch_size: 32 -> 0", "seed: \"18446744073709551615\" -> \"\"", "optimizer: \"sgd\" -> \"\"",
                          "momentum: 0.9 -> 0", "lr_step_size: 5 -> 0", "lr_gamma: 0.1 -> 0"));
  // The smallest difference there is.
  now = Some();
  now.momentum = 0.9 + std::numeric_limits<double>::epsilon() / 2;
  EXPECT_THAT(Changes(Some(), now), ElementsAre("momentum: 0.9 -> 0.9000000000000001"));
}

TEST(RunSettingsTest, WhatTheRunCanGoOnWithMayChange) {
  RunSettings now = Some();
  now.batch_size = 3;
  now.seed = "0";
  now.momentum = 0;
  now.lr_step_size = 7;
  now.lr_gamma = 0.5;
  EXPECT_THAT(CheckCanGoOn({Some(), {}}, now), IsOk());
}

TEST(RunSettingsTest, WhatItCannotGoOnWithIsNamedAloneAndWithTheReason) {
  RunSettings now = Some();
  now.batch_size = 3;
  now.optimizer = "adam";
  EXPECT_THAT(CheckCanGoOn({Some(), {}}, now),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "saved with optimizer=\"sgd\"; now optimizer=\"adam\": the state of one optimizer means nothing "
                       "to another one"));
  now = Some();
  now.rows = 5;
  now.data_checksum = 1;
  EXPECT_THAT(CheckCanGoOn({Some(), {}}, now),
              Refused("saved with rows=442 data_checksum=4275878552; now rows=5 data_checksum=1: features are "));
  now = Some();
  now.features = 3;
  EXPECT_THAT(CheckCanGoOn({Some(), {}}, now), Refused("saved with features=10; now features=3: "));
  now = Some();
  now.targets = 3;
  EXPECT_THAT(CheckCanGoOn({Some(), {}}, now), Refused("saved with targets=1; now targets=3: "));
}

TEST(RunSettingsTest, WithinAnEpochTheSeedStays) {
  RunSettings now = Some();
  now.seed = "0";
  EXPECT_THAT(CheckCanGoOn({Some(), {.rows_done = 32, .squared_error = 1}}, now),
              Refused("now seed=\"0\": the epoch that was begun"));
}

TEST(RunSettingsTest, RmspropCannotBeginToHaveMomentum) {
  RunSettings saved = Some(), now = Some();
  saved.optimizer = now.optimizer = "rmsprop";
  saved.momentum = 0;
  EXPECT_THAT(CheckCanGoOn({saved, {}}, now), Refused("saved with momentum=0; now momentum=0.9: the saved rmsprop"));
  saved.momentum = 0.5;
  EXPECT_THAT(CheckCanGoOn({saved, {}}, now), IsOk());
  saved.optimizer = now.optimizer = "sgd";
  saved.momentum = 0;
  EXPECT_THAT(CheckCanGoOn({saved, {}}, now), IsOk());
}

TEST(RunSettingsTest, SaysWhatIsNoSettings) {
  EXPECT_THAT(ReadRunState(c10::IValue()), Refused("\"data\" is None, not a dict"));
  const c10::IValue state = RunState({Some(), {}});
  state.toGenericDict().insert_or_assign("seed", 5);
  EXPECT_THAT(ReadRunState(state), Refused("\"seed\""));
  ASSERT_EQ(state.toGenericDict().erase("seed"), 1u);
  EXPECT_THAT(ReadRunState(state), Refused("\"seed\""));
}

TEST(RunSettingsTest, SaysWhatIsNoPosition) {
  const auto read = [](EpochPosition position) { return ReadRunState(RunState({Some(), position})); };
  EXPECT_THAT(read({.rows_done = 441, .squared_error = 1}), IsOk());
  EXPECT_THAT(read({.rows_done = 442, .squared_error = 1}),
              Refused("\"rows_done\" is 442; it must be at least 0 and less than the 442"));
  EXPECT_THAT(read({.rows_done = -1, .squared_error = 1}), Refused("\"rows_done\" is -1"));
  for (const double error : {-1.0, std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) {
    EXPECT_THAT(read({.rows_done = 1, .squared_error = error}), Refused("\"squared_error\" of 1 rows is "));
  }
  EXPECT_THAT(read({.rows_done = 0, .squared_error = 1}), Refused("\"squared_error\" of 0 rows is 1"));
}

}  // namespace
}  // namespace cohort
