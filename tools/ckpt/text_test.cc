#include "cohort/tools/ckpt/text.h"

#include <string>

#include "gtest/gtest.h"

namespace cohort::ckpt {
namespace {

TEST(TextTest, PlainNamesStayAsTheyAre) { EXPECT_EQ(NameText("model.layers.0.weight"), "model.layers.0.weight"); }

TEST(TextTest, NamesThatCouldPassForSomethingElseAreQuoted) {
  EXPECT_EQ(NameText(""), "\"\"");
  EXPECT_EQ(NameText("a b"), "\"a b\"");
  EXPECT_EQ(NameText("\"a\""), "\"\\\"a\\\"\"");
  EXPECT_EQ(NameText("a\\n"), "\"a\\\\n\"");
  EXPECT_EQ(NameText("größe"), "\"größe\"");
}

TEST(TextTest, LongTextsAreCutBetweenCharacters) {
  EXPECT_EQ(Shortened(std::string(400, 'x')), std::string(400, 'x'));
  std::string text(199, 'x');
  for (int i = 0; i < 200; ++i) text += "ö";
  EXPECT_EQ(Shortened(text), std::string(199, 'x') + "... (599 bytes)");
}

TEST(TextTest, FloatsReadBackAsTheSame) {
  EXPECT_EQ(FloatText(0.1), "0.1");
  EXPECT_EQ(FloatText(3), "3.0");
  EXPECT_EQ(FloatText(-0.0), "-0.0");
  EXPECT_EQ(FloatText(1e300), "1e+300");
}

TEST(TextTest, SizesAreRounded) {
  EXPECT_EQ(BytesText(1), "1 byte");
  EXPECT_EQ(BytesText(1023), "1023 bytes");
  EXPECT_EQ(BytesText(1536), "1.5 KiB");
  EXPECT_EQ(BytesText(int64_t{1} << 30), "1.0 GiB");
  EXPECT_EQ(BytesText((int64_t{1} << 30) - 1), "1.0 GiB");
}

TEST(TextTest, ColumnsStandBelowEachOther) {
  Table table({1});
  table.Add({"a", "1", "x"});
  table.Add({"größer", "20", "y z"});
  EXPECT_EQ(table.Text("  "), "  a        1  x\n  größer  20  y z\n");
}

}  // namespace
}  // namespace cohort::ckpt
