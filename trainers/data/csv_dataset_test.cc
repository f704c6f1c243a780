#include "cohort/trainers/data/csv_dataset.h"

#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/status_matchers.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "cohort/trainers/data/dataset.h"
#include "cohort/trainers/data/runfile.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort {
namespace {

using ::absl_testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string WriteFile(std::string_view name, std::string_view content) {
  const std::string path = absl::StrCat(::testing::TempDir(), "/", name);
  std::ofstream(path, std::ios::binary) << content;
  return path;
}

absl::StatusOr<Dataset> ReadText(std::string_view content, std::vector<std::string> targets = {}) {
  return ReadCsvDataset(WriteFile("data.csv", content), targets);
}

// Reading `content` fails, and the message names the file and ends as given.
void ExpectRefused(std::string_view content, std::string_view message, std::vector<std::string> targets = {}) {
  const absl::StatusOr<Dataset> data = ReadText(content, std::move(targets));
  EXPECT_THAT(data, StatusIs(absl::StatusCode::kInvalidArgument, EndsWith(message))) << content.substr(0, 100);
  EXPECT_THAT(data.status().message(), HasSubstr(::testing::TempDir())) << content.substr(0, 100);
}

TEST(ReadCsvDatasetTest, TheLastColumnIsTheTargetByDefault) {
  const absl::StatusOr<Dataset> data = ReadText("a,b,y\n1,2,3\n-4.5,5e1,+6\n");
  ABSL_ASSERT_OK(data);
  EXPECT_EQ(data->num_rows, 2);
  EXPECT_THAT(data->feature_names, ElementsAre("a", "b"));
  EXPECT_THAT(data->target_names, ElementsAre("y"));
  EXPECT_THAT(data->features, ElementsAre(1, 2, -4.5, 50));
  EXPECT_THAT(data->targets, ElementsAre(3, 6));
  EXPECT_THAT(data->source, EndsWith("/data.csv"));
}

TEST(ReadCsvDatasetTest, TargetsComeInTheOrderTheyAreNamedIn) {
  const absl::StatusOr<Dataset> data = ReadText("a,b,c,d\n1,2,3,4\n5,6,7,8\n", {"c", "a"});
  ABSL_ASSERT_OK(data);
  EXPECT_THAT(data->feature_names, ElementsAre("b", "d"));
  EXPECT_THAT(data->target_names, ElementsAre("c", "a"));
  EXPECT_THAT(data->features, ElementsAre(2, 4, 6, 8));
  EXPECT_THAT(data->targets, ElementsAre(3, 1, 7, 5));
}

TEST(ReadCsvDatasetTest, TakesCarriageReturnsBlanksAByteOrderMarkAndAMissingLastNewline) {
  const absl::StatusOr<Dataset> data = ReadText(
      "\xEF\xBB\xBF"
      "a , y\r\n1,\t2 \r\n3,4");
  ABSL_ASSERT_OK(data);
  EXPECT_THAT(data->feature_names, ElementsAre("a"));
  EXPECT_THAT(data->features, ElementsAre(1, 3));
  EXPECT_THAT(data->targets, ElementsAre(2, 4));
}

TEST(ReadCsvDatasetTest, ReadsLinesThatCrossItsBuffer) {
  std::string text = "a,y\n";
  for (int i = 0; i < 50000; ++i) absl::StrAppend(&text, i, ",", -i, "\n");
  const absl::StatusOr<Dataset> data = ReadText(text);
  ABSL_ASSERT_OK(data);
  ASSERT_EQ(data->num_rows, 50000);
  for (int i = 0; i < 50000; ++i) {
    ASSERT_EQ(data->features[i], i);
    ASSERT_EQ(data->targets[i], -i);
  }
}

TEST(ReadCsvDatasetTest, ReadsTheDiabetesData) {
  const absl::StatusOr<std::string> path = LocateRunfile("", "cohort/trainers/data/diabetes.csv");
  ABSL_ASSERT_OK(path);
  const absl::StatusOr<Dataset> data = ReadCsvDataset(*path, {});
  ABSL_ASSERT_OK(data);
  EXPECT_EQ(data->num_rows, 442);
  EXPECT_THAT(data->feature_names, ElementsAre("age", "sex", "bmi", "bp", "s1", "s2", "s3", "s4", "s5", "s6"));
  EXPECT_THAT(data->target_names, ElementsAre("progression"));
  EXPECT_THAT(std::vector<double>(data->features.begin(), data->features.begin() + 10),
              ElementsAre(59, 2, 32.1, 101, 157, 93.2, 38, 4, 4.8598, 87));
  EXPECT_EQ(data->targets.front(), 151);
  EXPECT_EQ(data->targets.back(), 57);
}

TEST(ReadCsvDatasetTest, ReadsTheDigits) {
  const absl::StatusOr<std::string> path = LocateRunfile("", "cohort/trainers/data/digits.csv");
  ABSL_ASSERT_OK(path);
  const absl::StatusOr<Dataset> data = ReadCsvDataset(*path, {});
  ABSL_ASSERT_OK(data);
  EXPECT_EQ(data->num_rows, 1797);
  EXPECT_EQ(data->num_features(), 64);
  EXPECT_THAT(data->target_names, ElementsAre("digit"));
  EXPECT_THAT(std::vector<double>(data->features.begin(), data->features.begin() + 8),
              ElementsAre(0, 0, 5, 13, 9, 1, 0, 0));
  std::vector<int> images(10);
  for (const double digit : data->targets) ++images.at(static_cast<int>(digit));
  EXPECT_THAT(images, ElementsAre(178, 182, 177, 183, 181, 182, 181, 179, 174, 180));
  EXPECT_EQ(*std::max_element(data->features.begin(), data->features.end()), 16);
}

TEST(ReadCsvDatasetTest, NamesLineAndColumnOfWhatIsNoNumber) {
  ExpectRefused("a,b,y\n1,2,3\n4,abc,6\n", "data.csv, line 3: column 2 (b): \"abc\" is not a number");
  ExpectRefused("a,y\n1,\n", "data.csv, line 2: column 2 (y): is empty; expected a number");
  ExpectRefused("a,y\n1 2,3\n", "line 2: column 1 (a): \"1 2\" is not a number");
  ExpectRefused("a,y\n0x10,3\n", "line 2: column 1 (a): \"0x10\" is not a number");
  ExpectRefused("a,y\n+-1,3\n", "line 2: column 1 (a): \"+-1\" is not a number");
  ExpectRefused("a,y\n\"1\",3\n", "line 2: column 1 (a): \"\\\"1\\\"\" is not a number");
  ExpectRefused(std::string_view("a,y\n1\0,3\n", 9), "line 2: column 1 (a): \"1\\x00\" is not a number");
  ExpectRefused("a,y\n1,2\r3\n", "line 2: column 2 (y): \"2\\r3\" is not a number");
}

TEST(ReadCsvDatasetTest, ShowsOnlyTheBeginningOfALongField) {
  ExpectRefused(absl::StrCat("a,y\n", std::string(100000, 'z'), ",3\n"),
                absl::StrCat("column 1 (a): \"", std::string(40, 'z'), "...\" is not a number"));
}

TEST(ReadCsvDatasetTest, RefusesNumbersThatAreNotFiniteOrNoFloat) {
  ExpectRefused("a,y\nnan,3\n", "line 2: column 1 (a): \"nan\" is not a finite number");
  ExpectRefused("a,y\n1,-inf\n", "line 2: column 2 (y): \"-inf\" is not finite or too large for a float (3.4e38)");
  ExpectRefused("a,y\n1,1e39\n", "line 2: column 2 (y): \"1e39\" is not finite or too large for a float (3.4e38)");
  ExpectRefused("a,y\n1e999,1\n", "line 2: column 1 (a): \"1e999\" is not finite or too large for a float (3.4e38)");
}

TEST(ReadCsvDatasetTest, NamesTheLineWithAWrongNumberOfFields) {
  ExpectRefused("a,b,y\n1,2\n", "data.csv, line 2: expected 3 fields, as in the header; found 2");
  ExpectRefused("a,b,y\n1,2,3\n1,2,3,4\n", "line 3: expected 3 fields, as in the header; found 4");
  ExpectRefused("a,b,y\n1,2,3\n\n4,5,6\n", "line 3: is empty");
  ExpectRefused("a,b,y\n1,2,3\n\r\n", "line 3: is empty");
  ExpectRefused("a b y\n1 2 3\n",
                "data.csv is left as a feature: its header has one column, \"a b y\"; commas separate columns");
}

TEST(ReadCsvDatasetTest, NeedsAHeaderThatNamesEveryColumn) {
  ExpectRefused("", "line 1: the file is empty; expected a header with the columns' names, then rows of numbers");
  ExpectRefused("1,2,3\n4,5,6\n", "line 1: expected a header with the columns' names, found only numbers");
  ExpectRefused("a,,y\n", "line 1: column 2 has no name");
  ExpectRefused("\n1,2\n", "line 1: column 1 has no name");
  ExpectRefused("a,7,y\n", "line 1: column 2 is named \"7\": a number is no name");
  ExpectRefused("a,b,a\n", "line 1: column 3 is named \"a\", as one before it");
  ExpectRefused("\"a\",y\n", "line 1: column 1 is quoted: \"\\\"a\\\"\"; quotes are not supported");
}

TEST(ReadCsvDatasetTest, NeedsARow) {
  ExpectRefused("a,y\n", "line 2: expected a row of numbers after the header; the file ends here");
}

TEST(ReadCsvDatasetTest, ListsTheColumnsWhenATargetIsNone) {
  EXPECT_THAT(ReadText("a,b,y\n1,2,3\n", {"z"}),
              StatusIs(absl::StatusCode::kInvalidArgument, StartsWith("target \"z\" is not a column of ")));
  ExpectRefused("a,b,y\n1,2,3\n", "data.csv; its columns are: a, b, y", {"z"});
  ExpectRefused("a,y\n1,2\n", "data.csv is left as a feature: all 2 are targets", {"a", "y"});
  EXPECT_THAT(ReadText("a,b,y\n1,2,3\n", {"b", "b"}),
              StatusIs(absl::StatusCode::kInvalidArgument, "target \"b\" is named twice"));
}

TEST(ReadCsvDatasetTest, BoundsTheLengthOfALine) {
  ExpectRefused(absl::StrCat("a,y\n1,", std::string(kMaxCsvLineBytes, '0'), "\n"),
                "line 2: is longer than 1048576 bytes, the limit for a line");
  const std::string zeros = absl::StrCat(::testing::TempDir(), "/zeros.csv");
  std::ofstream(zeros).close();
  std::filesystem::resize_file(zeros, 10 * kMaxCsvLineBytes);
  EXPECT_THAT(ReadCsvDataset(zeros, {}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("line 1: is longer than")));
}

TEST(ReadCsvDatasetTest, DoesNotWaitForAPipe) {
  const std::string path = absl::StrCat(::testing::TempDir(), "/pipe.csv");
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  EXPECT_THAT(ReadCsvDataset(path, {}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("pipe.csv: it is not a regular file")));
}

TEST(ReadCsvDatasetTest, SaysWhyAFileCannotBeRead) {
  const std::string folder = ::testing::TempDir();
  EXPECT_THAT(ReadCsvDataset(folder + "/missing.csv", {}),
              StatusIs(absl::StatusCode::kNotFound, AllOf(HasSubstr("missing.csv"), HasSubstr("No such file"))));
  EXPECT_THAT(ReadCsvDataset(folder, {}), StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("Is a directory")));
  const std::string file = WriteFile("file", "x");
  EXPECT_THAT(ReadCsvDataset(file + "/below.csv", {}),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("Not a directory")));
  const std::string loop = folder + "/loop.csv";
  std::filesystem::create_symlink(loop, loop);
  EXPECT_THAT(ReadCsvDataset(loop, {}), StatusIs(::testing::Not(absl::StatusCode::kOk), HasSubstr("symbolic links")));
}

}  // namespace
}  // namespace cohort
