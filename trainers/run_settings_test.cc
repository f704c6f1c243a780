#include "cohort/trainers/run_settings.h"

#include <limits>
#include <string>

#include "ATen/core/ivalue.h"
#include "absl/status/status.h"
#include "absl/status/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort {
namespace {

using ::absl_testing::IsOk;
using ::absl_testing::StatusIs;
using ::testing::HasSubstr;

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

auto Refused(const std::string& message) { return StatusIs(absl::StatusCode::kInvalidArgument, message); }

TEST(RunSettingsTest, AreAcceptedAsTheyWereSaved) {
  EXPECT_THAT(Some().CheckSavedAs(Some().State()), IsOk());
  EXPECT_THAT(RunSettings().CheckSavedAs(RunSettings().State()), IsOk());
}

TEST(RunSettingsTest, EveryDifferenceIsNamedWithBothValues) {
  RunSettings now = Some();
  now.features = 3;
  now.seed = "0";
  EXPECT_THAT(now.CheckSavedAs(Some().State()),
              Refused("saved with features=10 seed=\"18446744073709551615\"; now features=3 seed=\"0\""));
  EXPECT_THAT(RunSettings().CheckSavedAs(Some().State()),
              Refused("saved with rows=442 features=10 targets=1 data_checksum=4275878552 batch_size=32 "
                      "seed=\"18446744073709551615\" optimizer=\"sgd\" momentum=0.9 lr_step_size=5 lr_gamma=0.1; now "
                      "rows=0 features=0 targets=0 data_checksum=0 batch_size=0 seed=\"\" optimizer=\"\" momentum=0 "
                      "lr_step_size=0 lr_gamma=0"));
  // The smallest difference there is.
  now = Some();
  now.momentum = 0.9 + std::numeric_limits<double>::epsilon() / 2;
  EXPECT_THAT(now.CheckSavedAs(Some().State()), Refused("saved with momentum=0.9; now momentum=0.9000000000000001"));
}

TEST(RunSettingsTest, SaysWhatIsNoSettings) {
  EXPECT_THAT(Some().CheckSavedAs(c10::IValue()), Refused("\"data\" is None, not a dict"));
  const c10::IValue state = Some().State();
  state.toGenericDict().insert_or_assign("seed", 5);
  EXPECT_THAT(Some().CheckSavedAs(state), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("\"seed\"")));
  ASSERT_EQ(state.toGenericDict().erase("seed"), 1u);
  EXPECT_THAT(Some().CheckSavedAs(state), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("\"seed\"")));
}

}  // namespace
}  // namespace cohort
