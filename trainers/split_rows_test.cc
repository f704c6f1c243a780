#include "cohort/trainers/split_rows.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "ATen/Context.h"
#include "absl/status/status.h"
#include "absl/status/status_matchers.h"
#include "absl/status/statusor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort {
namespace {

using ::absl_testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::IsSubsetOf;
using ::testing::SizeIs;

std::vector<int64_t> HeldOut(int64_t num_rows, double fraction) {
  const absl::StatusOr<RowSplit> split = SplitRows(num_rows, fraction);
  EXPECT_TRUE(split.ok()) << split.status();
  return split.ok() ? split->held_out : std::vector<int64_t>();
}

TEST(SplitRowsTest, EveryRowIsInOneOfThem) {
  const absl::StatusOr<RowSplit> split = SplitRows(1797, 0.2);
  ABSL_ASSERT_OK(split);
  EXPECT_THAT(split->held_out, SizeIs(359));
  std::vector<int64_t> all = split->learned;
  all.insert(all.end(), split->held_out.begin(), split->held_out.end());
  std::sort(all.begin(), all.end());
  ASSERT_THAT(all, SizeIs(1797));
  for (int64_t row = 0; row < 1797; ++row) ASSERT_EQ(all[row], row);
  EXPECT_TRUE(std::is_sorted(split->learned.begin(), split->learned.end()));
  EXPECT_TRUE(std::is_sorted(split->held_out.begin(), split->held_out.end()));
}

// These numbers are those of the documented rule, as Python makes them, and must not change: a run that goes on would
// learn from what it has held out.
TEST(SplitRowsTest, TheRowsAreTheSameWhateverTheSeed) {
  EXPECT_THAT(HeldOut(20, 0.25), ElementsAre(0, 2, 8, 10, 11));
  at::manual_seed(7);
  EXPECT_THAT(HeldOut(20, 0.25), ElementsAre(0, 2, 8, 10, 11));
}

TEST(SplitRowsTest, ASmallerShareIsAPartOfALargerOne) { EXPECT_THAT(HeldOut(100, 0.1), IsSubsetOf(HeldOut(100, 0.3))); }

TEST(SplitRowsTest, NothingIsHeldOutUnlessAskedFor) {
  const absl::StatusOr<RowSplit> split = SplitRows(3, 0);
  ABSL_ASSERT_OK(split);
  EXPECT_THAT(split->learned, ElementsAre(0, 1, 2));
  EXPECT_THAT(split->held_out, IsEmpty());
}

TEST(SplitRowsTest, RefusesToLeaveOneOfThemEmpty) {
  EXPECT_THAT(SplitRows(10, 0.01),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("validation=0.01 holds out 0 of 10 rows")));
  EXPECT_THAT(SplitRows(2, 0.9), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("holds out 2 of 2 rows")));
}

}  // namespace
}  // namespace cohort
