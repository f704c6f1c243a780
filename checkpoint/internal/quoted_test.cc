#include "cohort/checkpoint/internal/quoted.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort::internal {
namespace {

TEST(QuotedTest, ShowsAnEmptyName) { EXPECT_EQ(Quoted(""), "\"\""); }

TEST(QuotedTest, KeepsLettersOfEveryLanguage) { EXPECT_EQ(Quoted("/data/模型.pt"), "\"/data/模型.pt\""); }

TEST(QuotedTest, CannotForgeALine) { EXPECT_EQ(Quoted("a\nb\"c"), "\"a\\nb\\\"c\""); }

TEST(QuotedTest, ShortensWhatNobodyWouldRead) {
  const std::string shown = Quoted(std::string(5000, 'x'));
  EXPECT_LT(shown.size(), 500);
  EXPECT_THAT(shown, testing::EndsWith("(5000 bytes)"));
}

}  // namespace
}  // namespace cohort::internal
