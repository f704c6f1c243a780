#include "cohort/runtime/internal/derived_port.h"

#include <cstdint>
#include <limits>

#include "gtest/gtest.h"

namespace cohort::internal {
namespace {

TEST(DerivedPortTest, LiesBelowThePortsThatKernelsGiveAway) {
  for (const uint64_t number : {uint64_t{0}, uint64_t{9999}, uint64_t{10000}, std::numeric_limits<uint64_t>::max()}) {
    EXPECT_GE(DerivedPort(number), 20000) << number;
    EXPECT_LE(DerivedPort(number), 29999) << number;
  }
  EXPECT_EQ(DerivedPort(0), 20000);
  EXPECT_EQ(DerivedPort(29999), 29999);
}

}  // namespace
}  // namespace cohort::internal
