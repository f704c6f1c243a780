// Rank programs that behave and misbehave, for run_ranks_test.sh. It picks one by name.

#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "gtest/gtest.h"

namespace {

bool IsRankOne() { return std::string(std::getenv("RANK")) == "1"; }

TEST(Subject, Passes) {
  EXPECT_STREQ(std::getenv("WORLD_SIZE"), "2");
  EXPECT_EQ(std::getenv("XML_OUTPUT_FILE"), nullptr);
}

TEST(Subject, PassesToo) {}

TEST(Subject, FailsOnRankOne) { EXPECT_FALSE(IsRankOne()) << "as told"; }

TEST(Subject, SkipsOnRankOne) {
  if (IsRankOne()) GTEST_SKIP();
}

TEST(Subject, SkipsEverywhere) { GTEST_SKIP() << "as told"; }

TEST(Subject, DiesOnRankOne) {
  if (IsRankOne()) raise(SIGKILL);
}

[[gnu::noinline]] void SleepForever() {
  while (true) pause();
}

TEST(Subject, HangsOnRankOne) {
  if (IsRankOne()) SleepForever();
}

}  // namespace
