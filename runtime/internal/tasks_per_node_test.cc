#include "cohort/runtime/internal/tasks_per_node.h"

#include <cstdint>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace cohort::internal {
namespace {

struct Good {
  const char* text;
  std::vector<int64_t> nodes;
};
void PrintTo(const Good& good, std::ostream* out) { *out << good.text; }

class GoodTasksTest : public ::testing::TestWithParam<Good> {};
INSTANTIATE_TEST_SUITE_P(Lists, GoodTasksTest,
                         ::testing::Values(Good{"2(x3),1", {2, 2, 2, 1}}, Good{"1(x2)", {1, 1}}, Good{"4", {4}},
                                           Good{"5,1(x2)", {5, 1, 1}}, Good{"4,1(x2),4", {4, 1, 1, 4}},
                                           Good{"8(x1)", {8}}, Good{"02(x02)", {2, 2}}, Good{"2,2", {2, 2}}));

TEST_P(GoodTasksTest, SaysHowManyEachNodeHas) {
  const std::optional<TasksPerNode> tasks = TasksPerNode::Parse(GetParam().text);
  ASSERT_TRUE(tasks.has_value());
  ASSERT_EQ(tasks->num_nodes(), static_cast<int64_t>(GetParam().nodes.size()));
  int64_t sum = 0;
  bool is_even = true;
  for (size_t node = 0; node < GetParam().nodes.size(); ++node) {
    EXPECT_EQ(tasks->OnNode(node), GetParam().nodes[node]) << node;
    sum += GetParam().nodes[node];
    is_even = is_even && GetParam().nodes[node] == GetParam().nodes[0];
  }
  EXPECT_EQ(tasks->num_tasks(), sum);
  EXPECT_EQ(tasks->is_even(), is_even);
}

class BadTasksTest : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Lists, BadTasksTest,
                         ::testing::Values("", ",", "2,", ",2", "2(x3", "2x3", "2(3)", "2()", "2(x)", "(x3)",
                                           "2(x3)(x2)", "2 (x3)", "2(x 3)", "2(x3) ", "-2", "2(x-3)", "+2", "0",
                                           "2(x0)", "two", "0x2", "1e3", "2.5", "2(X3)", "2;3",
                                           // Of numbers that nobody has nodes for, or that overflow.
                                           "1(x999999999)", "1(x1048577)", "1048577", "2(x1048576)", "1048576,1",
                                           "1(x18446744073709551617)", "4294967297", "1048576(x1048576)",
                                           "9223372036854775807(x9223372036854775807)"));

TEST_P(BadTasksTest, IsNone) { EXPECT_FALSE(TasksPerNode::Parse(GetParam()).has_value()) << GetParam(); }

TEST(TasksPerNodeTest, AsManyAsThereMayBeTakeNoMemoryByTheirNumber) {
  const std::optional<TasksPerNode> tasks = TasksPerNode::Parse("1(x1048575),1");
  ASSERT_TRUE(tasks.has_value());
  EXPECT_EQ(tasks->num_nodes(), 1048576);
  EXPECT_EQ(tasks->OnNode(1048575), 1);
}

TEST(TasksPerNodeTest, ALongListOfHugeRepetitionsIsRefusedAtOnce) {
  std::string text = "1";
  for (int i = 0; i < 20000; ++i) absl::StrAppend(&text, ",1048576(x1048576)");
  EXPECT_FALSE(TasksPerNode::Parse(text).has_value());
}

}  // namespace
}  // namespace cohort::internal
