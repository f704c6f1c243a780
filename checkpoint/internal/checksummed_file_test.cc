#include "cohort/checkpoint/internal/checksummed_file.h"

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/status_matchers.h"
#include "cohort/checkpoint/internal/crc32.h"
#include "cohort/checkpoint/internal/string_file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort::internal {
namespace {

using ::absl_testing::IsOk;
using ::absl_testing::IsOkAndHolds;
using ::absl_testing::StatusIs;
using ::testing::HasSubstr;

TEST(ChecksummedFileTest, TheChecksumIsThatOfTheWholeFileHoweverItIsWritten) {
  StringFile out;
  ChecksummedFile file(out);
  EXPECT_THAT(file.Crc32(), IsOkAndHolds(0u));
  const std::string large(100'000, 'x'), small = "small";
  EXPECT_THAT(file.Append("begin"), IsOk());
  EXPECT_THAT(file.Reserve(8), IsOk());
  EXPECT_THAT(file.AppendWithCrc32(large, Crc32(large)), IsOk());
  EXPECT_THAT(file.AppendWithCrc32(small, Crc32(small)), IsOk());
  EXPECT_THAT(file.Append("middle"), IsOk());
  EXPECT_THAT(file.Reserve(0), IsOk());
  EXPECT_THAT(file.Reserve(3), IsOk());
  EXPECT_THAT(file.AppendWithCrc32(large, Crc32(large)), IsOk());
  EXPECT_THAT(file.Overwrite(out.num_bytes() - 100'003, "abc"), IsOk());
  EXPECT_THAT(file.Overwrite(5, "12345678"), IsOk());
  EXPECT_THAT(file.Overwrite(out.num_bytes() - 100'003, ""), IsOk());
  EXPECT_EQ(out.contents(), "begin12345678" + large + small + "middleabc" + large);
  EXPECT_THAT(file.Crc32(), IsOkAndHolds(Crc32(out.contents())));
}

TEST(ChecksummedFileTest, OnlyWhatWasReservedIsOverwrittenAndOnce) {
  StringFile out;
  ChecksummedFile file(out);
  ASSERT_THAT(file.Append("begin"), IsOk());
  ASSERT_THAT(file.Reserve(8), IsOk());
  EXPECT_THAT(file.Overwrite(0, "b"), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("the 1 bytes at 0")));
  EXPECT_THAT(file.Overwrite(5, "1234"), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(file.Overwrite(6, "1234567"), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(file.Crc32(), StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("8 bytes reserved at 5")));
  EXPECT_THAT(file.Overwrite(5, "12345678"), IsOk());
  EXPECT_THAT(file.Overwrite(5, "12345678"), StatusIs(absl::StatusCode::kInvalidArgument));
}

}  // namespace
}  // namespace cohort::internal
