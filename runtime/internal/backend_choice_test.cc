#include "cohort/runtime/internal/backend_choice.h"

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/status_matchers.h"
#include "absl/status/statusor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort::internal {
namespace {

using absl_testing::IsOk;
using absl_testing::IsOkAndHolds;
using absl_testing::StatusIs;
using testing::AllOf;
using testing::HasSubstr;

// Rank `local_rank` on a machine with the devices a and b.
RankFacts Facts(int local_rank, std::vector<std::string> devices = {"GPU-a", "GPU-b"}) {
  return {.has_local_rank = true,
          .local_rank = local_rank,
          .has_nccl = true,
          .devices = std::move(devices),
          .visible_devices = "CUDA_VISIBLE_DEVICES is not set",
          .network_stack = "machine-1",
          .gloo_host = "10.0.0.1"};
}

RankFacts WithoutNccl(RankFacts facts) {
  facts.has_nccl = false;
  facts.devices = {};
  return facts;
}

RankFacts On(std::string machine, std::string host, RankFacts facts) {
  facts.network_stack = std::move(machine);
  facts.gloo_host = std::move(host);
  return facts;
}

TEST(FactsTest, SurviveTheJourney) {
  RankFacts facts = Facts(3);
  facts.visible_devices = "CUDA_VISIBLE_DEVICES=\"1,\n\x01\"";
  const absl::StatusOr<RankFacts> decoded = DecodeFacts(EncodeFacts(facts));
  ASSERT_THAT(decoded, IsOk());
  EXPECT_EQ(decoded->has_local_rank, true);
  EXPECT_EQ(decoded->local_rank, 3);
  EXPECT_EQ(decoded->has_nccl, true);
  EXPECT_EQ(decoded->devices, facts.devices);
  EXPECT_EQ(decoded->visible_devices, facts.visible_devices);
  EXPECT_EQ(decoded->network_stack, "machine-1");
  EXPECT_EQ(decoded->gloo_host, "10.0.0.1");
}

TEST(FactsTest, RefusesWhatIsNotFacts) {
  for (const char* bytes : {"", "true", "true\nx\ntrue\n\n\n\n", "true\n1\ntrue\n\n\n\n\n\n"}) {
    EXPECT_THAT(DecodeFacts(bytes), StatusIs(absl::StatusCode::kInternal)) << bytes;
  }
}

TEST(ChooseDeviceTest, TakesTheDeviceOfTheLocalRank) {
  EXPECT_THAT(ChooseDevice(Facts(0), 2), IsOkAndHolds(0));
  EXPECT_THAT(ChooseDevice(Facts(1), 2), IsOkAndHolds(1));
}

TEST(ChooseDeviceTest, TakesTheOnlyVisibleDeviceWhateverTheLocalRank) {
  EXPECT_THAT(ChooseDevice(Facts(3, {"GPU-d"}), 4), IsOkAndHolds(0));
}

TEST(ChooseDeviceTest, RefusesALocalRankBeyondTheDevices) {
  EXPECT_THAT(ChooseDevice(Facts(2), 3),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("LOCAL_RANK=2"), HasSubstr("only 2 GPUs are visible"))));
}

TEST(ChooseDeviceTest, RefusesToGuessTheLocalRankUnlessAlone) {
  RankFacts facts = Facts(0);
  facts.has_local_rank = false;
  EXPECT_THAT(ChooseDevice(facts, 2),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("LOCAL_RANK is not set")));
  EXPECT_THAT(ChooseDevice(facts, 1), IsOkAndHolds(0));
}

TEST(ChooseDeviceTest, ShowsTheVariableThatHidesTheDevices) {
  RankFacts facts = Facts(0, {});
  facts.visible_devices = "CUDA_VISIBLE_DEVICES=\"\"";
  EXPECT_THAT(ChooseDevice(facts, 2),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("no visible GPU"), HasSubstr("CUDA_VISIBLE_DEVICES=\"\""))));
}

TEST(ChooseBackendTest, AutoIsNcclIfEveryRankCan) {
  const absl::StatusOr<BackendChoice> choice = ChooseBackend("auto", {Facts(0), Facts(1)});
  ASSERT_THAT(choice, IsOk());
  EXPECT_EQ(choice->backend, "nccl");
  EXPECT_EQ(choice->note, "");
}

TEST(ChooseBackendTest, AutoIsGlooIfOneRankCannotAndNamesTheFirst) {
  const absl::StatusOr<BackendChoice> choice =
      ChooseBackend("auto", {Facts(0), Facts(1), WithoutNccl(Facts(0)), WithoutNccl(Facts(1))});
  ASSERT_THAT(choice, IsOk());
  EXPECT_EQ(choice->backend, "gloo");
  EXPECT_THAT(choice->note, AllOf(HasSubstr("rank 2 cannot use nccl"), HasSubstr("no visible GPU")));
}

TEST(ChooseBackendTest, GlooIsGlooEvenIfEveryRankCouldDoMore) {
  const absl::StatusOr<BackendChoice> choice = ChooseBackend("gloo", {Facts(0), Facts(1)});
  ASSERT_THAT(choice, IsOk());
  EXPECT_EQ(choice->backend, "gloo");
  EXPECT_EQ(choice->note, "");
}

TEST(ChooseBackendTest, NcclIsAnErrorIfOneRankCannot) {
  EXPECT_THAT(ChooseBackend("nccl", {Facts(0), WithoutNccl(Facts(1))}),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("rank 1 cannot use nccl"), HasSubstr("no visible GPU"),
                             HasSubstr("--@cohort//third_party/libtorch:cuda"), HasSubstr("--config=cuda"))));
}

TEST(ChooseBackendTest, TwoRanksOnOneDeviceAreNamedBoth) {
  EXPECT_THAT(ChooseBackend("nccl", {Facts(0), Facts(1), Facts(1)}),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("rank 1 and rank 2 cannot both use nccl on one device, GPU-b"),
                             HasSubstr("rank 1: LOCAL_RANK=1, CUDA_VISIBLE_DEVICES is not set"),
                             HasSubstr("rank 2: LOCAL_RANK=1, "))));
  // With one device visible the local ranks may differ.
  RankFacts hidden = Facts(1, {"GPU-a"});
  hidden.visible_devices = "CUDA_VISIBLE_DEVICES=\"0\"";
  EXPECT_THAT(ChooseBackend("nccl", {Facts(0), hidden}),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("rank 0 and rank 1 cannot both use nccl on one device, GPU-a"),
                             HasSubstr("rank 1: LOCAL_RANK=1, CUDA_VISIBLE_DEVICES=\"0\""))));
}

TEST(ChooseBackendTest, AutoIsGlooIfTwoRanksHaveOneDevice) {
  const absl::StatusOr<BackendChoice> choice = ChooseBackend("auto", {Facts(0), Facts(0)});
  ASSERT_THAT(choice, IsOk());
  EXPECT_EQ(choice->backend, "gloo");
  EXPECT_THAT(choice->note, HasSubstr("rank 0 and rank 1 cannot both use nccl on one device"));
}

TEST(ChooseBackendTest, TheSameNumberOnTwoMachinesIsTwoDevices) {
  EXPECT_THAT(ChooseBackend("nccl", {Facts(0, {"GPU-a"}), On("machine-2", "10.0.0.2", Facts(0, {"GPU-c"}))}), IsOk());
}

TEST(ChooseBackendTest, GlooOnTwoMachinesNeedsAnAddressThatLeadsFromOneToTheOther) {
  EXPECT_THAT(ChooseBackend("gloo", {Facts(0), On("machine-2", "10.0.0.2", Facts(0))}), IsOk());
  EXPECT_THAT(ChooseBackend("gloo", {On("machine-1", "127.0.0.1", Facts(0)), On("machine-1", "127.0.0.1", Facts(1))}),
              IsOk());
  for (const char* loopback : {"127.0.1.1", "::1"}) {
    EXPECT_THAT(ChooseBackend("gloo", {Facts(0), On("machine-2", loopback, Facts(0))}),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         AllOf(HasSubstr("rank 0 and rank 1"), HasSubstr(loopback), HasSubstr("GLOO_SOCKET_IFNAME"))));
  }
}

// A bridge of containers has one address on every machine.
TEST(ChooseBackendTest, OneAddressOnTwoMachinesIsAnErrorThatNamesTheVariable) {
  EXPECT_THAT(
      ChooseBackend("gloo", {On("machine-1", "172.17.0.1", Facts(0)), On("machine-1", "172.17.0.1", Facts(1)),
                             On("machine-2", "172.17.0.1", Facts(0))}),
      StatusIs(absl::StatusCode::kInvalidArgument,
               AllOf(HasSubstr("rank 0 and rank 2"), HasSubstr("172.17.0.1"), HasSubstr("GLOO_SOCKET_IFNAME"))));
  EXPECT_THAT(ChooseBackend("gloo", {On("machine-1", "10.0.0.1", Facts(0)), On("machine-2", "10.0.0.2", Facts(0)),
                                     On("machine-2", "10.0.0.2", Facts(1))}),
              IsOk());
}

TEST(ChooseBackendTest, AnUnknownBackendIsRefusedWithThoseThatThereAre) {
  EXPECT_THAT(CheckBackendName("mpi"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("\"mpi\""), HasSubstr("auto"), HasSubstr("gloo"), HasSubstr("nccl"))));
}

}  // namespace
}  // namespace cohort::internal
