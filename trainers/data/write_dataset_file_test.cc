// Runs the program as a person does.

#include <sys/wait.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "ATen/core/Tensor.h"
#include "ATen/ops/equal.h"
#include "ATen/ops/tensor.h"
#include "absl/log/absl_check.h"
#include "absl/status/status_matchers.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "cohort/trainers/data/dataset_file.h"
#include "cohort/trainers/data/row_source.h"
#include "cohort/trainers/data/runfile.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

std::string TextOf(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

class WriteDatasetFileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = absl::StrCat(::testing::TempDir(), "/", ::testing::UnitTest::GetInstance()->current_test_info()->name());
    fs::create_directories(folder_);
    std::ofstream(folder_ + "/in.csv") << "a,b,y\n1,2,0\n3,4,7\n5,9,2\n";
  }

  // What the program ends with when a person who stands in the folder types `arguments`; what it says is in `said_`.
  int Run(std::string_view arguments) {
    const absl::StatusOr<std::string> program = LocateRunfile("", "cohort/trainers/data/write_dataset_file");
    ABSL_CHECK_OK(program);
    const int status = std::system(absl::StrCat("BUILD_WORKING_DIRECTORY='", folder_, "' '", *program, "' ", arguments,
                                                " > '", folder_, "/said' 2>&1")
                                       .c_str());
    said_ = TextOf(folder_ + "/said");
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

  RowBatch Written(std::string_view name) {
    absl::StatusOr<std::unique_ptr<RowSource>> rows =
        OpenDatasetFile(absl::StrCat(folder_, "/", name), {.verify = true});
    ABSL_CHECK_OK(rows);
    absl::StatusOr<RowBatch> batch = (*rows)->Read({2, 0});
    ABSL_CHECK_OK(batch);
    return *std::move(batch);
  }

  std::string folder_, said_;
};

TEST_F(WriteDatasetFileTest, MakesADataSetOfACsvFile) {
  EXPECT_EQ(Run("in.csv out.safetensors"), 0) << said_;
  EXPECT_THAT(said_, AllOf(HasSubstr("/MakesADataSetOfACsvFile/out.safetensors: 3 rows, "), HasSubstr(" bytes\n")));
  const RowBatch batch = Written("out.safetensors");
  EXPECT_TRUE(at::equal(batch.features, at::tensor({5.f, 9.f, 1.f, 2.f}).view({2, 2})));
  EXPECT_TRUE(at::equal(batch.targets, at::tensor({2.f, 0.f}).view({2, 1})));
}

TEST_F(WriteDatasetFileTest, WritesClassesAndOtherTargets) {
  EXPECT_EQ(Run("in.csv classes --classes"), 0) << said_;
  EXPECT_TRUE(at::equal(Written("classes").targets, at::tensor({int64_t{2}, int64_t{0}})));
  EXPECT_EQ(Run("in.csv targets --target=b,y"), 0) << said_;
  EXPECT_TRUE(at::equal(Written("targets").targets, at::tensor({9.f, 2.f, 2.f, 0.f}).view({2, 2})));
}

TEST_F(WriteDatasetFileTest, StandardizesIfItIsTold) {
  EXPECT_EQ(Run("in.csv out --standardize"), 0) << said_;
  const RowBatch batch = Written("out");
  EXPECT_FLOAT_EQ(batch.features[0][0].item<float>(), 1.2247449f);
  EXPECT_FLOAT_EQ(batch.targets[0][0].item<float>(), 2);
}

TEST_F(WriteDatasetFileTest, OneLineSaysWhatIsWrongAndTheOldFileStays) {
  std::ofstream(folder_ + "/out") << "old";
  const auto expect_refused = [&](std::string_view arguments, std::string_view why) {
    EXPECT_EQ(Run(arguments), 1);
    EXPECT_THAT(said_, AllOf(::testing::StartsWith("error: "), HasSubstr(why)));
    EXPECT_EQ(std::count(said_.begin(), said_.end(), '\n'), 1);
    EXPECT_EQ(TextOf(folder_ + "/out"), "old");
  };
  expect_refused("", "expected INPUT.csv OUTPUT.safetensors, and there are 0 arguments");
  expect_refused("in.csv out more", "there are 3 arguments");
  expect_refused("absent.csv out", "absent.csv");
  expect_refused("in.csv out --target=z", "z");
  expect_refused("in.csv out --target=a,b --classes", "a class is one column, and there are 2 targets");
  std::ofstream(folder_ + "/in.csv") << "a,y\n1,0.5\n";
  expect_refused("in.csv out --classes", "0.5 is no class");
}

TEST_F(WriteDatasetFileTest, TheHelpIsNoError) {
  for (const std::string_view help : {"--help", "-h", "in.csv out -help"}) {
    EXPECT_EQ(Run(help), 0);
    EXPECT_THAT(said_, AllOf(::testing::StartsWith("write_dataset_file: makes a safetensors file"),
                             HasSubstr("\n  --standardize=false\n      Write (x - mean)")));
  }
  EXPECT_EQ(Run("in.csv out -- --help"), 1);  // an argument
}

TEST_F(WriteDatasetFileTest, AHelpThatCannotBePrintedIsAnError) {
  const std::string program = *LocateRunfile("", "cohort/trainers/data/write_dataset_file");
  EXPECT_EQ(WEXITSTATUS(std::system(absl::StrCat("'", program, "' --help > /dev/full").c_str())), 1);
}

TEST_F(WriteDatasetFileTest, TheInputIsNotReplacedWhateverItIsCalled) {
  const std::string before = TextOf(folder_ + "/in.csv");
  fs::create_symlink("in.csv", folder_ + "/link.csv");
  fs::create_hard_link(folder_ + "/in.csv", folder_ + "/hard.csv");
  for (const std::string_view output : {"in.csv", "./in.csv", "link.csv", "hard.csv"}) {
    EXPECT_EQ(Run(absl::StrCat("in.csv ", output)), 1);
    EXPECT_THAT(said_, HasSubstr("and would be replaced; the output must be another file")) << output;
  }
  EXPECT_EQ(TextOf(folder_ + "/in.csv"), before);
}

TEST_F(WriteDatasetFileTest, ALimitOnTheSizeOfFilesIsAnErrorThatLeavesNothing) {
  // What the program says goes through a pipe: the limit is on files.
  const std::string program = *LocateRunfile("", "cohort/trainers/data/write_dataset_file");
  const std::string line =
      absl::StrCat("sh -c 'cd \"", folder_, "\" && ulimit -f 0 && \"", program,
                   "\" in.csv out.safetensors 2>&1; echo ended with $?' | cat > '", folder_, "/said'");
  ASSERT_EQ(std::system(line.c_str()), 0);
  EXPECT_THAT(TextOf(folder_ + "/said"), AllOf(HasSubstr("File too large"), HasSubstr("ended with 1\n")));
  fs::remove(folder_ + "/said");
  fs::remove(folder_ + "/in.csv");
  EXPECT_TRUE(fs::is_empty(folder_));
}

}  // namespace
}  // namespace cohort
