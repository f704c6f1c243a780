#include "cohort/runtime/internal/endpoint.h"

#include <sched.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/status_matchers.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort::internal {
namespace {

using absl_testing::IsOk;
using absl_testing::StatusIs;
using testing::AllOf;
using testing::HasSubstr;

Endpoint OnlyOne(const std::string& host, int port) {
  const absl::StatusOr<std::vector<Endpoint>> endpoints = Resolve(host, port);
  EXPECT_THAT(endpoints, IsOk());
  EXPECT_EQ(endpoints->size(), 1u);
  return endpoints->front();
}

TEST(EndpointTest, ShowsAnAddressOfEitherFamilyAsNumbers) {
  EXPECT_EQ(OnlyOne("127.0.0.1", 29500).ToString(), "127.0.0.1:29500");
  EXPECT_EQ(OnlyOne("::1", 29500).ToString(), "[::1]:29500");
  EXPECT_EQ(OnlyOne("::1", 29500).host(), "::1");
  EXPECT_EQ(OnlyOne("10.1.2.3", 65535).port(), 65535);
}

TEST(EndpointTest, KnowsLoopback) {
  EXPECT_TRUE(OnlyOne("127.0.0.1", 1).is_loopback());
  EXPECT_TRUE(OnlyOne("127.0.1.1", 1).is_loopback());
  EXPECT_TRUE(OnlyOne("::1", 1).is_loopback());
  EXPECT_FALSE(OnlyOne("10.0.0.1", 1).is_loopback());
  EXPECT_FALSE(OnlyOne("fd00::1", 1).is_loopback());
}

TEST(EndpointTest, KnowsWhatStandsForManyHosts) {
  for (const char* many : {"0.0.0.0", "255.255.255.255", "224.0.0.1", "239.255.255.255", "::", "ff02::1"}) {
    EXPECT_FALSE(OnlyOne(many, 1).is_one_host()) << many;
  }
  for (const char* one : {"127.0.0.1", "10.0.0.255", "223.255.255.255", "240.0.0.1", "::1", "fd00::1", "fe80::1"}) {
    EXPECT_TRUE(OnlyOne(one, 1).is_one_host()) << one;
  }
}

TEST(EndpointTest, WildcardIsEveryAddressOfTheFamily) {
  EXPECT_EQ(Endpoint::Wildcard(AF_INET, 80).ToString(), "0.0.0.0:80");
  EXPECT_EQ(Endpoint::Wildcard(AF_INET6, 80).ToString(), "[::]:80");
}

TEST(ResolveTest, SaysWhichNameHasNoAddress) {
  EXPECT_THAT(Resolve("no-such-host.invalid", 1),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("no-such-host.invalid")));
}

TEST(InterfaceAddressesTest, FindsLoopback) {
  const absl::StatusOr<std::vector<Endpoint>> endpoints = InterfaceAddresses("lo");
  ASSERT_THAT(endpoints, IsOk());
  ASSERT_EQ(endpoints->size(), 1u);
  EXPECT_EQ(endpoints->front().host(), "127.0.0.1");
}

class NoInterfaceTest : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Names, NoInterfaceTest,
                         testing::Values("eth77", "lo,eth77", "", "lo,", ",lo", " lo", "lo lo", "l", "lo0", "^lo",
                                         "127.0.0.1", "=lo", "lo;eth0",
                                         "an interface whose name is much too long for one"));

TEST_P(NoInterfaceTest, IsNamedWithThoseThatThereAre) {
  EXPECT_THAT(InterfaceAddresses(GetParam()),
              StatusIs(absl::StatusCode::kNotFound, AllOf(HasSubstr("no network interface \""),
                                                          HasSubstr("this machine has: "), HasSubstr("lo 127.0.0.1"))));
}

TEST(InterfaceAddressesTest, NamesTheOneThatIsNotThere) {
  EXPECT_THAT(InterfaceAddresses("lo,eth77"), StatusIs(absl::StatusCode::kNotFound, HasSubstr("\"eth77\"")));
  EXPECT_THAT(InterfaceAddresses("\x1b[31m"), StatusIs(absl::StatusCode::kNotFound, HasSubstr("\"\\x1b[31m\"")));
}

// In a network namespace of its own, whose loopback is down.
TEST(InterfaceAddressesTest, AnInterfaceThatIsDownIsNoneAndIsSaidToBe) {
  const pid_t pid = fork();
  if (pid == 0) {
    if (unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0) _exit(2);
    const absl::StatusOr<std::vector<Endpoint>> endpoints = InterfaceAddresses("lo");
    _exit(absl::IsNotFound(endpoints.status()) && absl::StrContains(endpoints.status().message(), "lo (down)") ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(pid, &status, 0), pid);
  ASSERT_TRUE(WIFEXITED(status)) << status;
  if (WEXITSTATUS(status) == 2) GTEST_SKIP() << "no user namespaces here";
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST(NetworkStackIdTest, IsTheSameAgain) {
  EXPECT_EQ(NetworkStackId(), NetworkStackId());
  EXPECT_GT(NetworkStackId().size(), 36u) << "no boot id in it: " << NetworkStackId();
}

}  // namespace
}  // namespace cohort::internal
