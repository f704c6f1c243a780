#include "cohort/trainers/progress_bar.h"

#include <cstdio>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

// What `body` writes to a file.
template <typename Body>
std::string Written(Body body) {
  char* text = nullptr;
  size_t size = 0;
  std::FILE* const out = open_memstream(&text, &size);
  body(out);
  std::fclose(out);
  std::string written(text, size);
  std::free(text);
  return written;
}

TEST(ProgressBarTest, TheLineShowsTheShareThatIsDone) {
  EXPECT_EQ(ProgressLine("epoch 3", 0, 90), "epoch 3 [                              ] 0/90");
  EXPECT_EQ(ProgressLine("epoch 3", 30, 90), "epoch 3 [==========                    ] 30/90");
  EXPECT_EQ(ProgressLine("epoch 3", 90, 90), "epoch 3 [==============================] 90/90");
  EXPECT_THAT(ProgressLine("epoch 3", 0, 0), HasSubstr("0/0"));
}

TEST(ProgressBarTest, WhatFollowsStandsWhereTheBarWas) {
  const std::string written = Written([](std::FILE* out) {
    ProgressBar bar(out, /*is_terminal=*/true);
    bar.Show("epoch 3", 30, 90);
    bar.Clear();
    std::fputs("epoch 3 loss 1\n", out);
    bar.Clear();
  });
  EXPECT_THAT(written, StartsWith("\r\033[Kepoch 3 [="));
  EXPECT_THAT(written, HasSubstr("] 30/90\r\033[Kepoch 3 loss 1\n"));
}

TEST(ProgressBarTest, IsNotLeftOnTheTerminal) {
  const std::string written = Written([](std::FILE* out) {
    ProgressBar bar(out, /*is_terminal=*/true);
    bar.Show("epoch 3", 30, 90);
  });
  EXPECT_THAT(written, ::testing::EndsWith("\r\033[K"));
}

TEST(ProgressBarTest, WithoutATerminalThereIsNone) {
  EXPECT_EQ(Written([](std::FILE* out) {
              ProgressBar bar(out, /*is_terminal=*/false);
              bar.Show("epoch 3", 30, 90);
              bar.Clear();
            }),
            "");
}

}  // namespace
}  // namespace cohort
