#include "cohort/tools/launch/unique_fd.h"

#include <fcntl.h>
#include <unistd.h>

#include <utility>

#include "gtest/gtest.h"

namespace cohort::launch {
namespace {

bool IsOpen(int fd) { return fcntl(fd, F_GETFD) >= 0; }

TEST(UniqueFdTest, ClosesWhatItOwns) {
  const int fd = open("/dev/null", O_RDONLY);
  {
    const UniqueFd owner(fd);
    EXPECT_TRUE(owner);
    EXPECT_TRUE(IsOpen(fd));
  }
  EXPECT_FALSE(IsOpen(fd));
}

TEST(UniqueFdTest, MovingPassesOnTheDescriptorAndEmptiesTheSource) {
  const int fd = open("/dev/null", O_RDONLY);
  UniqueFd first(fd);
  UniqueFd second(std::move(first));
  EXPECT_FALSE(first);
  EXPECT_EQ(second.get(), fd);
  first = std::move(second);
  EXPECT_EQ(first.get(), fd);
  first.reset();
  EXPECT_FALSE(IsOpen(fd));
}

TEST(UniqueFdTest, AssigningClosesTheFormerDescriptor) {
  const int former = open("/dev/null", O_RDONLY);
  UniqueFd owner(former);
  owner = UniqueFd(open("/dev/null", O_RDONLY));
  EXPECT_FALSE(IsOpen(former));
  EXPECT_TRUE(IsOpen(owner.get()));
}

}  // namespace
}  // namespace cohort::launch
