#include "checkpoint/main_only_saver.h"
#include "cohort/checkpoint/main_only_saver.h"
#include "cohort/runtime/process_group.h"
#include "gtest/gtest.h"
#include "runtime/process_group.h"

namespace {

TEST(SameNamesTest, NeitherHidesTheOther) {
  const monorepo::ProcessGroup own{.name = "own"};
  EXPECT_STREQ(own.name, "own");
  EXPECT_STREQ(monorepo::MainOnlySaver::kName, "own");

  const std::unique_ptr<cohort::ProcessGroup> ours = cohort::ProcessGroup::WorldOfOne();
  EXPECT_EQ(ours->world_size(), 1);
  cohort::MainOnlySaver saver(ours.get());
}

}  // namespace
