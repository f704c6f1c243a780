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
          .accumulate = 2,
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
  const absl::StatusOr<SavedRun> read =
      ReadRunState(RunState({.settings = Some(), .sampler = "after 64", .loss_sums = {0.1, 0.25}}));
  ASSERT_THAT(read, IsOk());
  EXPECT_THAT(Changes(read->settings, Some()), IsEmpty());
  EXPECT_EQ(read->sampler.toStringRef(), "after 64");
  EXPECT_THAT(read->loss_sums, ElementsAre(0.1, 0.25));
  EXPECT_THAT(ReadRunState(RunState({})), IsOk());
}

TEST(RunSettingsTest, EveryChangeIsNamedWithBothValues) {
  RunSettings now = Some();
  now.batch_size = 3;
  now.seed = "0";
  EXPECT_THAT(Changes(Some(), now), ElementsAre("batch_size: 32 -> 3", "seed: \"18446744073709551615\" -> \"0\""));
  EXPECT_THAT(
      Changes(Some(), RunSettings()),
      ElementsAre("rows: 442 -> 0", "features: 10 -> 0", "targets: 1 -> 0", "data_checksum: 4275878552 -> 0",
                  "batch_size: 32 -> 0", "accumulate: 2 -> 1", "seed: \"18446744073709551615\" -> \"\"",
                  "optimizer: \"sgd\" -> \"\"", "momentum: 0.9 -> 0", "lr_step_size: 5 -> 0", "lr_gamma: 0.1 -> 0"));
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
  EXPECT_THAT(CheckCanGoOn({Some()}, now), IsOk());
}

TEST(RunSettingsTest, WhatItCannotGoOnWithIsNamedAloneAndWithTheReason) {
  RunSettings now = Some();
  now.batch_size = 3;
  now.optimizer = "adam";
  EXPECT_THAT(CheckCanGoOn({Some()}, now),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "saved with optimizer=\"sgd\"; now optimizer=\"adam\": the state of one optimizer means nothing "
                       "to another one"));
  now = Some();
  now.rows = 5;
  now.data_checksum = 1;
  EXPECT_THAT(CheckCanGoOn({Some()}, now),
              Refused("saved with rows=442 data_checksum=4275878552; now rows=5 data_checksum=1: features are "));
  now = Some();
  now.features = 3;
  EXPECT_THAT(CheckCanGoOn({Some()}, now), Refused("saved with features=10; now features=3: "));
  now = Some();
  now.targets = 3;
  EXPECT_THAT(CheckCanGoOn({Some()}, now), Refused("saved with targets=1; now targets=3: "));
}

TEST(RunSettingsTest, WhatIsHeldOutStaysHeldOut) {
  RunSettings now = Some();
  now.validation = 0.2;
  EXPECT_THAT(CheckCanGoOn({Some()}, now), Refused("saved with validation=0; now validation=0.2: rows that the model"));
}

TEST(RunSettingsTest, AScheduleThatGoesOnFromItsRateStays) {
  RunSettings now = Some();
  now.lr_cosine_epochs = 5;
  EXPECT_THAT(CheckCanGoOn({Some()}, now), Refused("now lr_cosine_epochs=5: such a schedule"));
  now = Some();
  now.lr_warmup_epochs = 5;
  EXPECT_THAT(CheckCanGoOn({Some()}, now), Refused("now lr_warmup_epochs=5: such a schedule"));
}

TEST(RunSettingsTest, RmspropCannotBeginToHaveMomentum) {
  RunSettings saved = Some(), now = Some();
  saved.optimizer = now.optimizer = "rmsprop";
  saved.momentum = 0;
  EXPECT_THAT(CheckCanGoOn({saved}, now), Refused("saved with momentum=0; now momentum=0.9: the saved rmsprop"));
  saved.momentum = 0.5;
  EXPECT_THAT(CheckCanGoOn({saved}, now), IsOk());
  saved.optimizer = now.optimizer = "sgd";
  saved.momentum = 0;
  EXPECT_THAT(CheckCanGoOn({saved}, now), IsOk());
}

TEST(RunSettingsTest, SaysWhatIsNoSettings) {
  EXPECT_THAT(ReadRunState(c10::IValue()), Refused("\"data\" is None, not a dict"));
  const c10::IValue state = RunState({Some()});
  state.toGenericDict().insert_or_assign("seed", 5);
  EXPECT_THAT(ReadRunState(state), Refused("\"seed\""));
  ASSERT_EQ(state.toGenericDict().erase("seed"), 1u);
  EXPECT_THAT(ReadRunState(state), Refused("\"seed\""));
}

TEST(RunSettingsTest, SaysWhatIsNoPosition) {
  const c10::IValue state = RunState({.settings = Some(), .loss_sums = {1, std::numeric_limits<double>::infinity()}});
  EXPECT_THAT(ReadRunState(state), Refused("\"loss_sums\" has inf; it must be finite"));
  ASSERT_EQ(state.toGenericDict().erase("sampler"), 1u);
  EXPECT_THAT(ReadRunState(state), Refused("\"data\" has no \"sampler\""));
}

}  // namespace
}  // namespace cohort
