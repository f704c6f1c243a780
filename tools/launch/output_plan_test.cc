#include "cohort/tools/launch/output_plan.h"

#include <string>

#include "absl/status/status.h"
#include "absl/status/status_matchers.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort::launch {
namespace {

using ::absl_testing::IsOkAndHolds;
using ::absl_testing::StatusIs;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr StreamPlan kShown = {.to_console = true, .to_file = false};
constexpr StreamPlan kFileOnly = {.to_console = false, .to_file = true};
constexpr StreamPlan kBoth = {.to_console = true, .to_file = true};
constexpr StreamPlan kNowhere = {.to_console = false, .to_file = false};

auto Rank(StreamPlan out, StreamPlan err) { return testing::Eq(RankOutputPlan{.out = out, .err = err}); }

TEST(OutputPlanTest, WithoutFlagsEverythingIsShown) {
  EXPECT_THAT(MakeOutputPlan({}, 3),
              IsOkAndHolds(ElementsAre(Rank(kShown, kShown), Rank(kShown, kShown), Rank(kShown, kShown))));
  EXPECT_THAT(MakeOutputPlan({.redirects = "0", .tee = "0"}, 2), IsOkAndHolds(Each(Rank(kShown, kShown))));
}

TEST(OutputPlanTest, ANumberIsForAllRanks) {
  EXPECT_THAT(MakeOutputPlan({.redirects = "1"}, 2), IsOkAndHolds(Each(Rank(kFileOnly, kShown))));
  EXPECT_THAT(MakeOutputPlan({.redirects = "2"}, 2), IsOkAndHolds(Each(Rank(kShown, kFileOnly))));
  EXPECT_THAT(MakeOutputPlan({.redirects = "3"}, 2), IsOkAndHolds(Each(Rank(kFileOnly, kFileOnly))));
  EXPECT_THAT(MakeOutputPlan({.tee = "3"}, 2), IsOkAndHolds(Each(Rank(kBoth, kBoth))));
}

TEST(OutputPlanTest, AListIsForTheRanksItNames) {
  EXPECT_THAT(MakeOutputPlan({.redirects = "2:3,0:1"}, 3),
              IsOkAndHolds(ElementsAre(Rank(kFileOnly, kShown), Rank(kShown, kShown), Rank(kFileOnly, kFileOnly))));
  EXPECT_THAT(MakeOutputPlan({.tee = "11:2"}, 12).value()[11], Rank(kShown, kBoth));
}

TEST(OutputPlanTest, TeeWinsOverRedirect) {
  EXPECT_THAT(MakeOutputPlan({.redirects = "3", .tee = "0:3"}, 2),
              IsOkAndHolds(ElementsAre(Rank(kBoth, kBoth), Rank(kFileOnly, kFileOnly))));
}

TEST(OutputPlanTest, TheFilterIsForTheConsoleAlone) {
  EXPECT_THAT(MakeOutputPlan({.tee = "1", .local_ranks_filter = "1"}, 2),
              IsOkAndHolds(ElementsAre(Rank(kFileOnly, kNowhere), Rank(kBoth, kShown))));
}

TEST(OutputPlanTest, OnlyWhatIsWrittenHasFiles) {
  EXPECT_FALSE(HasFiles(*MakeOutputPlan({.redirects = "1:0", .local_ranks_filter = "0"}, 2)));
  EXPECT_TRUE(HasFiles(*MakeOutputPlan({.redirects = "1:2"}, 2)));
  EXPECT_TRUE(HasFiles(*MakeOutputPlan({.tee = "1"}, 2)));
}

TEST(OutputPlanTest, WhatIsMalformedIsQuoted) {
  for (const std::string value : {"4", "-1", "all", "0:4", "0:", ":1", "0:1,", "0:1;1:1", "03", "0:1:1"}) {
    const absl::Status status = MakeOutputPlan({.redirects = value}, 2).status();
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kInvalidArgument,
                                 HasSubstr(absl::StrCat("--redirects=", value, ": must be "))))
        << value;
  }
  for (const std::string value : {"a", "0,", "0;1", "0-1", " 0"}) {
    EXPECT_THAT(MakeOutputPlan({.local_ranks_filter = value}, 2),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         absl::StrCat("--local-ranks-filter=", value, ": must be of local ranks, 0 to 1")));
  }
}

TEST(OutputPlanTest, RanksThatAreNotThereOrNamedTwiceAreErrors) {
  EXPECT_THAT(MakeOutputPlan({.tee = "0:1,2:1"}, 2),
              StatusIs(absl::StatusCode::kInvalidArgument, "--tee=0:1,2:1: must be of local ranks, 0 to 1"));
  EXPECT_THAT(MakeOutputPlan({.tee = "0:1,0:2"}, 2),
              StatusIs(absl::StatusCode::kInvalidArgument, "--tee=0:1,0:2: names local rank 0 twice"));
  EXPECT_THAT(MakeOutputPlan({.local_ranks_filter = "2"}, 2),
              StatusIs(absl::StatusCode::kInvalidArgument, "--local-ranks-filter=2: must be of local ranks, 0 to 1"));
  EXPECT_THAT(MakeOutputPlan({.local_ranks_filter = "1,1"}, 2),
              StatusIs(absl::StatusCode::kInvalidArgument, "--local-ranks-filter=1,1: names local rank 1 twice"));
}

}  // namespace
}  // namespace cohort::launch
