// A save whose callback throws, between real processes.

#include <stdexcept>
#include <string>

#include "absl/status/status.h"
#include "absl/status/status_matchers.h"
#include "cohort/checkpoint/main_only_saver.h"
#include "cohort/checkpoint/writable_file.h"
#include "cohort/runtime/process_group.h"
#include "cohort/tests/e2e/process.h"
#include "cohort/tests/harness/shared_group.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort::testing {
namespace {

using ::absl_testing::IsOk;
using ::absl_testing::StatusIs;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(ThrowingCallbackTest, EveryRankGetsTheExceptionAndTheOldFileStays) {
  ProcessGroup& group = SharedGroup();
  MainOnlySaver saver(&group);
  const std::string folder = std::string(::testing::TempDir()) + "/throwing", path = folder + "/model.pth";
  ABSL_ASSERT_OK(saver.Save(path, [](WritableFile& file) { return file.Append("old"); }));

  EXPECT_THAT(saver.Save(path,
                         [](WritableFile& file) -> absl::Status {
                           if (!file.Append("half of the n").ok()) return absl::InternalError("cannot write");
                           throw std::runtime_error("out of ink");
                         }),
              StatusIs(absl::StatusCode::kInternal, AllOf(HasSubstr("rank 0"), HasSubstr("out of ink"))));
  EXPECT_EQ(ReadFile(path), "old");
  EXPECT_THAT(saver.Save(path, [](WritableFile&) -> absl::Status { throw 42; }), StatusIs(absl::StatusCode::kUnknown));
  EXPECT_EQ(ReadFile(path), "old");
  // No rank may look there before the others have, because now it changes.
  ASSERT_THAT(group.Barrier(), IsOk());

  // The group is usable, and so is the path.
  ABSL_ASSERT_OK(saver.Save(path, [](WritableFile& file) { return file.Append("new"); }));
  EXPECT_EQ(ReadFile(path), "new");
  EXPECT_THAT(FilesIn(folder), ElementsAre("model.pth"));
}

}  // namespace
}  // namespace cohort::testing
