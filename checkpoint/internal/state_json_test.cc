#include "cohort/checkpoint/internal/state_json.h"

#include <cmath>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/status_matchers.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "cohort/checkpoint/internal/memory_budget.h"
#include "cohort/checkpoint/internal/random_state_tree.h"
#include "cohort/checkpoint/internal/state_tree.h"
#include "cohort/checkpoint/testing/python.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort::internal {
namespace {

using ::absl_testing::IsOkAndHolds;
using ::absl_testing::StatusIs;
using ::cohort::testing::RunPython;
using ::testing::AllOf;
using ::testing::HasSubstr;

using Items = std::vector<StateItem>;

StateTree Dict(Items items) { return {StateDict{std::move(items)}}; }
StateTree Tensor(size_t index) { return {TensorIndex{index}}; }

// `depth` lists in each other.
StateTree Nested(int depth) {
  StateTree tree;
  for (int i = 0; i < depth; ++i) tree = StateTree{StateList{{tree}}};
  return tree;
}

absl::StatusOr<std::string> Json(const StateTree& tree) {
  const absl::StatusOr<std::vector<NamedTensor>> named = NameTensors(tree);
  if (!named.ok()) return named.status();
  return StateToJson(tree, *named);
}

absl::StatusOr<StateTree> Parsed(std::string_view json, const std::vector<std::string>& names = {}) {
  MemoryBudget budget(0);
  return StateFromJson(json, names, budget);
}

TEST(StateJsonTest, WritesPlainValuesAsPlainJson) {
  EXPECT_THAT(Json(Dict({{"epoch", {int64_t{3}}},
                         {"lr", {0.1}},
                         {"one", {1.0}},
                         {"name", {std::string("\"é\"")}},
                         {"none", {}},
                         {"flags", {StateList{{{true}, {false}}}}}})),
              IsOkAndHolds(R"({"epoch":3,"lr":0.1,"one":1.0,"name":"\"é\"","none":null,"flags":[true,false]})"));
}

TEST(StateJsonTest, TagsWhatJsonLacks) {
  EXPECT_THAT(Json(Dict({{int64_t{0}, {StateTuple{{{1.5}}}}}, {"$x", {std::complex<double>(1, -0.0)}}})),
              IsOkAndHolds(R"({"$dict":[[0,{"$tuple":[1.5]}],["$x",{"$complex":[1.0,-0.0]}]]})"));
  EXPECT_THAT(
      Json({StateList{{{0.0 / 1 * -1}, {std::numeric_limits<double>::infinity()}, {std::nan("")}, {std::nan("1")}}}}),
      IsOkAndHolds(R"([-0.0,{"$float":"inf"},{"$float":"nan"},{"$float":"0x7ff8000000000001"}])"));
}

TEST(StateJsonTest, NamesTensorsByTheirPaths) {
  const StateTree tree = Dict({{"model", Dict({{"fc.weight", Tensor(1)}, {"tied", Tensor(1)}})},
                               {"optimizer", Dict({{int64_t{-2}, {StateList{{Tensor(0)}}}}})}});
  const absl::StatusOr<std::vector<NamedTensor>> named = NameTensors(tree);
  ASSERT_EQ(named.status(), absl::OkStatus());
  ASSERT_EQ(named->size(), 2);
  EXPECT_EQ((*named)[0].name, "model.fc.weight");
  EXPECT_EQ((*named)[0].tensor.index, 1);
  EXPECT_EQ((*named)[1].name, "optimizer.-2.0");
  EXPECT_EQ((*named)[1].tensor.index, 0);
  EXPECT_EQ(StateToJson(tree, *named),
            R"({"model":{"fc.weight":{"$tensor":"model.fc.weight"},"tied":{"$tensor":"model.fc.weight"}},)"
            R"("optimizer":{"$dict":[[-2,[{"$tensor":"optimizer.-2.0"}]]]}})");
}

TEST(StateJsonTest, OnlyADictOfDistinctTensorsIsToldByTheNames) {
  const auto is_only = [](const StateTree& tree) { return IsOnlyTensors(tree, *NameTensors(tree)); };
  EXPECT_TRUE(is_only(Dict({})));
  EXPECT_TRUE(is_only(Dict({{"b.c", Tensor(1)}, {"a", Tensor(0)}})));
  EXPECT_FALSE(is_only(Dict({{"a", Tensor(0)}, {"b", Tensor(0)}})));
  EXPECT_FALSE(is_only(Dict({{int64_t{0}, Tensor(0)}})));
  EXPECT_FALSE(is_only(Dict({{"a", Tensor(0)}, {"b", {}}})));
  EXPECT_FALSE(is_only(Dict({{"a", Dict({{"b", Tensor(0)}})}})));
  EXPECT_FALSE(is_only(Tensor(0)));
  EXPECT_FALSE(is_only({}));
}

TEST(StateJsonTest, RefusesTwoTensorsOfOneNameAndSaysWhere) {
  EXPECT_THAT(
      Json(Dict({{"a.b", Dict({{"c", Tensor(0)}})}, {"a", Dict({{"b.c", Tensor(1)}})}})),
      StatusIs(absl::StatusCode::kInvalidArgument,
               AllOf(HasSubstr(R"(state["a"]["b.c"])"), HasSubstr(R"(state["a.b"]["c"])"), HasSubstr(R"("a.b.c")"))));
  EXPECT_THAT(Json(Dict({{int64_t{1}, Tensor(0)}, {"1", Tensor(1)}})),
              StatusIs(absl::StatusCode::kInvalidArgument, AllOf(HasSubstr(R"(state["1"])"), HasSubstr("state[1]"))));
}

TEST(StateJsonTest, RefusesWhatCannotBeWrittenAndSaysWhere) {
  EXPECT_THAT(Json(Dict({{"__metadata__", Tensor(0)}})),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(R"(state["__metadata__"])")));
  EXPECT_THAT(Json(Dict({{"a", {StateList{{{}, {std::string("\xff")}}}}}})),
              StatusIs(absl::StatusCode::kInvalidArgument, AllOf(HasSubstr(R"(state["a"][1])"), HasSubstr("UTF-8"))));
  EXPECT_THAT(Json(Dict({{"a", Dict({{"\xff", {}}})}})),
              StatusIs(absl::StatusCode::kInvalidArgument, AllOf(HasSubstr(R"(state["a"])"), HasSubstr("UTF-8"))));
}

TEST(StateJsonTest, DepthIsLimitedInBothDirections) {
  const absl::StatusOr<std::string> deepest = Json(Nested(kMaxStateDepth));
  ASSERT_EQ(deepest.status(), absl::OkStatus());
  EXPECT_THAT(Parsed(*deepest), IsOkAndHolds(Nested(kMaxStateDepth)));
  EXPECT_THAT(Json(Nested(kMaxStateDepth + 1)), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("deep")));
  EXPECT_THAT(Parsed(absl::StrCat("[", *deepest, "]")),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("deep")));
  EXPECT_THAT(Parsed(std::string(100000, '[')), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("deep")));
}

TEST(StateJsonTest, TheDeepestDictsReadBack) {
  StateTree tree{std::complex<double>(std::nan(""), 1)};
  for (int i = 0; i < kMaxStateDepth; ++i) tree = Dict({{int64_t{i}, tree}});
  const absl::StatusOr<std::string> json = Json(tree);
  ASSERT_EQ(json.status(), absl::OkStatus());
  const absl::StatusOr<StateTree> read = Parsed(*json);
  ASSERT_EQ(read.status(), absl::OkStatus());
  EXPECT_TRUE(SameBits(*read, tree));
  EXPECT_THAT(Json(Dict({{int64_t{0}, tree}})), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(Parsed(absl::StrCat(R"({"a":)", *json, "}")),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("deep")));
}

TEST(StateJsonTest, RandomStatesReadBackBitForBit) {
  const uint32_t seed = std::random_device()();
  SCOPED_TRACE(absl::StrCat("seed ", seed));
  std::mt19937 random(seed);
  for (int i = 0; i < 500; ++i) {
    const RandomState state = MakeRandomState(random);
    const absl::StatusOr<std::vector<NamedTensor>> named = NameTensors(state.tree);
    ASSERT_EQ(named.status(), absl::OkStatus());
    std::vector<std::string> names(state.num_tensors);
    for (const NamedTensor& tensor : *named) names[tensor.tensor.index] = tensor.name;
    const std::string json = StateToJson(state.tree, *named);
    const absl::StatusOr<StateTree> read = Parsed(json, names);
    ASSERT_EQ(read.status(), absl::OkStatus()) << json;
    ASSERT_TRUE(SameBits(*read, state.tree)) << json;
  }
}

TEST(StateJsonTest, PythonReadsTheSameNumbers) {
  const absl::StatusOr<std::string> json =
      Json({StateList{{{0.1}, {1.0}, {-0.0}, {1e22}, {5e-324}, {int64_t{1}}, {INT64_MIN}}}});
  ASSERT_EQ(json.status(), absl::OkStatus());
  EXPECT_EQ(RunPython("import json, sys\nsys.stdout.write(repr(json.loads(sys.argv[1])))", {*json}),
            "[0.1, 1.0, -0.0, 1e+22, 5e-324, 1, -9223372036854775808]");
}

TEST(StateJsonTest, RefusesWhatItWouldNotWrite) {
  const std::vector<std::string> names = {"t"};
  const std::string use = R"({"$tensor":"t"})";
  EXPECT_THAT(Parsed(use, names), IsOkAndHolds(Tensor(0)));
  const std::pair<const char*, const char*> kBad[] = {
      {R"({"a":1,"a":2})", "occurs twice"},
      {R"({"$dict":[[1,1],[1,2]]})", "occurs twice"},
      {R"({"$dict":[["1",1],["1",2]]})", "occurs twice"},
      {R"({"$dict":[[1]]})", "[key, value]"},
      {R"({"$dict":[1]})", "[key, value]"},
      {R"({"$dict":[[1.0,1]]})", "neither a string nor an integer"},
      {R"({"$dict":{}})", "stands for nothing"},
      {R"({"$what":1})", "$what"},
      {R"({"$tuple":1})", "$tuple"},
      {R"({"$tuple":[],"a":1})", "not alone"},
      {R"({"a":1,"$tuple":[]})", "not alone"},
      {R"({"$complex":[1,2]})", "[float, float]"},
      {R"({"$complex":[1.0]})", "[float, float]"},
      {R"({"$float":"1.5"})", "1.5"},
      {R"({"$float":"0x3ff0000000000000"})", "0x3ff0000000000000"},
      {R"({"$float":"0x7ff80000000000"})", "0x7ff8"},
      {R"({"$tensor":"u"})", "no tensor \"u\""},
      {R"({"$tensor":1})", "$tensor"},
      {"{}", "the tensor \"t\""},
      {"[", "not JSON"},
      {"9223372036854775808", "64 bits"},
  };
  for (const auto& [json, message] : kBad) {
    EXPECT_THAT(Parsed(json, names), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(message))) << json;
  }
}

}  // namespace
}  // namespace cohort::internal
