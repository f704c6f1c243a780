#include "cohort/tests/harness/shared_group.h"

#include "absl/status/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort::testing {
namespace {

using ::absl_testing::IsOk;

TEST(SharedGroupTest, ConnectsAllRanks) {
  EXPECT_THAT(SharedGroup().Barrier(), IsOk());
  EXPECT_EQ(SharedGroup().backend_name(), SharedGroup().world_size() == 1 ? "none" : "gloo");
}

TEST(SharedGroupTest, IsTheSameInTheNextTest) { EXPECT_THAT(SharedGroup().Barrier(), IsOk()); }

}  // namespace
}  // namespace cohort::testing
