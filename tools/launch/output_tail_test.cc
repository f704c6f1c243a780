#include "cohort/tools/launch/output_tail.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort::launch {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(OutputTailTest, NothingHasNoLastLines) {
  OutputTail tail;
  EXPECT_THAT(tail.LastLines(3), IsEmpty());
}

TEST(OutputTailTest, TheLastLinesComeInOrderFinishedOrNot) {
  OutputTail tail;
  tail.Add("one\ntwo\nth");
  EXPECT_THAT(tail.LastLines(2), ElementsAre("two", "th"));
  tail.Add("ree\n");
  EXPECT_THAT(tail.LastLines(2), ElementsAre("two", "three"));
  EXPECT_THAT(tail.LastLines(9), ElementsAre("one", "two", "three"));
}

TEST(OutputTailTest, ALongStreamIsForgottenButForItsEnd) {
  OutputTail tail;
  for (int i = 0; i < 100000; ++i) tail.Add(absl::StrCat("line ", i, "\n"));
  EXPECT_THAT(tail.LastLines(2), ElementsAre("line 99998", "line 99999"));
  tail.Add(std::string(1 << 20, 'x'));
  EXPECT_THAT(tail.LastLines(5), ElementsAre("..." + std::string(512, 'x')));
}

}  // namespace
}  // namespace cohort::launch
