// The main job is stopped and goes on in new processes, as if it had never stopped; and what it makes of a state that is
// not its own.

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

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

// Every epoch is one step, and only the first and the last are saved.
std::vector<std::string> OneStepAnEpoch(std::vector<std::string> flags) {
  flags.insert(flags.end(), {"--batch_size=442", "--save_every=1000"});
  return flags;
}

Process::Result RunJob(const std::string& folder, const std::vector<std::string>& flags, int num_ranks = 2) {
  std::vector<std::string> command = {PathIn("LAUNCH"), absl::StrCat("--nproc-per-node=", num_ranks), PathIn("LINEAR")};
  command.insert(command.end(), flags.begin(), flags.end());
  return RunToEnd(command, {.directory = folder});
}

std::vector<std::string> LinesWith(std::string_view text, std::string_view part) {
  std::vector<std::string> lines;
  for (const std::string_view line : absl::StrSplit(text, '\n')) {
    if (absl::StrContains(line, part) && !absl::StartsWith(line, "launch: ")) lines.emplace_back(line);
  }
  return lines;
}

std::vector<std::string> With(std::vector<std::string> flags, const std::vector<std::string>& more) {
  flags.insert(flags.end(), more.begin(), more.end());
  return flags;
}

// Trains 20 epochs with `flags` straight, and 10 and then 10 more in new processes. The last files must be equal byte by
// byte (they hold parameters, optimizer, schedule, random numbers, step and epoch), and so must what is printed of the
// epochs.
void ExpectToGoOn(const std::vector<std::string>& flags, std::string_view model, std::string_view state, int64_t step) {
  SCOPED_TRACE(absl::StrJoin(flags, " "));
  const std::string folder = NewFolder();
  const Process::Result straight = RunJob(folder, With(flags, {"--epochs=20", "--checkpoint_dir=straight"}));
  ASSERT_EQ(straight.exit_code, 0) << straight.err;
  const std::vector<std::string> epochs = LinesWith(straight.out, "] epoch ");
  ASSERT_THAT(epochs, SizeIs(20));

  const Process::Result half = RunJob(folder, With(flags, {"--epochs=10", "--checkpoint_dir=half"}));
  ASSERT_EQ(half.exit_code, 0) << half.err;
  EXPECT_THAT(LinesWith(half.out, "] epoch "), ElementsAreArray(epochs.begin(), epochs.begin() + 10));
  const std::string saved = absl::StrCat("half/state_epoch_9", state);

  const Process::Result rest =
      RunJob(folder, With(flags, {"--epochs=20", "--checkpoint_dir=rest", "--resume=" + saved}));
  ASSERT_EQ(rest.exit_code, 0) << rest.err;
  EXPECT_THAT(LinesWith(rest.out, "resumed "),
              ElementsAre(HasSubstr(absl::StrCat(saved, "  after epoch 9, step ", step, "; learning rate "))));
  EXPECT_THAT(LinesWith(rest.out, "] epoch "), ElementsAreArray(epochs.begin() + 10, epochs.end()));

  for (const std::string& name : {absl::StrCat("/model_epoch_19", model), absl::StrCat("/state_epoch_19", state)}) {
    const std::string expected = ReadFile(absl::StrCat(folder, "/straight", name));
    EXPECT_THAT(expected, Not(IsEmpty()));
    EXPECT_TRUE(ReadFile(absl::StrCat(folder, "/rest", name)) == expected) << name << " is another one";
  }
  EXPECT_FALSE(ReadFile(absl::StrCat(folder, "/", saved)) ==
               ReadFile(absl::StrCat(folder, "/straight/state_epoch_19", state)));
}

TEST(ResumeTest, StoppingAndGoingOnIsTheSameAsNeverStopping) {
  for (const std::vector<std::string>& flags :
       std::vector<std::vector<std::string>>{{"--optimizer=sgd"},
                                             {"--optimizer=sgd", "--momentum=0.9"},
                                             {"--optimizer=adam"},
                                             {"--optimizer=adamw"},
                                             {"--optimizer=rmsprop"},
                                             {"--optimizer=adagrad"}}) {
    ExpectToGoOn(OneStepAnEpoch(flags), ".pth", ".pt", 10);
    ExpectToGoOn(OneStepAnEpoch(With(flags, {"--format=safetensors"})), ".safetensors", ".safetensors", 10);
  }
}

TEST(ResumeTest, TheOrderOfTheRowsAndTheLearningRateGoOn) {
  // 442 rows are 14 steps. The rate changes after epochs 6 and 13.
  ExpectToGoOn({"--optimizer=rmsprop", "--momentum=0.5", "--lr_step_size=7", "--lr_gamma=0.3",
                "--seed=18446744073709551615", "--save_every=1000"},
               ".pth", ".pt", 140);
}

TEST(ResumeTest, TheFormatMayChangeAndTheLearningRateToo) {
  const std::string folder = NewFolder();
  ASSERT_EQ(RunJob(folder, OneStepAnEpoch({"--epochs=10"})).exit_code, 0);
  const Process::Result result =
      RunJob(folder, OneStepAnEpoch({"--epochs=11", "--resume=checkpoints/state_epoch_9.pt", "--format=safetensors",
                                     "--checkpoint_dir=more", "--learning_rate=0.01"}));
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(LinesWith(result.out, "resumed "),
              ElementsAre(HasSubstr("after epoch 9, step 10; learning rate 0.01"),
                          HasSubstr("with the learning rate that was asked for; the saved one is 0.04545")));
  EXPECT_THAT(LinesWith(result.out, "] epoch "), ElementsAre(HasSubstr("epoch 10 ")));
  EXPECT_THAT(FilesIn(folder + "/more"), ElementsAre("model_epoch_10.safetensors", "state_epoch_10.safetensors"));
  // The new rate is the saved one from now on.
  const Process::Result again = RunJob(
      folder, OneStepAnEpoch({"--epochs=12", "--resume=more/state_epoch_10.safetensors", "--checkpoint_dir=more"}));
  ASSERT_EQ(again.exit_code, 0) << again.err;
  EXPECT_THAT(LinesWith(again.out, "resumed "), ElementsAre(HasSubstr("step 11; learning rate 0.01")));
}

// One run of 10 epochs with Adam on 2 ranks, and what resuming from it is refused for.
class WrongResumeTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = new std::string(NewFolder());
    ASSERT_EQ(RunJob(*folder_, OneStepAnEpoch({"--optimizer=adam"})).exit_code, 0);
  }

  // All ranks end with one error that holds `message` and the file's path, and no file is made or changed.
  static void ExpectRefused(const std::string& path, const std::vector<std::string>& flags, std::string_view message,
                            int exit_code = kUsage, int num_ranks = 2) {
    SCOPED_TRACE(absl::StrCat(path, " ", absl::StrJoin(flags, " ")));
    const std::string folder = NewFolder();
    std::filesystem::copy(*folder_, folder, std::filesystem::copy_options::recursive);
    const std::vector<std::string> files = FilesIn(folder);
    const std::string before = ReadFile(folder + "/" + path);
    const Process::Result result = RunJob(
        folder, With({"--optimizer=adam", "--batch_size=442", "--epochs=20", "--resume=" + path}, flags), num_ranks);
    EXPECT_EQ(result.exit_code, exit_code) << result.err;
    EXPECT_THAT(LinesWith(result.err, "error: "), ElementsAre(AllOf(HasSubstr(message), HasSubstr(path))));
    EXPECT_THAT(LinesWith(result.out, "] epoch "), IsEmpty());
    EXPECT_THAT(LinesWith(result.out, "resumed "), IsEmpty());
    EXPECT_EQ(FilesIn(folder), files);
    EXPECT_EQ(ReadFile(folder + "/" + path), before);
  }

  // A file of this name, which is the saved state with one byte changed or the end cut off.
  static std::string Damaged(const std::string& name, size_t at, bool cut) {
    std::string content = ReadFile(*folder_ + "/" + kState);
    EXPECT_LT(at, content.size());
    if (cut) {
      content.resize(at);
    } else {
      content[at] ^= 1;
    }
    WriteFile(*folder_ + "/" + name, content);
    return name;
  }

  static constexpr char kState[] = "checkpoints/state_epoch_9.pt";
  static std::string* folder_;
};

std::string* WrongResumeTest::folder_ = nullptr;

TEST_F(WrongResumeTest, WithEpochsThatAreAllDone) {
  ExpectRefused(kState, {"--epochs=10"}, "has 10 epochs done already, and epochs=10 are to be made in all");
  ExpectRefused(kState, {"--epochs=3"}, "has 10 epochs done already, and epochs=3 are to be made in all");
}

TEST_F(WrongResumeTest, WithOtherOptions) {
  ExpectRefused(kState, {"--optimizer=sgd"}, "saved with optimizer=\"adam\"; now optimizer=\"sgd\"");
  ExpectRefused(kState, {"--optimizer=adamw"}, "saved with optimizer=\"adam\"; now optimizer=\"adamw\"");
  ExpectRefused(kState, {"--seed=3"}, "saved with seed=\"0\"; now seed=\"3\"");
  ExpectRefused(kState, {"--batch_size=32"}, "saved with batch_size=442; now batch_size=32");
  ExpectRefused(kState, {"--lr_step_size=5"}, "saved with lr_step_size=0 lr_gamma=0; now lr_step_size=5 lr_gamma=0.1");
}

TEST_F(WrongResumeTest, WithOtherData) {
  ExpectRefused(kState, {"--data=generated", "--features=3", "--outputs=1", "--batch_size=1000"}, " features=3 ");
  // One digit of one number.
  std::string csv = ReadFile(PathIn("DIABETES"));
  const size_t digit = csv.find_last_of("0123456789");
  csv[digit] = csv[digit] == '1' ? '2' : '1';
  WriteFile(*folder_ + "/other.csv", csv);
  ExpectRefused(kState, {"--data=other.csv"}, "saved with data_checksum=");
}

TEST_F(WrongResumeTest, WithAnotherNumberOfRanks) {
  ExpectRefused(kState, {}, "has entries of 2 ranks, and this job has 1", kUsage, 1);
  ExpectRefused(kState, {}, "has entries of 2 ranks, and this job has 3", kUsage, 3);
}

TEST_F(WrongResumeTest, FromAFileThatIsNoState) {
  ExpectRefused("checkpoints/model_epoch_9.pth", {}, "no key \"step\"; it has \"weight\", \"bias\"");
  ExpectRefused("checkpoints/missing.pt", {}, "No such file or directory");
  ExpectRefused("checkpoints", {}, "irectory");
  WriteFile(*folder_ + "/text.pt", "What is a state?\n");
  ExpectRefused("text.pt", {}, "text.pt");
}

TEST_F(WrongResumeTest, FromADamagedFile) {
  const std::string content = ReadFile(*folder_ + "/" + kState);
  // A cut file has lost its directory; a byte in the middle of a tensor is found by its checksum.
  ExpectRefused(Damaged("cut.pt", content.size() / 2, /*cut=*/true), {}, "cut", kIo);
  const size_t name = content.find("data/0");
  ASSERT_NE(name, content.npos);
  // Behind the name and its padding.
  const size_t tensor = (name + 2 * 64) / 64 * 64;
  ExpectRefused(Damaged("flipped.pt", tensor, /*cut=*/false), {}, "checksum", kIo);
}

}  // namespace
}  // namespace cohort::testing
