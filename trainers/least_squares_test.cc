#include "cohort/trainers/least_squares.h"

#include <string>

#include "absl/status/status_matchers.h"
#include "absl/status/statusor.h"
#include "cohort/trainers/data/csv_dataset.h"
#include "cohort/trainers/data/dataset.h"
#include "cohort/trainers/data/runfile.h"
#include "gtest/gtest.h"

namespace cohort {
namespace {

TEST(LeastSquaresTest, FitsTheDiabetesDataAsTheTextbooksDo) {
  const absl::StatusOr<std::string> path = LocateRunfile("", "cohort/trainers/data/diabetes.csv");
  ABSL_ASSERT_OK(path);
  const absl::StatusOr<Dataset> data = ReadCsvDataset(*path, {});
  ABSL_ASSERT_OK(data);
  const absl::StatusOr<double> error = LeastSquaresError(*data);
  ABSL_ASSERT_OK(error);
  EXPECT_NEAR(1 - *error / TargetVariation(*data), 0.517748, 1e-6);
}

TEST(LeastSquaresTest, TakesFeaturesThatDependOnEachOtherAndFewerRowsThanFeatures) {
  Dataset data;
  data.feature_names = {"a", "twice a", "constant", "zero"};
  data.target_names = {"y"};
  data.num_rows = 3;
  data.features = {1, 2, 5, 0, 2, 4, 5, 0, 4, 8, 5, 0};
  data.targets = {1, 2, 3};
  const absl::StatusOr<double> error = LeastSquaresError(data);
  ABSL_ASSERT_OK(error);
  // The line through (1, 1), (2, 2), (4, 3): slope 9/14, and 1/14 is left.
  EXPECT_NEAR(*error, 1.0 / 14, 1e-12);
}

}  // namespace
}  // namespace cohort
