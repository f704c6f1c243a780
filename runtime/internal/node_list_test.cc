#include "cohort/runtime/internal/node_list.h"

#include <cstdint>
#include <optional>
#include <ostream>
#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace cohort::internal {
namespace {

struct Good {
  const char* text;
  const char* first;
  int64_t num_nodes;
};
void PrintTo(const Good& good, std::ostream* out) { *out << good.text; }

class GoodListTest : public ::testing::TestWithParam<Good> {};
INSTANTIATE_TEST_SUITE_P(
    Lists, GoodListTest,
    ::testing::Values(
        Good{"n01", "n01", 1}, Good{"n[01-03,7]", "n01", 4}, Good{"n[7,01-03]", "n7", 4}, Good{"n[01-03]", "n01", 3},
        Good{"n[3]", "n3", 1}, Good{"a,b,c", "a", 3}, Good{"login,n[1-2]", "login", 3}, Good{"n[1-2],login", "n1", 3},
        Good{"gnode[10,20,25,37]", "gnode10", 4}, Good{"rack[1-2]n[00-63]", "rack1n00", 128},
        Good{"rack[1-2]n[0,2]x", "rack1n0x", 4}, Good{"n[0099-0101].cluster.example", "n0099.cluster.example", 3},
        Good{"node-a_1", "node-a_1", 1}, Good{"[1-3]", "1", 3}, Good{"n[0-1048575]", "n0", 1048576},
        Good{"a[0-1023]b[0-1023]", "a0b0", 1048576}, Good{"n[999999999999999999]", "n999999999999999999", 1}));

TEST_P(GoodListTest, HasAFirstNodeAndANumberOfThem) {
  const std::optional<NodeList> list = ParseNodeList(GetParam().text);
  ASSERT_TRUE(list.has_value());
  EXPECT_EQ(list->first, GetParam().first);
  EXPECT_EQ(list->num_nodes, GetParam().num_nodes);
}

class BadListTest : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Lists, BadListTest,
                         ::testing::Values("", ",", "n1,", ",n1", "n1,,n2", "n[", "n]", "n[1", "n1]", "n[]", "n[1,]",
                                           "n[,1]", "n[1-]", "n[-1]", "n[3-1]", "n[a-c]", "n[1-2-3]", "n[1:3]",
                                           "n[[1-2]]", "n[1-2]]", "n 1", "n[1 -2]", "n[1-+2]", "(null)", "n1;reboot",
                                           "n\n1", "n[0x1-0x3]", "n[1.5]", "[::1]", "n*", "n[1-2](x3)",
                                           // Of numbers that nobody has nodes for, or that overflow.
                                           "n[0-1048576]", "n[0-999999999999]", "n[1-18446744073709551617]",
                                           "n[0-9223372036854775807]", "n[0000000000000000001]", "a[0-1023]b[0-1024]",
                                           "a[1-1000000]b[1-1000000]c[1-1000000]d[1-1000000]", "n[0-1048575],m",
                                           "n[1-1048576,7]"));

TEST_P(BadListTest, IsNone) { EXPECT_FALSE(ParseNodeList(GetParam()).has_value()) << GetParam(); }

// Each would take years, or all memory there is, if nodes were counted one by one.
TEST(NodeListTest, ALongListOfHugeRangesIsRefusedAtOnce) {
  std::string text = "n[0";
  for (int i = 1; i < 20000; ++i) absl::StrAppend(&text, ",", i, "-99999999999999999");
  EXPECT_FALSE(ParseNodeList(text + "]").has_value());
  std::string dimensions = "n";
  for (int i = 0; i < 20000; ++i) dimensions += "[0-1]";
  EXPECT_FALSE(ParseNodeList(dimensions).has_value());
}

TEST(NodeListTest, AFirstNodeWithTooLongANameIsRefused) {
  EXPECT_TRUE(ParseNodeList(std::string(255, 'n')).has_value());
  EXPECT_FALSE(ParseNodeList(std::string(256, 'n')).has_value());
}

}  // namespace
}  // namespace cohort::internal
