#include "cohort/checkpoint/internal/quoted.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort::internal {
namespace {

TEST(QuotedTest, ShowsAnEmptyName) { EXPECT_EQ(Quoted(""), "\"\""); }

TEST(QuotedTest, KeepsLettersOfEveryLanguage) { EXPECT_EQ(Quoted("/data/模型.pt"), "\"/data/模型.pt\""); }

TEST(QuotedTest, CannotForgeALine) { EXPECT_EQ(Quoted("a\nb\"c"), "\"a\\nb\\\"c\""); }

TEST(QuotedTest, WhatDrivesATerminalIsEscaped) {
  EXPECT_EQ(Quoted("\x1b[31m\t\r\x7f"), R"("\x1b[31m\t\x0d\x7f")");
  EXPECT_EQ(Quoted("\xC2\x9B"), R"("\u{9b}")");        // the one-character form of ESC [
  EXPECT_EQ(Quoted("\xE2\x80\xAE"), R"("\u{202e}")");  // turns the writing direction
  EXPECT_EQ(Quoted("a\xEF\xBB\xBF"), R"("a\u{feff}")");
}

TEST(QuotedTest, WhatIsNotUtf8IsEscaped) {
  EXPECT_EQ(Quoted("a\xFF"), R"("a\xff")");
  EXPECT_EQ(Quoted("\xC3"), R"("\xc3")");
  EXPECT_EQ(Quoted("\xED\xA0\x80"), R"("\xed\xa0\x80")");  // half of a surrogate pair
}

TEST(PrintableTest, AMessageIsOneLine) { EXPECT_EQ(Printable("\"a\\x\"\x1b\nb"), R"("a\x"\x1b\nb)"); }

TEST(QuotedTest, ALongNameIsNotCutWithinACharacter) {
  EXPECT_THAT(Quoted("x" + std::string(1000, 'y') + "\xC3\xA4"), testing::HasSubstr("y...\" (1003 bytes)"));
  std::string umlauts = "x";
  for (int i = 0; i < 500; ++i) umlauts += "\xC3\xA4";
  EXPECT_THAT(Quoted(umlauts), testing::HasSubstr("\xC3\xA4...\" (1001 bytes)"));
}

TEST(QuotedTest, ShortensWhatNobodyWouldRead) {
  const std::string shown = Quoted(std::string(5000, 'x'));
  EXPECT_LT(shown.size(), 500);
  EXPECT_THAT(shown, testing::EndsWith("(5000 bytes)"));
}

}  // namespace
}  // namespace cohort::internal
