#include "cohort/tools/launch/line_splitter.h"

#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace cohort::launch {
namespace {

TEST(LineSplitterTest, ALineIsPrintedWhenItIsWholeAndNotBefore) {
  LineSplitter splitter("[1] ");
  std::string out;
  splitter.Add("one\ntw", out);
  EXPECT_EQ(out, "[1] one\n");
  splitter.Add("o", out);
  EXPECT_EQ(out, "[1] one\n");
  splitter.Add("\n\nthree\n", out);
  EXPECT_EQ(out, "[1] one\n[1] two\n[1] \n[1] three\n");
}

TEST(LineSplitterTest, TheLastLineGetsTheNewlineThatItLacks) {
  LineSplitter splitter("[1] ");
  std::string out;
  splitter.Add("unfinished", out);
  splitter.Finish(out);
  EXPECT_EQ(out, "[1] unfinished\n");
  splitter.Finish(out);
  EXPECT_EQ(out, "[1] unfinished\n");
}

TEST(LineSplitterTest, HowTheBytesArriveMakesNoDifference) {
  constexpr std::string_view kText = "a\nbc\n\ndef\nghij";
  LineSplitter whole("> ");
  std::string expected;
  whole.Add(kText, expected);
  whole.Finish(expected);
  for (size_t step = 1; step < kText.size(); ++step) {
    LineSplitter splitter("> ");
    std::string out;
    for (size_t i = 0; i < kText.size(); i += step) splitter.Add(kText.substr(i, step), out);
    splitter.Finish(out);
    EXPECT_EQ(out, expected) << "in steps of " << step;
  }
}

TEST(LineSplitterTest, AVeryLongLineIsPrintedInMarkedPieces) {
  const std::string piece(LineSplitter::kMaxLineBytes, 'x');
  LineSplitter splitter("[1] ");
  std::string out;
  // Exactly the most that is held stays whole.
  splitter.Add(piece + "\n", out);
  EXPECT_TRUE(out == "[1] " + piece + "\n");
  out.clear();
  splitter.Add(piece + piece + "yz", out);
  splitter.Add("!\n", out);
  const std::string marked = absl::StrCat("[1] ", piece, LineSplitter::kContinuedMark, "\n");
  EXPECT_TRUE(out == absl::StrCat(marked, marked, "[1] yz!\n")) << out.size();
}

}  // namespace
}  // namespace cohort::launch
