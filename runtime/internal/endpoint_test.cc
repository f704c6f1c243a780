#include "cohort/runtime/internal/endpoint.h"

#include <sys/socket.h>

#include <string>
#include <vector>

#include "absl/status/status_matchers.h"
#include "absl/status/statusor.h"
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

TEST(InterfaceAddressesTest, NamesTheInterfaceThatIsNotThereAndThoseThatAre) {
  EXPECT_THAT(InterfaceAddresses("lo,eth77"),
              StatusIs(absl::StatusCode::kNotFound, AllOf(HasSubstr("\"eth77\""), HasSubstr("this machine has: lo"))));
}

TEST(NetworkStackIdTest, IsTheSameAgain) {
  EXPECT_EQ(NetworkStackId(), NetworkStackId());
  EXPECT_GT(NetworkStackId().size(), 36u) << "no boot id in it: " << NetworkStackId();
}

}  // namespace
}  // namespace cohort::internal
