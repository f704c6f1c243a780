#include "cohort/checkpoint/internal/utf8.h"

#include <string_view>

#include "gtest/gtest.h"

namespace cohort::internal {
namespace {

using std::string_view_literals::operator""sv;

TEST(IsUtf8Test, AcceptsTextOfEveryLength) {
  for (std::string_view text : {""sv, "fc1.weight"sv, "\0"sv, "é"sv, "模型"sv, "𝄞"sv, "\xed\x9f\xbf"sv,
                                "\xee\x80\x80"sv, "\xf4\x8f\xbf\xbf"sv}) {
    EXPECT_TRUE(IsUtf8(text)) << text;
  }
}

TEST(IsUtf8Test, RefusesWhatNoTextHolds) {
  for (std::string_view text : {
           "\x80"sv, "a\xff"sv, "\xc3"sv, "\xe6\xa8"sv, "\xf0\x9d\x84"sv, "\xc3("sv,  // stray, cut short, broken off
           "\xc0\x80"sv, "\xe0\x80\x80"sv, "\xf0\x80\x80\x80"sv,                      // overlong
           "\xed\xa0\x80"sv, "\xf4\x90\x80\x80"sv, "\xf5\x80\x80\x80"sv,              // surrogate, beyond U+10FFFF
       }) {
    EXPECT_FALSE(IsUtf8(text)) << text;
  }
}

}  // namespace
}  // namespace cohort::internal
