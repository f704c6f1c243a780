#include "cohort/tools/launch/rank_output.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <string_view>

#include "cohort/tools/launch/console.h"
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

// --- With a file.

UniqueFd NewFile() { return UniqueFd(open(testing::TempDir().c_str(), O_RDWR | O_APPEND | O_TMPFILE, 0600)); }

std::string Contents(int fd) {
  std::string text(1 << 20, '\0');
  text.resize(pread(fd, text.data(), text.size(), 0));
  return text;
}

class RankOutputWithFileTest : public RankOutputTest {
 protected:
  RankOutputWithFileTest() : file_(NewFile()) {}

  RankOutput Output(std::string* console) {
    return RankOutput(OpenPipe(), "[3] ", console, UniqueFd(dup(file_.get())));
  }

  UniqueFd file_;
};

TEST_F(RankOutputWithFileTest, TheFileHasEachByteAsItWasWritten) {
  RankOutput output = Output(&console_);
  const std::string bytes("one\n\0\xff\r\n\ntwo", 12);
  Write(bytes);
  EXPECT_TRUE(output.Read());
  EXPECT_EQ(Contents(file_.get()), bytes);
  output.Finish();
  EXPECT_EQ(Contents(file_.get()), bytes) << "no newline is added to the last line";
  EXPECT_EQ(console_, std::string("[3] one\n[3] \0\xff\r\n[3] \n[3] two\n", 29));
  EXPECT_EQ(output.file_error(), 0);
}

TEST_F(RankOutputWithFileTest, WhatIsNotShownIsWrittenAndRemembered) {
  RankOutput output = Output(nullptr);
  Write("one\ntwo");
  EXPECT_TRUE(output.Read());
  output.Finish();
  EXPECT_EQ(Contents(file_.get()), "one\ntwo");
  EXPECT_THAT(output.LastLines(1), ElementsAre("two"));
}

TEST_F(RankOutputWithFileTest, AFullDiskIsAnErrorAndTheConsoleGoesOn) {
  RankOutput output(OpenPipe(), "[3] ", &console_, UniqueFd(open("/dev/full", O_WRONLY)));
  Write("one\n");
  EXPECT_TRUE(output.Read());
  EXPECT_EQ(output.file_error(), ENOSPC);
  Write("two\n");
  EXPECT_TRUE(output.Read());
  EXPECT_EQ(console_, "[3] one\n[3] two\n");
}

// --- A console that is full.

TEST_F(RankOutputTest, WithoutAFileAFullConsoleIsWaitedFor) {
  console_.assign(Console::kMaxPendingBytes, 'x');
  EXPECT_FALSE(output_.may_read());
  console_.clear();
  EXPECT_TRUE(output_.may_read());
}

TEST_F(RankOutputWithFileTest, AFullConsoleIsNotWaitedForAndGetsTheRestLater) {
  RankOutput output = Output(&console_);
  Write("one\ntw");
  EXPECT_TRUE(output.Read());
  EXPECT_EQ(console_, "[3] one\n");
  console_.assign(Console::kMaxPendingBytes, 'x');
  EXPECT_TRUE(output.may_read());
  Write("o\nthree\n");
  EXPECT_TRUE(output.Read());
  EXPECT_TRUE(output.is_behind());
  EXPECT_EQ(console_.size(), Console::kMaxPendingBytes);

  console_.clear();
  Write("four");
  EXPECT_TRUE(output.Read());
  EXPECT_EQ(console_, "") << "nothing overtakes what is behind";
  output.Finish();
  EXPECT_EQ(console_, "");
  while (output.is_behind()) output.ShowMore();
  EXPECT_EQ(console_, "[3] two\n[3] three\n[3] four\n");
  EXPECT_EQ(Contents(file_.get()), "one\ntwo\nthree\nfour");
}

TEST_F(RankOutputWithFileTest, WhatIsBehindIsShownInBoundedPieces) {
  RankOutput output = Output(&console_);
  console_.assign(Console::kMaxPendingBytes, 'x');
  std::string expected;
  for (int i = 0; i < 300; ++i) {
    const std::string line(999, static_cast<char>('a' + i % 26));
    expected += "[3] " + line + "\n";
    Write(line + "\n");
    EXPECT_TRUE(output.Read());
  }
  console_.clear();
  output.ShowMore();
  EXPECT_TRUE(output.is_behind());
  EXPECT_LT(console_.size(), 70000);
  while (output.is_behind()) output.ShowMore();
  EXPECT_TRUE(console_ == expected);
}

TEST_F(RankOutputWithFileTest, AFileThatIsCutShortMeanwhileIsNotWaitedFor) {
  RankOutput output = Output(&console_);
  console_.assign(Console::kMaxPendingBytes, 'x');
  Write("lost\n");
  EXPECT_TRUE(output.Read());
  ASSERT_EQ(ftruncate(file_.get(), 0), 0);
  ASSERT_TRUE(output.is_behind());
  output.ShowMore();
  EXPECT_FALSE(output.is_behind());
}

}  // namespace
}  // namespace cohort::launch
