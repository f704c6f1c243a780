#include "cohort/tools/launch/repeated_signals.h"

#include <signal.h>

#include <chrono>

#include "gtest/gtest.h"

namespace cohort::launch {
namespace {

constexpr pid_t kTimeout = 4711;
constexpr pid_t kAnother = 4712;

RepeatedSignals::Time At(int milliseconds) { return RepeatedSignals::Time(std::chrono::milliseconds(milliseconds)); }

TEST(RepeatedSignalsTest, OneActOfOneSenderCountsOnce) {
  RepeatedSignals signals;
  EXPECT_FALSE(signals.IsRepeated(SIGINT, kTimeout, At(0)));
  EXPECT_TRUE(signals.IsRepeated(SIGINT, kTimeout, At(1)));
  EXPECT_TRUE(signals.IsRepeated(SIGINT, kTimeout, At(99)));
}

TEST(RepeatedSignalsTest, WhatComesLaterIsMeant) {
  RepeatedSignals signals;
  EXPECT_FALSE(signals.IsRepeated(SIGINT, kTimeout, At(0)));
  // Repeats do not make the time longer: who sends one all the time is heard.
  EXPECT_TRUE(signals.IsRepeated(SIGINT, kTimeout, At(60)));
  EXPECT_FALSE(signals.IsRepeated(SIGINT, kTimeout, At(100)));
  EXPECT_TRUE(signals.IsRepeated(SIGINT, kTimeout, At(160)));
}

TEST(RepeatedSignalsTest, AnotherSignalAndAnotherSenderAreMeant) {
  RepeatedSignals signals;
  EXPECT_FALSE(signals.IsRepeated(SIGINT, kTimeout, At(0)));
  EXPECT_FALSE(signals.IsRepeated(SIGTERM, kTimeout, At(0)));
  EXPECT_FALSE(signals.IsRepeated(SIGINT, kAnother, At(0)));
}

TEST(RepeatedSignalsTest, WhatIsTypedIsMeant) {
  RepeatedSignals signals;
  for (int i = 0; i < 2; ++i) EXPECT_FALSE(signals.IsRepeated(SIGINT, 0, At(0)));
}

}  // namespace
}  // namespace cohort::launch
