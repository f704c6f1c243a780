// Where the ranks' output goes: files, the console, both; and what a full disk and a slow reader do to it.

#include <fcntl.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "cohort/tools/launch/test_launcher.h"
#include "cohort/tools/launch/unique_fd.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort::launch {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::MatchesRegex;
using ::testing::Not;
using ::testing::StartsWith;
using ::testing::UnorderedElementsAre;

std::string Subject() { return getenv("SUBJECT"); }

// The files below `directory`, by "RANK/NAME", of the only launch and its attempt.
std::map<std::string, std::string> Files(const std::string& directory, const std::string& attempt = "attempt_0") {
  std::map<std::string, std::string> files;
  const std::filesystem::path root = std::filesystem::directory_iterator(directory)->path() / attempt;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(root)) {
    if (entry.is_regular_file()) files[entry.path().lexically_relative(root)] = ReadFile(entry.path());
  }
  return files;
}

auto Are(std::map<std::string, std::string> files) { return testing::ContainerEq(files); }

// What rank `rank` writes to standard output (parity 0) or standard error (1): see PrintLines in
// launch_test_subject.cc.
std::string Written(int rank, int parity, int count) {
  std::string text;
  for (int i = parity; i < count; i += 2) {
    absl::StrAppend(&text, rank, ":", i, ":", std::string(i * 37 % 20000, 'a' + rank), i + 2 < count ? "\n" : "");
  }
  return text;
}

// A reader of the launcher's standard output that can take its time.
class Reader {
 public:
  Reader() { EXPECT_EQ(pipe(fds_), 0); }
  ~Reader() { close(fds_[0]); }

  int write_end() const { return fds_[1]; }
  void CloseWriteEnd() { close(fds_[1]); }

  bool AwaitAFullPipe() const {
    return AwaitCondition([this] {
      int waiting = 0;
      return ioctl(fds_[0], FIONREAD, &waiting) == 0 && waiting >= 60000;
    });
  }

  std::string ReadAll() const {
    std::string text;
    char buffer[5000];
    for (ssize_t count; (count = read(fds_[0], buffer, sizeof(buffer))) > 0;) text.append(buffer, count);
    return text;
  }

 private:
  int fds_[2];
};

class LaunchLogsTest : public testing::Test {
 protected:
  std::vector<std::string> WithLogs(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), absl::StrCat("--log-dir=", logs_));
    return arguments;
  }

  const std::string logs_ = NewDirectory();
};

TEST_F(LaunchLogsTest, WhatIsRedirectedIsInFilesAlone) {
  const TestLauncher::Result result =
      RunLauncher(WithLogs(Shells(2, "echo out $RANK; printf 'err %s' $RANK >&2", {"-r", "3", "--rdzv-id=job-7"})));
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out, "");
  EXPECT_THAT(result.err, MatchesRegex(absl::StrCat("launch: log files: ", logs_, "/job-7_....../attempt_0/\n")));
  EXPECT_THAT(Files(logs_), Are({{"0/stdout.log", "out 0\n"},
                                 {"0/stderr.log", "err 0"},
                                 {"1/stdout.log", "out 1\n"},
                                 {"1/stderr.log", "err 1"}}));
}

TEST_F(LaunchLogsTest, WhatIsTeedIsInBoth) {
  const TestLauncher::Result result = RunLauncher(WithLogs(Shells(2, "echo out $RANK; echo err >&2", {"--tee=1:3"})));
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(WholeLines(result.out), UnorderedElementsAre("[0] out 0", "[1] out 1"));
  EXPECT_THAT(WholeLines(result.err), UnorderedElementsAre(StartsWith("launch: log files: "), "[0] err", "[1] err"));
  EXPECT_THAT(Files(logs_), Are({{"1/stdout.log", "out 1\n"}, {"1/stderr.log", "err\n"}}));
}

TEST_F(LaunchLogsTest, TheFilterIsForTheConsoleAlone) {
  const TestLauncher::Result result =
      RunLauncher(WithLogs(Shells(3, "echo out $RANK; echo err >&2", {"--tee=1", "--local-ranks-filter=0,2"})));
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(WholeLines(result.out), UnorderedElementsAre("[0] out 0", "[2] out 2"));
  EXPECT_THAT(result.err, Not(HasSubstr("[1]")));
  EXPECT_THAT(Files(logs_),
              Are({{"0/stdout.log", "out 0\n"}, {"1/stdout.log", "out 1\n"}, {"2/stdout.log", "out 2\n"}}));
}

TEST_F(LaunchLogsTest, OfALoneRankTheConsoleIsAsWithoutFiles) {
  const TestLauncher::Result result = RunLauncher(WithLogs(Shells(1, "printf unfinished", {"-t3"})));
  EXPECT_EQ(result.out, "unfinished\n");
  EXPECT_THAT(Files(logs_), Are({{"0/stdout.log", "unfinished"}, {"0/stderr.log", ""}}));
}

TEST_F(LaunchLogsTest, WithoutALogDirectoryTheFilesAreInTmpdir) {
  TestLauncher::Setup setup;
  setup.environment["TMPDIR"] = logs_;
  const TestLauncher::Result result = RunLauncher(Shells(1, "echo out", {"-r1"}), setup);
  EXPECT_THAT(result.err, StartsWith(absl::StrCat("launch: log files: ", logs_, "/launch-")));
  EXPECT_THAT(Files(logs_), Are({{"0/stdout.log", "out\n"}}));
}

TEST_F(LaunchLogsTest, TwoLaunchesShareALogDirectoryAndNoFile) {
  for (int i = 0; i < 2; ++i) RunLauncher(WithLogs(Shells(1, "echo out", {"-r1", "--rdzv-id=job"})));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(logs_), std::filesystem::directory_iterator()), 2);
}

TEST_F(LaunchLogsTest, EachAttemptHasFilesOfItsOwn) {
  const TestLauncher::Result result = RunLauncher(
      WithLogs(Shells(2, "echo attempt $TORCHELASTIC_RESTART_COUNT; exit $((1 - TORCHELASTIC_RESTART_COUNT))",
                      {"-r1", "--max-restarts=1"})));
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(Files(logs_, "attempt_1"), Are({{"0/stdout.log", "attempt 1\n"}, {"1/stdout.log", "attempt 1\n"}}));
  // One of them was perhaps stopped before it could print.
  EXPECT_EQ(Files(logs_, "attempt_0").size(), 2);
  EXPECT_THAT(result.err, HasSubstr("/attempt_1/\n"));
}

TEST_F(LaunchLogsTest, WhoFailsIsQuotedFromItsFileAndWhenItIsNotShown) {
  const std::string script = "[ $RANK = 0 ] && exec sleep 1000; echo why >&2; exit 3";
  for (const std::vector<std::string>& flags : {std::vector<std::string>{"-r3"}, {"--local-ranks-filter=0"}}) {
    const TestLauncher::Result result = RunLauncher(WithLogs(Shells(2, script, flags)));
    EXPECT_EQ(result.exit_code, 3);
    EXPECT_THAT(result.err,
                AllOf(HasSubstr("launch: its last lines on standard error:\nlaunch:   why\n"), Not(HasSubstr("[1]"))));
  }
}

// --- Each byte, whoever reads and whoever dies.

// Case: 4 ranks, 5000 lines each of up to 20000 letters, the last without its newline, rank 3 killed half-way, a reader
// that stalls.
TEST_F(LaunchLogsTest, FilesHaveEachByteAlsoOfARankThatIsKilledAndBesideAReaderThatStalls) {
  constexpr int kLines = 5000;
  constexpr int kLinesOfTheKilled = 2500;
  for (const char* flag : {"-t3", "-r3"}) {
    const std::string logs = NewDirectory();
    Reader reader;
    TestLauncher::Setup setup;
    setup.out_fd = reader.write_end();
    const UniqueFd err(open(logs.c_str(), O_WRONLY | O_TMPFILE, 0600));
    setup.err_fd = err.get();
    TestLauncher launcher({absl::StrCat("--log-dir=", logs), "--nproc-per-node=4", "--grace=1000", flag, Subject(),
                           "lines", absl::StrCat(kLines), absl::StrCat(kLinesOfTheKilled)},
                          setup);
    reader.CloseWriteEnd();
    const bool is_teed = std::string_view(flag) == "-t3";
    EXPECT_TRUE(!is_teed || reader.AwaitAFullPipe());
    const std::vector<std::string> shown = WholeLines(reader.ReadAll());
    EXPECT_EQ(launcher.Wait().exit_code, 137);

    const std::map<std::string, std::string> files = Files(logs);
    EXPECT_EQ(files.size(), 8);
    std::map<std::string, std::string> shown_of;
    for (const std::string& line : shown) absl::StrAppend(&shown_of[line.substr(0, 4)], line.substr(4), "\n");
    for (int rank = 0; rank < 4; ++rank) {
      const std::string out = Written(rank, 0, rank == 3 ? kLinesOfTheKilled : kLines);
      const std::string err = Written(rank, 1, rank == 3 ? kLinesOfTheKilled : kLines);
      EXPECT_TRUE(files.at(absl::StrCat(rank, "/stdout.log")) == out) << flag << " " << rank;
      EXPECT_TRUE(files.at(absl::StrCat(rank, "/stderr.log")) == err) << flag << " " << rank;
      EXPECT_TRUE(shown_of[absl::StrCat("[", rank, "] ")] == (is_teed ? out + "\n" : "")) << flag << " " << rank;
    }
    std::filesystem::remove_all(logs);  // 100 MB
  }
}

// It is shown what it has missed from the files, after the ranks have ended as well.
TEST_F(LaunchLogsTest, AReaderThatStallsHoldsUpNoRankWhoseOutputIsTeed) {
  Reader reader;
  TestLauncher::Setup setup;
  setup.out_fd = reader.write_end();
  const std::string done = absl::StrCat(NewDirectory(), "/done");
  TestLauncher launcher(
      WithLogs(Shells(2, absl::StrCat("yes $RANK | head -n 500000; printf last; echo $RANK >>", done), {"-t1"})),
      setup);
  reader.CloseWriteEnd();
  ASSERT_TRUE(AwaitCondition([&] { return ReadFile(done).size() == 4; }));
  std::map<std::string, int> count_of;
  std::string last[2];
  for (std::string& line : WholeLines(reader.ReadAll())) {
    last[line[1] - '0'] = line;
    ++count_of[line];
  }
  EXPECT_EQ(launcher.Wait().exit_code, 0);
  EXPECT_THAT(count_of, testing::ElementsAre(testing::Pair("[0] 0", 500000), testing::Pair("[0] last", 1),
                                             testing::Pair("[1] 1", 500000), testing::Pair("[1] last", 1)));
  EXPECT_THAT(last, ElementsAre("[0] last", "[1] last"));
}

TEST_F(LaunchLogsTest, AJobThatIsToldToStopDoesNotWaitForAReaderOfWhatIsInFiles) {
  Reader reader;
  TestLauncher::Setup setup;
  setup.out_fd = reader.write_end();
  TestLauncher launcher(WithLogs(Shells(1, "yes", {"-t1", "--grace=1"})), setup);
  reader.CloseWriteEnd();
  ASSERT_TRUE(reader.AwaitAFullPipe());
  launcher.Signal(SIGTERM);
  EXPECT_EQ(launcher.Wait().exit_code, 143);  // nobody has read a byte
}

TEST_F(LaunchLogsTest, AReaderThatStallsHoldsUpNothingThatGoesToFiles) {
  Reader reader;
  TestLauncher::Setup setup;
  setup.out_fd = reader.write_end();
  const std::string done = absl::StrCat(NewDirectory(), "/done");
  TestLauncher launcher(WithLogs(Shells(2,
                                        absl::StrCat("[ $RANK = 0 ] && exec yes; head -c 20000000 /dev/zero; "
                                                     "head -c 20000000 /dev/zero >&2; echo done >",
                                                     done),
                                        {"-r1:3"})),
                        setup);
  reader.CloseWriteEnd();
  ASSERT_TRUE(reader.AwaitAFullPipe());
  EXPECT_TRUE(AwaitCondition([&] { return ReadFile(done) == "done\n"; }));
  launcher.Signal(SIGTERM);
  reader.ReadAll();
  EXPECT_EQ(launcher.Wait().exit_code, 143);
  EXPECT_EQ(Files(logs_).at("1/stdout.log").size(), 20000000);
  EXPECT_EQ(Files(logs_).at("1/stderr.log").size(), 20000000);
}

// As it would in a file that the rank had been given.
TEST_F(LaunchLogsTest, WhoOpensTheRanksOutputAgainCutsNothing) {
  RunLauncher(WithLogs(Shells(1, "echo one; sh -c 'echo two >/dev/stdout'; echo three", {"-r1"})));
  EXPECT_THAT(Files(logs_), Are({{"0/stdout.log", "one\ntwo\nthree\n"}}));
}

// --- Directories that cannot be, disks that are full.

TEST_F(LaunchLogsTest, ADirectoryThatCannotBeIsOneLineAndNothingIsStarted) {
  const std::string file = absl::StrCat(logs_, "/file");
  WriteFile(file, "");
  const TestLauncher::Result result =
      RunLauncher(Shells(2, absl::StrCat("touch ", logs_, "/started"), {"-r3", absl::StrCat("--log-dir=", file)}));
  EXPECT_EQ(result.exit_code, 125);
  EXPECT_THAT(WholeLines(result.err),
              ElementsAre(MatchesRegex(
                  absl::StrCat("launch: cannot make ", file,
                               ".*Not a directory.* \\(for log files; --log-dir names another place\\)\\.?"))));
  EXPECT_FALSE(std::filesystem::exists(absl::StrCat(logs_, "/started")));
}

// A limit on the size of files stands for a full disk.
TEST_F(LaunchLogsTest, AFullDiskIsToldOnceAndEndsTheJob) {
  TestLauncher::Setup setup;
  setup.wrapper = {"sh", "-c", "ulimit -f 8; exec \"$0\" \"$@\""};  // 4 KiB
  TestLauncher launcher(WithLogs(Shells(2, "yes & exec yes >&2", {"-r3"})), setup);
  const TestLauncher::Result result = launcher.Wait();
  EXPECT_EQ(result.exit_code, 125);
  std::vector<std::string> told;
  for (const std::string& line : WholeLines(result.err)) {
    if (line.find("cannot write") != std::string::npos) told.push_back(line);
  }
  EXPECT_THAT(told,
              ElementsAre(MatchesRegex("launch: cannot write /[^ ]*/attempt_0/[01]/stdout.log \\(File too large\\): "
                                       "stopping all ranks, SIGKILL in .*")));
  EXPECT_THAT(launcher.LiveProcesses(), IsEmpty());
}

TEST_F(LaunchLogsTest, AFullDiskUnderTheLastBytesIsNoSuccess) {
  TestLauncher::Setup setup;
  setup.wrapper = {"sh", "-c", "ulimit -f 8; exec \"$0\" \"$@\""};
  const TestLauncher::Result result = RunLauncher(WithLogs(Shells(1, "head -c 5000 /dev/zero", {"-r1"})), setup);
  EXPECT_EQ(result.exit_code, 125);
  EXPECT_THAT(result.err, ContainsRegex("launch: cannot write /[^ ]*/attempt_0/0/stdout.log \\(File too large\\)"));
}

}  // namespace
}  // namespace cohort::launch
