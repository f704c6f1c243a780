#include "cohort/tools/launch/process_title.h"

#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <sstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace cohort::launch {
namespace {

std::string Contents(const char* path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

TEST(ProcessTitleTest, OnlyTheArgumentsAreOverwritten) {
  // As the kernel lays them out; then the environment.
  char space[] = "launch\0--flag=1\0program\0HOME=/root";
  char* argv[] = {space, space + 7, space + 16, nullptr};
  SetProcessTitle(argv, "rank-keeper", " of 4711, and more than there is room for");
  EXPECT_EQ(std::string(space, sizeof(space) - 1), std::string("rank-keeper of 4711, an\0HOME=/root", 34));
  SetProcessTitle(argv, "x", "");
  EXPECT_EQ(std::string(space, sizeof(space) - 1), absl::StrCat("x", std::string(23, '\0'), "HOME=/root"));
}

TEST(ProcessTitleTest, NoArgumentsAtAllAreLeftAlone) {
  char* argv[] = {nullptr};
  SetProcessTitle(argv, "rank-keeper", "");
  EXPECT_EQ(Contents("/proc/self/comm"), "rank-keeper\n");
}

}  // namespace
}  // namespace cohort::launch
