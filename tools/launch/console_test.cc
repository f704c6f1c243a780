#include "cohort/tools/launch/console.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include "cohort/tools/launch/unique_fd.h"
#include "gtest/gtest.h"

namespace cohort::launch {
namespace {

struct Ends {
  UniqueFd read;
  UniqueFd write;
};

Ends OpenPipe() {
  int fds[2];
  EXPECT_EQ(pipe(fds), 0);
  return {UniqueFd(fds[0]), UniqueFd(fds[1])};
}

Ends OpenSocketPair() {
  int fds[2];
  EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
  return {UniqueFd(fds[0]), UniqueFd(fds[1])};
}

// What can be read without waiting.
std::string ReadAll(const UniqueFd& fd) {
  fcntl(fd.get(), F_SETFL, O_NONBLOCK);
  std::string text;
  char buffer[4096];
  for (ssize_t count; (count = read(fd.get(), buffer, sizeof(buffer))) > 0;) text.append(buffer, count);
  return text;
}

class ConsoleTest : public testing::Test {
 protected:
  // As SignalReader does.
  ConsoleTest() { signal(SIGPIPE, SIG_IGN); }
};

TEST_F(ConsoleTest, EachStreamGoesToItsFile) {
  const Ends out = OpenPipe(), err = OpenPipe();
  Console console(out.write.get(), err.write.get());
  console.pending(Stream::kOut) += "to out\n";
  console.pending(Stream::kErr) += "to err\n";
  EXPECT_FALSE(console.IsEmpty());
  console.Flush();
  EXPECT_TRUE(console.IsEmpty());
  EXPECT_EQ(ReadAll(out.read), "to out\n");
  EXPECT_EQ(ReadAll(err.read), "to err\n");
}

TEST_F(ConsoleTest, OneFileForBothIsOneQueue) {
  const Ends both = OpenPipe();
  const UniqueFd copy(dup(both.write.get()));
  Console console(both.write.get(), copy.get());
  EXPECT_EQ(console.files().size(), 1);
  console.pending(Stream::kOut) += "1\n";
  console.pending(Stream::kErr) += "2\n";
  console.pending(Stream::kOut) += "3\n";
  console.Flush();
  EXPECT_EQ(ReadAll(both.read), "1\n2\n3\n");
}

class SlowReaderTest : public ConsoleTest, public testing::WithParamInterface<Ends (*)()> {};

TEST_P(SlowReaderTest, NeitherHoldsUsNorLosesAnything) {
  const Ends out = GetParam()(), err = OpenPipe();
  const int flags = fcntl(out.write.get(), F_GETFL);
  Console console(out.write.get(), err.write.get());
  std::string expected;
  for (int i = 0; expected.size() < 2 * Console::kMaxPendingBytes; ++i) expected += std::to_string(i) + "\n";
  console.pending(Stream::kOut) = expected;
  EXPECT_FALSE(console.HasRoom(Stream::kOut));
  EXPECT_TRUE(console.HasRoom(Stream::kErr));
  std::string text;
  while (!console.IsEmpty()) {
    console.Flush();
    const std::string read = ReadAll(out.read);
    ASSERT_FALSE(read.empty());
    text += read;
  }
  EXPECT_TRUE(text == expected);
  EXPECT_EQ(console.error(), 0);
  // The descriptor is shared with other programs, which would not expect writes that do not wait.
  EXPECT_EQ(fcntl(out.write.get(), F_GETFL), flags);
}

INSTANTIATE_TEST_SUITE_P(Files, SlowReaderTest, testing::Values(OpenPipe, OpenSocketPair),
                         [](const auto& info) { return info.param == OpenPipe ? "Pipe" : "Socket"; });

TEST_F(ConsoleTest, AReaderThatHasGoneIsAnErrorAndWhatFollowsIsDropped) {
  Ends out = OpenPipe();
  const Ends err = OpenPipe();
  Console console(out.write.get(), err.write.get());
  out.read.reset();
  console.pending(Stream::kOut) += "lost\n";
  console.pending(Stream::kErr) += "kept\n";
  console.Flush();
  EXPECT_EQ(console.error(), EPIPE);
  EXPECT_TRUE(console.IsEmpty());
  EXPECT_EQ(ReadAll(err.read), "kept\n");
}

TEST_F(ConsoleTest, AFullDiskIsAnError) {
  const UniqueFd full(open("/dev/full", O_WRONLY));
  const Ends err = OpenPipe();
  Console console(full.get(), err.write.get());
  console.pending(Stream::kOut) += "lost\n";
  console.Flush();
  EXPECT_EQ(console.error(), ENOSPC);
}

}  // namespace
}  // namespace cohort::launch
