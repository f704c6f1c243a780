#include "cohort/tests/harness/shared_group.h"

#include <memory>

#include "absl/log/absl_check.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "cohort/runtime/init_process_group.h"
#include "gtest/gtest.h"

namespace cohort::testing {
namespace {

// Leaves the group when the last TEST is over. If one failed, the others may never come: this rank goes without them.
class Leave : public ::testing::Environment {
 public:
  explicit Leave(ProcessGroup* group) : group_(group) {}

  void TearDown() override {
    if (::testing::UnitTest::GetInstance()->Failed()) return;
    EXPECT_EQ(group_->Shutdown(), absl::OkStatus());
  }

 private:
  ProcessGroup* group_;
};

ProcessGroup* Connect() {
  InitProcessGroupOptions options;
  options.backend = "gloo";
  options.init_timeout = absl::Seconds(30);
  options.timeout = absl::Seconds(30);
  absl::StatusOr<std::unique_ptr<ProcessGroup>> group = InitProcessGroup(options);
  ABSL_CHECK_OK(group.status());
  ::testing::AddGlobalTestEnvironment(new Leave(group->get()));
  return group->release();  // lives as long as the process
}

}  // namespace

ProcessGroup& SharedGroup() {
  static ProcessGroup* const group = Connect();
  return *group;
}

}  // namespace cohort::testing
