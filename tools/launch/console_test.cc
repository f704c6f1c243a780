#include "cohort/tools/launch/console.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include "absl/strings/str_cat.h"
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

// What /proc/self/fd leads to may be another user's, and is then not opened again. Here it is nobody's to open.
bool GiveUpCapabilities() {
  __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3, .pid = 0};
  const __user_cap_data_struct none[_LINUX_CAPABILITY_U32S_3] = {};
  return syscall(SYS_capset, &header, none) == 0;
}

TEST_F(ConsoleTest, APipeThatMayNotBeOpenedAgainIsNotWaitedForEither) {
  const Ends ends = OpenPipe();
  fchmod(ends.write.get(), 0);
  const pid_t child = fork();
  if (child == 0) {
    if (!GiveUpCapabilities()) _exit(2);
    if (open(absl::StrCat("/proc/self/fd/", ends.write.get()).c_str(), O_WRONLY | O_NONBLOCK) >= 0) _exit(3);
    alarm(60);  // a write that waits
    Console console(ends.write.get(), ends.write.get());
    console.pending(Stream::kOut) = std::string(size_t{1} << 20, 'x');
    console.Flush();
    const size_t left = console.pending(Stream::kOut).size();
    _exit(console.error() == 0 && left > 0 && left < (size_t{1} << 20) ? 0 : 4);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status)) << status;
  EXPECT_EQ(WEXITSTATUS(status), 0);
  // What was written is there, and nothing else.
  EXPECT_EQ(ReadAll(ends.read).size(), 65536);
}

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

TEST_F(ConsoleTest, AStatusStandsBelowWhatIsPrintedAndIsGoneAtTheEnd) {
  const Ends out = OpenPipe(), err = OpenPipe();
  Console console(out.write.get(), err.write.get());
  console.SetStatus("1 up");
  console.Flush();
  EXPECT_EQ(ReadAll(err.read), "\r\x1b[K1 up");
  console.Flush();
  EXPECT_EQ(ReadAll(err.read), "") << "nothing has changed";
  console.SetStatus("2 up");
  console.Flush();
  EXPECT_EQ(ReadAll(err.read), "\r\x1b[K2 up");
  console.pending(Stream::kErr) += "line\n";
  console.Flush();
  EXPECT_EQ(ReadAll(err.read), "\r\x1b[Kline\n\r\x1b[K2 up");
  console.SetStatus("");
  console.Flush();
  EXPECT_EQ(ReadAll(err.read), "\r\x1b[K");
  console.pending(Stream::kErr) += "end\n";
  console.Flush();
  EXPECT_EQ(ReadAll(err.read), "end\n");
  EXPECT_EQ(ReadAll(out.read), "");
}

TEST_F(ConsoleTest, AStatusNeverStandsAmongTheLines) {
  const Ends both = OpenPipe();
  Console console(both.write.get(), both.write.get());
  std::string lines;
  for (int i = 0; lines.size() < 300000; ++i) lines += std::to_string(i) + "\n";
  std::string text;
  for (int turn = 0; turn < 3; ++turn) {
    console.SetStatus(std::string(1000, static_cast<char>('a' + turn)));
    console.Flush();
    console.pending(Stream::kOut) += lines;
    // As long as there is anything to print, only part of which the reader takes, there is no status.
    do {
      console.Flush();
      text += ReadAll(both.read);
    } while (!console.IsEmpty());
  }
  console.SetStatus("");
  console.Flush();
  text += ReadAll(both.read);
  // What a terminal shows: each status, up to its erasure, is replaced by what follows.
  for (size_t status; (status = text.find("\r\x1b[K")) != std::string::npos;) {
    const size_t begin = text.rfind('\n', status) + 1;
    text.erase(begin, status + 4 - begin);
  }
  EXPECT_TRUE(text == lines + lines + lines) << text.size();
}

TEST_F(ConsoleTest, AStatusThatCouldNotBeWrittenWholeIsDropped) {
  const Ends err = OpenPipe();
  Console console(err.write.get(), err.write.get());
  const std::string lines(65536 - 10, 'x');
  console.pending(Stream::kErr) = lines;
  console.SetStatus("a status that is longer than what is left of the pipe");
  console.Flush();
  EXPECT_TRUE(console.IsEmpty());
  console.pending(Stream::kErr) += "line\n";
  std::string text = ReadAll(err.read);
  console.SetStatus("");
  console.Flush();
  text += ReadAll(err.read);
  const std::string end = "\r\x1b[Kline\n";
  ASSERT_GE(text.size(), end.size());
  EXPECT_EQ(text.substr(text.size() - end.size()), end);
}

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
