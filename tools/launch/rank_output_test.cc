#include "cohort/tools/launch/rank_output.h"

#include <fcntl.h>
#include <unistd.h>

#include <string>
#include <string_view>

#include "cohort/tools/launch/unique_fd.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort::launch {
namespace {

using ::testing::ElementsAre;

class RankOutputTest : public testing::Test {
 protected:
  RankOutputTest() : output_(OpenPipe(), "[3] ", console_) {}

  UniqueFd OpenPipe() {
    int fds[2];
    EXPECT_EQ(pipe(fds), 0);
    fcntl(fds[0], F_SETFL, O_NONBLOCK);
    writer_ = UniqueFd(fds[1]);
    return UniqueFd(fds[0]);
  }

  void Write(std::string_view text) { ASSERT_EQ(write(writer_.get(), text.data(), text.size()), text.size()); }

  UniqueFd writer_;
  std::string console_;
  RankOutput output_;
};

TEST_F(RankOutputTest, WhatTheRankWritesIsPrintedInWholeLines) {
  EXPECT_TRUE(output_.Read());
  Write("one\ntwo");
  EXPECT_TRUE(output_.Read());
  EXPECT_EQ(console_, "[3] one\n");
  writer_.reset();
  EXPECT_FALSE(output_.Read());
  output_.Finish();
  EXPECT_EQ(console_, "[3] one\n[3] two\n");
  EXPECT_EQ(output_.fd(), -1);
}

TEST_F(RankOutputTest, DrainingReadsWhatIsThereAndDoesNotWaitForMore) {
  std::string expected;
  for (int i = 0; i < 10000; ++i) {
    Write("line\n");
    expected += "[3] line\n";
  }
  output_.Drain();
  EXPECT_TRUE(console_ == expected);
  output_.Drain();
  EXPECT_TRUE(console_ == expected);
}

TEST_F(RankOutputTest, DrainingAFinishedStreamDoesNothing) {
  Write("lost\n");
  output_.Finish();
  output_.Drain();
  EXPECT_EQ(console_, "");
}

TEST_F(RankOutputTest, TheLastLinesAreRememberedWithoutThePrefix) {
  Write("one\ntwo\nthree");
  EXPECT_TRUE(output_.Read());
  EXPECT_THAT(output_.LastLines(2), ElementsAre("two", "three"));
}

}  // namespace
}  // namespace cohort::launch
