// What the main job makes of bad input: one message (what was wrong, its value, what is allowed), the documented exit
// code, and nothing written or lost. Of bad CSV files there is more in trainers/data/csv_dataset_test.cc.

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/log/absl_check.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "cohort/tests/e2e/process.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

constexpr int kUsage = 1;
constexpr int kIo = 74;

std::vector<std::string> Trainer(std::vector<std::string> flags) {
  flags.insert(flags.begin(), PathIn("LINEAR"));
  return flags;
}

std::vector<std::string> Job(int num_ranks, std::vector<std::string> flags) {
  flags = Trainer(std::move(flags));
  flags.insert(flags.begin(), {PathIn("LAUNCH"), absl::StrCat("--nproc-per-node=", num_ranks)});
  return flags;
}

// The lines of a kind in what the ranks wrote: without the launcher's report, which quotes them.
std::vector<std::string> LinesOf(std::string_view kind, std::string_view err) {
  std::vector<std::string> lines;
  for (const std::string_view line : absl::StrSplit(err, '\n')) {
    if (absl::StrContains(line, kind) && !absl::StartsWith(line, "launch: ")) lines.emplace_back(line);
  }
  return lines;
}
std::vector<std::string> Errors(std::string_view err) { return LinesOf("error: ", err); }
std::vector<std::string> Warnings(std::string_view err) { return LinesOf("warning: ", err); }

// The trainer alone, with `flags`, ends at once with one error that holds `message`, and writes no file.
void ExpectRefused(std::vector<std::string> flags, std::string_view message,
                   const std::map<std::string, std::string>& environment = {}) {
  SCOPED_TRACE(absl::StrJoin(flags, " "));
  const std::string folder = NewFolder();
  const Process::Result result = RunToEnd(Trainer(std::move(flags)), {.environment = environment, .directory = folder});
  EXPECT_EQ(result.exit_code, kUsage) << result.err;
  EXPECT_THAT(Errors(result.err), ElementsAre(HasSubstr(message)));
  EXPECT_EQ(result.out, "");
  EXPECT_THAT(FilesIn(folder), IsEmpty());
}

TEST(BadInputTest, AFlagOutOfItsRangeIsNamedWithItsValueAndWhatIsAllowed) {
  ExpectRefused({"--epochs=0"}, "--epochs=0: must be from 1 to 1000000000");
  ExpectRefused({"--save_every=0"}, "--save_every=0: must be at least 1");
  ExpectRefused({"--save_every_steps=0"}, "--save_every_steps=0: must be at least 1");
  ExpectRefused({"--save_every_time=0"}, "--save_every_time=0: must be more than 0, for example 90s or 30m");
  ExpectRefused({"--save_every_time=-5s"}, "--save_every_time=-5s: must be more than 0, for example 90s or 30m");
  ExpectRefused({"--keep=0"}, "--keep=0: must be at least 1");
  ExpectRefused({"--keep_best=-1"}, "--keep_best=-1: must be at least 1");
  ExpectRefused({"--keep_best=1", "--keep_best_metric=accuracy"}, "--keep_best_metric=accuracy: must be loss or r2");
  ExpectRefused({"--keep_best_metric=r2"}, "--keep_best_metric=r2: means nothing without keep_best");
  ExpectRefused({"--save_failure=ignore"}, "--save_failure=ignore: must be warn or stop");
  ExpectRefused({"--run_id=a\nb"}, "--run_id=a\\nb: must be at most 256 printable ASCII characters");
  ExpectRefused({"--accumulate=0"}, "--accumulate=0: must be at least 1");
  ExpectRefused({"--clip_grad_norm=0"}, "--clip_grad_norm=0: must be more than 0, and finite as a float");
  ExpectRefused({"--validation=1"}, "--validation=1: must be at least 0 and below 1");
  ExpectRefused({"--stop_check_every=0"}, "--stop_check_every=0: must be at least 1");
  ExpectRefused({"--lr_step_size=1", "--lr_cosine_epochs=2"},
                "--lr_cosine_epochs=2: there is a schedule already, lr_step_size; one at a time");
  ExpectRefused({"--prefetch=-1"}, "--prefetch=-1: must be from 0 to 1024");
  ExpectRefused({"--data=my.safetensors", "--target=x"}, "--target=x: is for CSV files");
  ExpectRefused({"--metrics_report=missing/m.jsonl"}, "missing/m.jsonl\": No such file or directory");
  ExpectRefused({"--metrics_report=checkpoints/run.json"}, "run.json\" is a name of the run itself");
  ExpectRefused({"--checkpoint_dir=new", "--metrics_report=new"}, "\"new\" is a name of the run itself");
  ExpectRefused({"--batch_size=-32"}, "--batch_size=-32: must be at least 1");
  ExpectRefused({"--optimizer=lbfgs"}, "--optimizer=lbfgs: must be sgd, adam, adamw, rmsprop or adagrad");
  ExpectRefused({"--optimizer=adam", "--momentum=0.9"}, "--momentum=0.9: is for sgd and rmsprop, not for adam");
  ExpectRefused({"--momentum=1"}, "--momentum=1: must be at least 0 and below 1");
  ExpectRefused({"--lr_step_size=-1"}, "--lr_step_size=-1: must be at least 1, or 0 for a rate that stays");
  ExpectRefused({"--lr_step_size=1", "--lr_gamma=0"}, "--lr_gamma=0: must be more than 0, and finite as a float");
  ExpectRefused({"--lr_gamma=0.5"}, "--lr_gamma=0.5: means nothing without lr_step_size");
  ExpectRefused({"--format=pth"}, "--format=pth: must be pt or safetensors");
  ExpectRefused({"--learning_rate=-0.1"}, "--learning_rate=-0.1: must be more than 0, and finite as a float");
  ExpectRefused({"--learning_rate=1e300"}, "--learning_rate=1e+300: must be more than 0, and finite as a float");
  ExpectRefused({"--learning_rate=nan"}, "--learning_rate=nan: must be more than 0, and finite as a float");
  ExpectRefused({"--checkpoint_dir="}, "--checkpoint_dir=: must be the path of a directory");
  ExpectRefused({"--backend=mpi"}, "--backend=mpi: must be auto, gloo or nccl");
  ExpectRefused({"--init_timeout=0"}, "--init_timeout=0: must be more than 0, for example 30s or 5m");
  ExpectRefused({"--data="}, "--data=: must be diabetes, generated, or the path of a file");
  ExpectRefused({"--features=3"}, "--features=3: is for --data=generated only");
  ExpectRefused({"--data=generated", "--outputs=0"}, "--outputs=0: must be from 1 to 134217728");
  ExpectRefused({"--data=generated", "--features=100000000", "--outputs=100"},
                "generated data with 1000 rows, 100000000 features and 100 outputs: more than");
  ExpectRefused({"--data=generated", "--target=x"}, "--target=x: is for CSV files, and not for --data=generated");
  ExpectRefused({"train.csv"}, "unexpected argument \"train.csv\": there are only flags");
}

TEST(BadInputTest, AFlagThatCannotBeParsedIsNamed) {
  // Abseil's own messages.
  for (const std::string flag : {"--epochs=ten", "--epoch=3", "--init_timeout=5", "--seed=-1",
                                 "--resume=", "--keep=all", "--save_every_time=5", "--resume=99999999999999999999"}) {
    const std::string folder = NewFolder();
    const Process::Result result = RunToEnd(Trainer({flag}), {.directory = folder});
    EXPECT_EQ(result.exit_code, kUsage) << flag;
    EXPECT_THAT(result.err, HasSubstr(flag.substr(2, flag.find('=') - 2))) << flag;
    EXPECT_THAT(FilesIn(folder), IsEmpty()) << flag;
  }
}

TEST(BadInputTest, AMalformedEnvironmentIsNamedBeforeAnybodyIsWaitedFor) {
  ExpectRefused({}, "WORLD_SIZE", {{"RANK", "0"}});
  ExpectRefused({}, "RANK",
                {{"RANK", "two"}, {"WORLD_SIZE", "4"}, {"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", "29500"}});
  ExpectRefused({}, "RANK",
                {{"RANK", "4"}, {"WORLD_SIZE", "4"}, {"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", "29500"}});
  ExpectRefused({}, "MASTER_PORT",
                {{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", "70000"}});
}

TEST(BadInputTest, NcclWithoutAGpuIsRefusedByAllRanksAtOnce) {
  const std::string folder = NewFolder();
  const Process::Result result =
      RunToEnd(Job(2, {"--backend=nccl"}), {.environment = {{"CUDA_VISIBLE_DEVICES", "7"}}, .directory = folder});
  EXPECT_EQ(result.exit_code, kUsage);
  EXPECT_THAT(result.err, HasSubstr("no visible GPU"));
  EXPECT_THAT(result.err, HasSubstr("CUDA_VISIBLE_DEVICES"));
  EXPECT_THAT(FilesIn(folder), IsEmpty());
}

TEST(BadInputTest, AMasterPortInUseIsNamed) {
  const int listening = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
  socklen_t size = sizeof(address);
  ABSL_CHECK_EQ(bind(listening, reinterpret_cast<sockaddr*>(&address), size), 0);
  ABSL_CHECK_EQ(listen(listening, 1), 0);
  ABSL_CHECK_EQ(getsockname(listening, reinterpret_cast<sockaddr*>(&address), &size), 0);
  const std::string port = absl::StrCat(ntohs(address.sin_port));
  ExpectRefused({"--backend=gloo"}, port,
                {{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", port}});
  close(listening);
}

// Two ranks with the CSV file `content` end with one error between them, and only the CSV is there.
void ExpectDataRefused(int num_ranks, std::string_view content, std::string_view message,
                       std::vector<std::string> flags = {}) {
  const std::string folder = NewFolder();
  WriteFile(folder + "/my.csv", content);
  flags.push_back("--data=my.csv");
  const Process::Result result =
      RunToEnd(Job(num_ranks, flags), {.environment = {{"BUILD_WORKING_DIRECTORY", folder}}, .directory = folder});
  EXPECT_EQ(result.exit_code, kUsage) << result.err;
  EXPECT_THAT(Errors(result.err), ElementsAre(HasSubstr(absl::StrCat(message)))) << result.err;
  EXPECT_THAT(Errors(result.err), ElementsAre(HasSubstr(folder + "/my.csv")));
  EXPECT_EQ(result.out, "");
  EXPECT_THAT(FilesIn(folder), ElementsAre("my.csv"));
}

TEST(BadInputTest, BadDataIsOneMessageFromAllRanks) {
  ExpectDataRefused(2, "a,b\n1,2\n3,x\n", "my.csv, line 3: column 2 (b): \"x\" is not a number");
  ExpectDataRefused(2, "a,b\n1,2\n3\n", "my.csv, line 3: expected 2 fields, as in the header; found 1");
  ExpectDataRefused(2, "a,b\n1,2\n3,4\n", "target \"c\" is not a column of ", {"--target=c"});
  ExpectDataRefused(4, "a,b\n1,2\n3,4\n5,6\n",
                    "my.csv: 3 rows are too few for 4 ranks; there must be at least one for each");
}

TEST(BadInputTest, DataThatCannotBeReadAreNamedWithTheCause) {
  ExpectRefused({"--data=missing.csv"}, "cannot read missing.csv: No such file or directory");
  ExpectRefused({"--data=."}, "cannot read .: Is a directory");
}

// Saving under `checkpoint_dir`, in a folder that has the file "file", is refused on both ranks with one error; nothing
// changes.
void ExpectCheckpointsRefused(const std::string& checkpoint_dir, std::string_view message) {
  SCOPED_TRACE(checkpoint_dir.substr(0, 100));
  const std::string folder = NewFolder();
  WriteFile(folder + "/file", "precious");
  const Process::Result result = RunToEnd(Job(2, {"--checkpoint_dir=" + checkpoint_dir}), {.directory = folder});
  EXPECT_EQ(result.exit_code, kUsage) << result.err;
  EXPECT_THAT(Errors(result.err), ElementsAre(HasSubstr(message)));
  EXPECT_THAT(FilesIn(folder), ElementsAre("file"));
  EXPECT_EQ(ReadFile(folder + "/file"), "precious");
}

TEST(BadInputTest, ACheckpointPathThatCannotBeIsNamedWithTheCause) {
  ExpectCheckpointsRefused("file", "/file\", which is not a directory");
  ExpectCheckpointsRefused("file/below", "/file\", which is not a directory");
  ExpectCheckpointsRefused(std::string(300, 'n'), "has a name of 300 bytes; at most 255 are allowed");
  ExpectCheckpointsRefused("/proc/cohort", "/proc/cohort");
}

TEST(BadInputTest, AModelThatCannotBeWrittenIsAWarningThatNamesIt) {
  const std::string folder = NewFolder();
  std::filesystem::create_directories(folder + "/checkpoints/model_epoch_0.pth/full");
  const Process::Result result = RunToEnd(Job(2, {}), {.directory = folder});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(Warnings(result.err),
              ElementsAre(AllOf(HasSubstr("the save of model_epoch_0.pth failed: "),
                                HasSubstr("/checkpoints/model_epoch_0.pth\" names a directory; name a file"),
                                HasSubstr("; failed so far: 1; "))));
  EXPECT_TRUE(std::filesystem::is_directory(folder + "/checkpoints/model_epoch_0.pth/full"));
  EXPECT_THAT(FilesIn(folder), ElementsAreArray(FilesOfRun("checkpoints", {5, 9}, {"14", "84", "140"})));
}

TEST(BadInputTest, ADirectoryThatAnotherJobHoldsIsRefusedWithItsName) {
  const std::string folder = NewFolder();
  Process holder(Trainer({"--epochs=1000000000", "--save_every=1000000000"}), {.directory = folder});
  ASSERT_TRUE(holder.WaitForOutput("epoch 1 "));
  const Process::Result result = RunToEnd(Job(2, {}), {.directory = folder});
  EXPECT_EQ(result.exit_code, kUsage) << result.err;
  EXPECT_THAT(Errors(result.err),
              ElementsAre(AllOf(HasSubstr(folder + "/checkpoints"), HasSubstr(absl::StrCat(holder.pid())))));
  EXPECT_THAT(FilesIn(folder), ElementsAreArray(FilesOfRun("checkpoints", {0}, {"14"})));
}

TEST(BadInputTest, AnotherRunsDirectoryIsRefusedWithBothNames) {
  const std::string folder = NewFolder();
  ASSERT_EQ(RunToEnd(Trainer({"--epochs=1", "--run_id=mine"}), {.directory = folder}).exit_code, 0);
  const std::vector<std::string> files = FilesIn(folder);
  const Process::Result other = RunToEnd(Job(2, {"--run_id=yours", "--resume=none"}), {.directory = folder});
  EXPECT_EQ(other.exit_code, kUsage) << other.err;
  EXPECT_THAT(Errors(other.err), ElementsAre(AllOf(HasSubstr("\"mine\""), HasSubstr("\"yours\""))));
  EXPECT_EQ(FilesIn(folder), files);
  // Nor with another model.
  const Process::Result model = RunToEnd(Job(2, {"--data=generated", "--resume=none"}), {.directory = folder});
  EXPECT_EQ(model.exit_code, kUsage) << model.err;
  EXPECT_THAT(Errors(model.err), ElementsAre(AllOf(HasSubstr("2 tensors, 11 elements, checksum "),
                                                   HasSubstr("2 tensors, 22 elements, checksum "))));
  EXPECT_EQ(FilesIn(folder), files);
}

// A job of 2 ranks that may write no file of more than `blocks` times 512 bytes: what a full disk does, without one.
Process::Result RunOnFullDisk(int blocks, const std::vector<std::string>& flags, const std::string& folder) {
  std::vector<std::string> command = Job(2, flags);
  command.insert(command.begin(), {"sh", "-c", absl::StrCat("ulimit -f ", blocks, "; exec \"$@\""), "sh"});
  return RunToEnd(command, {.directory = folder});
}

TEST(BadInputTest, AFullDiskKeepsTheOldCheckpointsAndHasItsOwnExitCode) {
  const std::string folder = NewFolder();
  ASSERT_EQ(RunToEnd(Job(2, {"--epochs=1"}), {.directory = folder}).exit_code, 0);
  const std::vector<std::string> files = FilesIn(folder);
  const std::string before = ReadFile(folder + "/checkpoints/model_epoch_0.pth");
  const Process::Result result = RunOnFullDisk(1, {}, folder);
  EXPECT_EQ(result.exit_code, kIo) << result.err;
  // The run went on to its end.
  EXPECT_THAT(result.out, HasSubstr("epoch 9 "));
  EXPECT_THAT(
      Warnings(result.err),
      ElementsAre(HasSubstr("the save of model_epoch_5.pth failed: "), HasSubstr("the save of step 84 failed: "),
                  HasSubstr("the save of model_epoch_9.pth failed: "),
                  AllOf(HasSubstr("the save of step 140 failed: "), HasSubstr("; failed so far: 4; "))));
  EXPECT_THAT(Errors(result.err), ElementsAre(AllOf(HasSubstr("all 10 epochs are trained, but the last save failed: "),
                                                    HasSubstr(folder + "/checkpoints/"), HasSubstr("File too large"))));
  EXPECT_EQ(FilesIn(folder), files);
  EXPECT_EQ(ReadFile(folder + "/checkpoints/model_epoch_0.pth"), before);
  // Once there is room the run goes on from what it has.
  const Process::Result next = RunToEnd(Job(2, {}), {.directory = folder});
  EXPECT_EQ(next.exit_code, 0) << next.err;
  EXPECT_THAT(next.out, HasSubstr("after epoch 0, step 14; "));
}

TEST(BadInputTest, AFullDiskEndsTheRunIfThatIsAskedFor) {
  const std::string folder = NewFolder();
  const Process::Result result = RunOnFullDisk(1, {"--save_failure=stop"}, folder);
  EXPECT_EQ(result.exit_code, kIo) << result.err;
  EXPECT_THAT(Errors(result.err), ElementsAre(HasSubstr(folder + "/checkpoints/model_epoch_0.pth")));
  EXPECT_THAT(Warnings(result.err), IsEmpty());
  EXPECT_THAT(result.out, Not(HasSubstr("epoch 1 ")));
}

}  // namespace
}  // namespace cohort::testing
