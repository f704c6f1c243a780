#include "cohort/runtime/internal/exchange_store.h"

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/status_matchers.h"
#include "absl/status/statusor.h"
#include "c10/util/Exception.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort::internal {
namespace {

using absl_testing::IsOk;
using absl_testing::StatusIs;

using Bytes = std::vector<uint8_t>;

TEST(ExchangeStoreTest, SettingAKeyBringsThoseOfAllRanks) {
  ExchangeStore store([](std::string mine) -> absl::StatusOr<std::vector<std::string>> {
    return std::vector<std::string>{mine, std::string("0/1 a b\0c", 9)};
  });
  EXPECT_FALSE(store.check({"0/0"}));
  store.set("0/0", Bytes{'x', ' ', 0, 255});
  EXPECT_TRUE(store.check({"0/0", "0/1"}));
  EXPECT_EQ(store.get("0/0"), (Bytes{'x', ' ', 0, 255}));
  EXPECT_EQ(store.get("0/1"), (Bytes{'a', ' ', 'b', 0, 'c'}));
  EXPECT_EQ(store.getNumKeys(), 2);
  EXPECT_THAT(store.status(), IsOk());
}

TEST(ExchangeStoreTest, AFailedExchangeIsThrownIntoLibTorchAndRemembered) {
  ExchangeStore store(
      [](std::string) -> absl::StatusOr<std::vector<std::string>> { return absl::UnavailableError("rank 1 is gone"); });
  EXPECT_THROW(store.set("0/0", Bytes{}), c10::DistStoreError);
  EXPECT_THAT(store.status(), StatusIs(absl::StatusCode::kUnavailable, "rank 1 is gone"));
}

TEST(ExchangeStoreTest, WaitsForNobody) {
  ExchangeStore store([](std::string mine) -> absl::StatusOr<std::vector<std::string>> { return std::vector{mine}; });
  store.set("0/0", Bytes{1});
  EXPECT_NO_THROW(store.wait({"0/0"}));
  EXPECT_THROW(store.wait({"0/0", "0/1"}), c10::DistStoreError);
  EXPECT_THROW(store.get("0/1"), c10::DistStoreError);
}

TEST(ExchangeStoreTest, ExchangesNothingOnceClosed) {
  int num_exchanges = 0;
  ExchangeStore store([&](std::string mine) -> absl::StatusOr<std::vector<std::string>> {
    ++num_exchanges;
    return std::vector{mine};
  });
  store.Close();
  EXPECT_THROW(store.set("0/0", Bytes{1}), c10::DistStoreError);
  EXPECT_EQ(num_exchanges, 0);
}

}  // namespace
}  // namespace cohort::internal
