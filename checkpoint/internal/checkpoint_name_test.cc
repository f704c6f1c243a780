#include "cohort/checkpoint/internal/checkpoint_name.h"

#include <cstdint>
#include <limits>
#include <optional>
#include <string_view>

#include "gtest/gtest.h"

namespace cohort::internal {
namespace {

constexpr int64_t kMax = std::numeric_limits<int64_t>::max();

TEST(CheckpointNameTest, HasAtLeastEightDigits) {
  EXPECT_EQ(CheckpointName(0, 1), "step_00000000");
  EXPECT_EQ(CheckpointName(1200, 1), "step_00001200");
  EXPECT_EQ(CheckpointName(123456789, 1), "step_123456789");
  EXPECT_EQ(CheckpointName(kMax, 1), "step_9223372036854775807");
  EXPECT_EQ(CheckpointName(1200, 2), "step_00001200-2");
}

TEST(CheckpointNameTest, IsReadBack) {
  for (const int64_t step : {int64_t{0}, int64_t{7}, int64_t{99999999}, int64_t{100000000}, kMax}) {
    for (const int attempt : {1, 2, 12, std::numeric_limits<int>::max()}) {
      EXPECT_EQ(ParseCheckpointName(CheckpointName(step, attempt)), step);
    }
  }
}

TEST(CheckpointNameTest, MayHaveOtherLeadingZeros) {
  EXPECT_EQ(ParseCheckpointName("step_20"), 20);
  EXPECT_EQ(ParseCheckpointName("step_020-3"), 20);
  EXPECT_EQ(ParseCheckpointName("step_000000000000000000000000000000020"), 20);
}

TEST(CheckpointNameTest, IsNothingElse) {
  for (const std::string_view name : {"",
                                      "step",
                                      "step_",
                                      "step_abc",
                                      "step_-5",
                                      "step_+5",
                                      "step_5x",
                                      "step_5 ",
                                      " step_5",
                                      "step_5-",
                                      "step_5-2x",
                                      "step_5--2",
                                      "step_5-2-3",
                                      "step_5.pt",
                                      "step_0x5",
                                      "step_5\n",
                                      "Step_5",
                                      "step_9223372036854775808",
                                      "step_99999999999999999999",
                                      "step_18446744073709551621",
                                      "step_00092233720368547758080"}) {
    EXPECT_EQ(ParseCheckpointName(name), std::nullopt) << name;
  }
  EXPECT_EQ(ParseCheckpointName(std::string_view("step_5\0", 7)), std::nullopt);
}

}  // namespace
}  // namespace cohort::internal
