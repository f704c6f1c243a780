#include "cohort/runtime/internal/meeting_point.h"

#include <netinet/in.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/status_matchers.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "cohort/runtime/internal/endpoint.h"
#include "cohort/runtime/internal/socket.h"
#include "cohort/runtime/internal/steady_time.h"
#include "cohort/runtime/rank_info.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort::internal {
namespace {

using absl_testing::IsOk;
using absl_testing::StatusIs;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

// A port of loopback that nobody listens on: bound, as a launcher reserves it.
class ReservedPort {
 public:
  ReservedPort() : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const int on = 1;
    EXPECT_EQ(setsockopt(fd_.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)), 0);
    const Endpoint any = Endpoint::Wildcard(AF_INET, 0);
    EXPECT_EQ(bind(fd_.get(), any.address(), any.size()), 0);
  }

  int number() const { return Endpoint::OfSocket(fd_.get())->port(); }

 private:
  UniqueFd fd_;
};

RankInfo Info(const std::string& master_addr, int master_port) {
  return {.rank = 0, .world_size = 2, .local_world_size = 2, .master_addr = master_addr, .master_port = master_port};
}

RankInfo OfTwoMachines(const std::string& master_addr, int master_port) {
  RankInfo info = Info(master_addr, master_port);
  info.local_world_size = 1;
  return info;
}

SteadyTime InAMinute() { return After(SteadyNow(), absl::Minutes(1)); }

// As a resolver to which a name becomes known after some look-ups.
class LateName {
 public:
  explicit LateName(int num_failures) : num_failures_(num_failures) {}

  absl::StatusOr<std::vector<Endpoint>> operator()(const std::string& host, int port) {
    if (num_failures_-- > 0) return absl::NotFoundError(absl::StrCat("no address of \"", host, "\": not yet"));
    return Resolve("127.0.0.1", port);
  }

 private:
  int num_failures_;
};

TEST(OpenMeetingPointTest, ListensOnTheReservedPortOfLoopbackAlone) {
  const ReservedPort port;
  const absl::StatusOr<MeetingPoint> point = OpenMeetingPoint(Info("127.0.0.1", port.number()), InAMinute());
  ASSERT_THAT(point, IsOk());
  EXPECT_EQ(Endpoint::OfSocket(point->listener.fd.get())->ToString(), absl::StrCat("127.0.0.1:", port.number()));
  EXPECT_EQ(point->listener.port, port.number());
  EXPECT_EQ(point->local_host, "127.0.0.1");
}

TEST(OpenMeetingPointTest, SaysWhereThePortIsInUse) {
  const ReservedPort port;
  const absl::StatusOr<MeetingPoint> first = OpenMeetingPoint(Info("127.0.0.1", port.number()), InAMinute());
  ASSERT_THAT(first, IsOk());
  EXPECT_THAT(OpenMeetingPoint(Info("127.0.0.1", port.number()), InAMinute()),
              StatusIs(absl::StatusCode::kAlreadyExists,
                       AllOf(HasSubstr(absl::StrCat("127.0.0.1:", port.number())), HasSubstr("in use"))));
}

// The next three take 3 s each: name_patience_test has the limits.
TEST(OpenMeetingPointTest, SaysThatANameHasNoAddress) {
  EXPECT_THAT(OpenMeetingPoint(Info("no-such-host.invalid", 29500), InAMinute()),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("MASTER_ADDR=no-such-host.invalid"), HasSubstr("no address of"))));
}

// In a network namespace of its own, in which no interface is up.
TEST(MeetingPointTest, SaysThatLoopbackIsDown) {
  const pid_t pid = fork();
  ASSERT_GE(pid, 0);
  if (pid == 0) {
    if (unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0) _exit(2);
    const auto is_said = [](const absl::Status& status) {
      return absl::IsInvalidArgument(status) && absl::StrContains(status.message(), "that interface is down here");
    };
    const RankInfo info = Info("127.0.0.1", 29500);
    _exit(is_said(OpenMeetingPoint(info, InAMinute()).status()) &&
                  is_said(VisitMeetingPoint(info, InAMinute()).status())
              ? 0
              : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(pid, &status, 0), pid);
  ASSERT_TRUE(WIFEXITED(status)) << status;
  if (WEXITSTATUS(status) == 2) GTEST_SKIP() << "no user namespaces here";
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST(VisitMeetingPointTest, SaysThatANameHasNoAddressWhereAllRanksAreOnThisMachine) {
  EXPECT_THAT(VisitMeetingPoint(Info("no-such-host.invalid", 29500), InAMinute()),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("MASTER_ADDR=no-such-host.invalid"), HasSubstr("no address of"))));
}

TEST(VisitMeetingPointTest, OfSeveralMachinesWaitsForANameAndSaysSoOnce) {
  const ReservedPort port;
  const absl::StatusOr<MeetingPoint> point = OpenMeetingPoint(Info("127.0.0.1", port.number()), InAMinute());
  ASSERT_THAT(point, IsOk());
  RankInfo info = OfTwoMachines("late.test", port.number());
  info.rank = 1;
  // Becomes known at the third look-up after the time at which a rank of one machine gives up.
  std::optional<SteadyTime> start;
  LateName late_name(2);
  const auto resolver = [&](const std::string& host, int port) -> absl::StatusOr<std::vector<Endpoint>> {
    if (!start.has_value()) start = SteadyNow();
    if (Between(*start, SteadyNow()) < absl::Seconds(3)) return absl::NotFoundError("nobody to ask");
    return late_name(host, port);
  };
  testing::internal::CaptureStderr();
  const absl::StatusOr<Visit> visit = VisitMeetingPoint(info, InAMinute(), resolver);
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_THAT(visit, IsOk());
  EXPECT_EQ(said, absl::StrCat("cohort: MASTER_ADDR=late.test MASTER_PORT=", port.number(),
                               ": no address of \"late.test\": not yet; rank 1 goes on asking\n"));
}

TEST(OpenMeetingPointTest, GivesUpANameAtTheDeadline) {
  EXPECT_THAT(OpenMeetingPoint(Info("no-such-host.invalid", 29500), SteadyNow()),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("MASTER_ADDR=no-such-host.invalid")));
}

TEST(OpenMeetingPointTest, ANameThatComesLaterIsWaitedFor) {
  const ReservedPort port;
  LateName resolver(3);
  const absl::StatusOr<MeetingPoint> point = OpenMeetingPoint(Info("late.test", port.number()), InAMinute(), resolver);
  ASSERT_THAT(point, IsOk());
  EXPECT_EQ(point->local_host, "127.0.0.1");
}

TEST(VisitMeetingPointTest, ANameThatComesLaterIsWaitedFor) {
  const ReservedPort port;
  const absl::StatusOr<MeetingPoint> point = OpenMeetingPoint(Info("127.0.0.1", port.number()), InAMinute());
  ASSERT_THAT(point, IsOk());
  LateName resolver(3);
  EXPECT_THAT(VisitMeetingPoint(Info("late.test", port.number()), InAMinute(), resolver), IsOk());
}

class ManyHostsTest : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Addresses, ManyHostsTest,
                         testing::Values("0.0.0.0", "::", "224.0.0.1", "255.255.255.255", "ff02::1"));

TEST_P(ManyHostsTest, AreNoPlaceToMeetAndTheErrorSaysWhatThereIs) {
  const auto refuses = StatusIs(absl::StatusCode::kInvalidArgument,
                                AllOf(HasSubstr(absl::StrCat("MASTER_ADDR=", GetParam())),
                                      HasSubstr("is not the address of one machine"), HasSubstr("lo 127.0.0.1")));
  EXPECT_THAT(OpenMeetingPoint(Info(GetParam(), 29500), InAMinute()), refuses);
  EXPECT_THAT(VisitMeetingPoint(Info(GetParam(), 29500), InAMinute()), refuses);
}

// The test's network leads nowhere.
TEST(OpenMeetingPointTest, AnAddressOfAnotherMachineIsAnErrorWhereAllRanksAreOnThisOne) {
  if (FirstRoutableAddress(AF_INET).ok() || FirstRoutableAddress(AF_INET6).ok()) {
    GTEST_SKIP() << "there is a network here, and nobody there may be bothered";
  }
  for (const char* elsewhere : {"10.1.2.3", "fd00::1:2:3"}) {
    const ReservedPort port;
    EXPECT_THAT(OpenMeetingPoint(Info(elsewhere, port.number()), InAMinute()),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         AllOf(HasSubstr(absl::StrCat("MASTER_ADDR=", elsewhere)), HasSubstr("no such address"),
                               HasSubstr("it has: lo 127.0.0.1"))));
  }
}

TEST(MeetingPointNameTest, SaysWhatWasDerived) {
  RankInfo info = Info("n01", 20776);
  EXPECT_EQ(MeetingPointName(info), "MASTER_ADDR=n01 MASTER_PORT=20776");
  info.master_derived_from = "Slurm";
  EXPECT_EQ(MeetingPointName(info), "MASTER_ADDR=n01 MASTER_PORT=20776, derived from the variables of Slurm");
}

TEST(VisitMeetingPointTest, ConnectsOnceSomebodyListens) {
  const ReservedPort port;
  const RankInfo info = Info("127.0.0.1", port.number());
  absl::StatusOr<Visit> visit;
  std::thread visitor([&] { visit = VisitMeetingPoint(info, InAMinute()); });
  const absl::StatusOr<MeetingPoint> point = OpenMeetingPoint(info, InAMinute());
  visitor.join();
  ASSERT_THAT(point, IsOk());
  ASSERT_THAT(visit, IsOk());
  EXPECT_EQ(visit->remote.ToString(), absl::StrCat("127.0.0.1:", port.number()));
  EXPECT_EQ(visit->local_host, "127.0.0.1");
  EXPECT_TRUE(AcceptFrom(point->listener.fd)->is_open());
}

TEST(VisitMeetingPointTest, SaysWhoWasMissingAndWhere) {
  const ReservedPort port;
  const SteadyTime start = SteadyNow();
  EXPECT_THAT(VisitMeetingPoint(Info("127.0.0.1", port.number()), After(start, absl::Milliseconds(300))),
              StatusIs(absl::StatusCode::kDeadlineExceeded,
                       AllOf(HasSubstr("missing: rank 0"), HasSubstr("MASTER_ADDR=127.0.0.1"),
                             HasSubstr(absl::StrCat("MASTER_PORT=", port.number())), HasSubstr("world size 2"),
                             HasSubstr("Connection refused"))));
  EXPECT_GE(Between(start, SteadyNow()), absl::Milliseconds(300));
}

TEST(LoopbackTest, OfSeveralMachinesTheErrorSaysThatItLeadsEachToItself) {
  for (const char* address : {"127.0.0.1", "localhost", "127.1.2.3"}) {
    const ReservedPort port;
    EXPECT_THAT(VisitMeetingPoint(OfTwoMachines(address, port.number()), SteadyNow()),
                StatusIs(absl::StatusCode::kDeadlineExceeded,
                         AllOf(HasSubstr(absl::StrCat("MASTER_ADDR=", address)), HasSubstr("; 127."),
                               HasSubstr("is loopback, which leads each machine to itself alone"))));
  }
}

// As where a machine gives the master's name to itself.
TEST(LoopbackTest, SoDoesANameThatLeadsThere) {
  const ReservedPort port;
  LateName resolver(0);
  EXPECT_THAT(VisitMeetingPoint(OfTwoMachines("master.test", port.number()), SteadyNow(), resolver),
              StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("; 127.0.0.1 is loopback")));
}

TEST(LoopbackTest, IsNothingToSpeakOfWhereAllRanksAreOnThisMachine) {
  const ReservedPort port;
  EXPECT_THAT(VisitMeetingPoint(Info("127.0.0.1", port.number()), SteadyNow()),
              StatusIs(absl::StatusCode::kDeadlineExceeded, Not(HasSubstr("is loopback"))));
}

TEST(LoopbackTest, BothSidesHaveTheHintForRanksThatDoNotCome) {
  for (const bool spans_nodes : {true, false}) {
    const ReservedPort port;
    const RankInfo info = spans_nodes ? OfTwoMachines("127.0.0.1", port.number()) : Info("127.0.0.1", port.number());
    const absl::StatusOr<MeetingPoint> point = OpenMeetingPoint(info, InAMinute());
    ASSERT_THAT(point, IsOk());
    const absl::StatusOr<Visit> visit = VisitMeetingPoint(info, InAMinute());
    ASSERT_THAT(visit, IsOk());
    EXPECT_EQ(point->hint.starts_with("; 127.0.0.1 is loopback"), spans_nodes) << point->hint;
    EXPECT_EQ(point->hint.empty(), !spans_nodes);
    EXPECT_EQ(visit->hint, point->hint);
  }
}

TEST(VisitMeetingPointTest, TheDeadlineHoldsForANameAsWell) {
  EXPECT_THAT(VisitMeetingPoint(Info("no-such-host.invalid", 29500), SteadyNow()),
              StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("no-such-host.invalid")));
}

}  // namespace
}  // namespace cohort::internal
