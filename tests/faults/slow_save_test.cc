// A write that takes longer than the group's timeout: saving has its own, longer one. In a program of its own because
// the last TEST breaks the group.

#include <memory>
#include <string>
#include <utility>

#include "ATen/core/Tensor.h"
#include "ATen/ops/full.h"
#include "absl/log/absl_check.h"
#include "absl/status/status.h"
#include "absl/status/status_matchers.h"
#include "absl/status/statusor.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "cohort/checkpoint/main_only_saver.h"
#include "cohort/checkpoint/testing/files.h"
#include "cohort/checkpoint/writable_file.h"
#include "cohort/runtime/init_process_group.h"
#include "cohort/runtime/process_group.h"
#include "cohort/runtime/tensor_collectives.h"
#include "cohort/tests/faults/disk_shim.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort {
namespace {

using ::absl_testing::IsOk;
using ::absl_testing::StatusIs;
using ::cohort::testing::DiskCall;
using ::cohort::testing::DiskShim;
using ::cohort::testing::FreshDirectory;
using ::cohort::testing::NamesIn;
using ::cohort::testing::ReadFile;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr absl::Duration kGroupTimeout = absl::Seconds(4);
constexpr absl::Duration kWrite = absl::Seconds(6);

ProcessGroup& Group() {
  static ProcessGroup* const group = [] {
    auto connected = InitProcessGroup({.backend = "gloo", .init_timeout = absl::Seconds(30), .timeout = kGroupTimeout});
    ABSL_CHECK_OK(connected.status());
    return connected->release();
  }();
  return *group;
}

absl::Status WriteNew(WritableFile& file) { return file.Append("new"); }

int SlowDisk(const DiskCall&) {
  absl::SleepFor(kWrite);
  return 0;
}

// Of all TESTs together. The second one ends with a broken group.
const std::string& Directory() {
  static const std::string* const directory = [] {
    auto shared = Group().BroadcastBytes("directory", Group().is_main() ? FreshDirectory() : "");
    ABSL_CHECK_OK(shared.status());
    return new std::string(*std::move(shared));
  }();
  return *directory;
}

TEST(SlowSaveTest, AWriteMayTakeLongerThanTheGroupsTimeout) {
  DiskShim shim(Directory());
  shim.Before("write", 1, SlowDisk);
  ASSERT_THAT(MainOnlySaver(&Group()).Save(Directory() + "/m.pt", WriteNew), IsOk());
  EXPECT_EQ(ReadFile(Directory() + "/m.pt"), "new");
  const at::Tensor rank = at::full({1}, Group().rank(), at::kLong);
  ASSERT_THAT(AllReduceSum(Group(), {rank}), IsOk());
  EXPECT_EQ(rank.item<int64_t>(), 1);
}

TEST(SlowSaveTest, ASaveThatTakesLongerThanItsOwnTimeoutFailsOnEveryRankAndChangesNothing) {
  ASSERT_THAT(Group().Agree("start", absl::OkStatus()), IsOk());
  DiskShim shim(Directory());
  shim.Before("write", 1, SlowDisk);
  MainOnlySaver saver(&Group(), {.timeout = absl::Seconds(2)});
  const absl::Status late =
      saver.Save(Directory() + "/m.pt", [](WritableFile& file) { return file.Append("newer"); }).status();
  EXPECT_THAT(late, StatusIs(absl::StatusCode::kDeadlineExceeded,
                             AllOf(HasSubstr("saved " + Directory() + "/m.pt"), HasSubstr("waited"))));
  EXPECT_EQ(ReadFile(Directory() + "/m.pt"), "new");
  if (Group().is_main()) {
    EXPECT_THAT(NamesIn(Directory()), ElementsAre("m.pt"));
  }
}

}  // namespace
}  // namespace cohort
