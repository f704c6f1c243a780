// A group of one rank over NCCL: it needs one GPU, and shows of one rank what holds of each. nccl_devices_test has several.

#include "cohort/runtime/internal/nccl_backend.h"

#include <memory>
#include <string>
#include <vector>

#include "absl/log/absl_check.h"
#include "absl/status/status_matchers.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "cohort/runtime/internal/in_process_backend.h"
#include "cohort/runtime/internal/job_store.h"
#include "cohort/runtime/internal/socket.h"
#include "cohort/runtime/internal/torch_backend.h"
#include "cohort/runtime/rank_info.h"
#include "cohort/runtime/testing/gpus.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort::internal {
namespace {

using ::absl_testing::IsOk;
using ::cohort::testing::CurrentDevice;
using ::cohort::testing::DevicesWithContext;
using ::cohort::testing::NumGpus;
using ::cohort::testing::SetCurrentDevice;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr absl::Duration kTimeout = absl::Seconds(30);

class NcclBackendTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (NumGpus() == 0) GTEST_SKIP() << "no GPU in a build with nccl";
  }

  // On the last device: where there are several it is not the one that everything begins on.
  absl::StatusOr<std::unique_ptr<TorchBackend>> Connect() {
    device_ = static_cast<int>(VisibleCudaDevices().size()) - 1;
    absl::StatusOr<Listener> listener = ListenAt("127.0.0.1");
    ABSL_CHECK_OK(listener);
    absl::StatusOr<std::unique_ptr<JobStore>> store =
        JobStore::Serve("127.0.0.1", *std::move(listener), "test", kTimeout);
    ABSL_CHECK_OK(store);
    RankInfo info;
    info.world_size = 1;
    return ConnectNccl(info,
                       {.device = device_,
                        .prefix = "test",
                        .local_host = "127.0.0.1",
                        .connect_timeout = kTimeout,
                        .timeout = kTimeout},
                       hub_.ConnectControlPlane(0), *std::move(store));
  }

  InProcessHub hub_{1};
  int device_ = 0;
};

// The first TEST, because a context stays as long as the process.
TEST_F(NcclBackendTest, LookingForDevicesMakesNoContext) {
  EXPECT_THAT(VisibleCudaDevices(), Not(IsEmpty()));
  EXPECT_THAT(DevicesWithContext(), IsEmpty());
}

TEST_F(NcclBackendTest, OnlyTheBoundDeviceIsUsed) {
  const absl::StatusOr<std::unique_ptr<TorchBackend>> backend = Connect();
  ASSERT_THAT(backend, IsOk());
  EXPECT_EQ((*backend)->device().index(), device_);
  EXPECT_THAT((*backend)->Barrier(kTimeout), IsOk());
  EXPECT_THAT(DevicesWithContext(), ElementsAre(device_));
}

TEST_F(NcclBackendTest, TheCurrentDeviceStaysWhatItIs) {
  ASSERT_EQ(CurrentDevice(), 0);
  const absl::StatusOr<std::unique_ptr<TorchBackend>> backend = Connect();
  ASSERT_THAT(backend, IsOk());
  EXPECT_EQ(CurrentDevice(), 0);
  EXPECT_THAT((*backend)->Barrier(kTimeout), IsOk());
  EXPECT_EQ(CurrentDevice(), 0);
  // Whatever the user makes of it meanwhile.
  for (int i = 0; i <= device_; ++i) {
    SetCurrentDevice(i);
    EXPECT_THAT((*backend)->Barrier(kTimeout), IsOk());
    EXPECT_EQ(CurrentDevice(), i);
  }
}

TEST_F(NcclBackendTest, NobodyComplainsAboutAnUnknownDevice) {
  ::testing::internal::CaptureStderr();
  {
    const absl::StatusOr<std::unique_ptr<TorchBackend>> backend = Connect();
    EXPECT_TRUE(backend.ok() && (*backend)->Barrier(kTimeout).ok()) << backend.status();
  }
  const std::string said = ::testing::internal::GetCapturedStderr();
  for (const char* word : {"unknown", "guess", "device_ids", "device_id"}) {
    EXPECT_EQ(said.find(word), std::string::npos) << said;
  }
}

}  // namespace
}  // namespace cohort::internal
