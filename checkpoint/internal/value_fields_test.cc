#include "cohort/checkpoint/internal/value_fields.h"

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "ATen/core/ivalue.h"
#include "absl/status/status.h"
#include "absl/status/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort::internal {
namespace {

using ::absl_testing::IsOk;
using ::absl_testing::StatusIs;
using ::testing::ElementsAre;

// One variable of each kind.
struct Values {
  bool flag = false;
  int64_t count = 0;
  double rate = 0;
  std::string mode;
  std::optional<bool> foreach;
  std::optional<double> limit;
  std::vector<double> rates;
  std::tuple<double, double> betas;

  std::vector<Field> Fields() {
    return {{"flag", &flag},       {"count", &count},        {"rate", &rate},   {"mode", &mode},
            {"foreach", &foreach}, {"limit", &limit, false}, {"rates", &rates}, {"betas", &betas}};
  }
};

c10::impl::GenericDict DictOf(Values values) {
  c10::impl::GenericDict dict = NewDict();
  PutFields(values.Fields(), dict);
  return dict;
}

TEST(ValueFieldsTest, WhatIsWrittenIsRead) {
  Values values{.flag = true,
                .count = int64_t{1} << 62,
                .rate = 0.1,
                .mode = "min",
                .foreach = false,
                .limit = 0.3,
                .rates = {1, std::numeric_limits<double>::infinity()},
                .betas = {0.9, 0.999}};
  Values read;
  ASSERT_THAT(ReadFields(DictOf(values), read.Fields(), "it"), IsOk());
  EXPECT_EQ(DictOf(read).at("count"), int64_t{1} << 62);
  EXPECT_EQ(read.rate, 0.1);
  EXPECT_EQ(read.mode, "min");
  EXPECT_EQ(read.foreach, false);
  EXPECT_EQ(read.limit, 0.3);
  EXPECT_EQ(read.rates, values.rates);
  EXPECT_EQ(read.betas, values.betas);
}

TEST(ValueFieldsTest, WritesKeysInOrderAndEmptyOptionalsAsNone) {
  std::vector<std::string> keys;
  for (const auto& entry : DictOf({})) keys.push_back(entry.key().toStringRef());
  EXPECT_THAT(keys, ElementsAre("flag", "count", "rate", "mode", "foreach", "limit", "rates", "betas"));
  EXPECT_TRUE(DictOf({}).at("foreach").isNone());
  EXPECT_TRUE(DictOf({}).at("rates").isList());
  EXPECT_TRUE(DictOf({}).at("betas").isTuple());
}

TEST(ValueFieldsTest, AnIntMayStandForADoubleThatIsTheSame) {
  Values read;
  c10::impl::GenericDict dict = DictOf({});
  dict.insert_or_assign("rate", (int64_t{1} << 53));
  dict.insert_or_assign("limit", -1);
  dict.insert_or_assign("rates", c10::ivalue::Tuple::create({1, 2.5}));
  ASSERT_THAT(ReadFields(dict, read.Fields(), "it"), IsOk());
  EXPECT_EQ(read.rate, 9007199254740992.0);
  EXPECT_EQ(read.limit, -1.0);
  EXPECT_THAT(read.rates, ElementsAre(1, 2.5));
  dict.insert_or_assign("rate", (int64_t{1} << 53) + 1);
  EXPECT_THAT(ReadFields(dict, read.Fields(), "it"), StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST(ValueFieldsTest, RefusesOtherTypesByKey) {
  const auto refused = [](const char* key, const c10::IValue& value, const char* message) {
    Values read;
    c10::impl::GenericDict dict = DictOf({});
    dict.insert_or_assign(key, value);
    EXPECT_THAT(ReadFields(dict, read.Fields(), "it"), StatusIs(absl::StatusCode::kInvalidArgument, message));
  };
  refused("flag", 1, "it: \"flag\" is an int, not a bool");
  refused("count", 1.0, "it: \"count\" is a float, not an int");
  refused("count", true, "it: \"count\" is a bool, not an int");
  refused("rate", true, "it: \"rate\" is a bool, not a number that a double holds");
  refused("mode", c10::IValue(), "it: \"mode\" is None, not a str");
  refused("foreach", 0, "it: \"foreach\" is an int, not None or a bool");
  refused("limit", "1", "it: \"limit\" is a str, not None or a number that a double holds");
  refused("rates", 1.0, "it: \"rates\" is a float, not a list of numbers");
  refused("rates", c10::List<std::string>({"1"}), "it: \"rates\" is a list, not a list of numbers");
  refused("betas", c10::List<double>({1, 2, 3}), "it: \"betas\" is a list, not a pair of numbers");
  refused("new\n", 1, "it: unknown key \"new\\n\"");
}

TEST(ValueFieldsTest, RefusesDictsThatAreNot) {
  Values read;
  c10::impl::GenericDict dict = DictOf({});
  EXPECT_EQ(dict.erase("limit"), 1u);
  EXPECT_THAT(ReadFields(dict, read.Fields(), "it"), IsOk());
  EXPECT_EQ(dict.erase("mode"), 1u);
  EXPECT_THAT(ReadFields(dict, read.Fields(), "it"),
              StatusIs(absl::StatusCode::kInvalidArgument, "it has no \"mode\""));
  dict.insert(int64_t{3}, 1);
  EXPECT_THAT(ReadFields(dict, read.Fields(), "it"),
              StatusIs(absl::StatusCode::kInvalidArgument, "it: a key is an int, not a str"));
  EXPECT_THAT(AsDict(c10::IValue("x"), "it"), StatusIs(absl::StatusCode::kInvalidArgument, "it is a str, not a dict"));
}

}  // namespace
}  // namespace cohort::internal
