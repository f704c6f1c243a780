#include "cohort/trainers/mlp_task.h"

#include <cstdint>
#include <memory>
#include <utility>

#include "ATen/core/Tensor.h"
#include "ATen/ops/ones.h"
#include "ATen/ops/tensor.h"
#include "absl/status/status.h"
#include "absl/status/status_matchers.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "cohort/runtime/torch_status.h"
#include "cohort/trainers/data/row_source.h"
#include "cohort/trainers/task.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort {
namespace {

using ::absl_testing::IsOk;
using ::absl_testing::StatusIs;
using ::testing::HasSubstr;

// Row i is of class i; of this many.
class Rows final : public RowSource {
 public:
  Rows(int64_t num_rows, at::ScalarType features)
      : RowSource({.name = "rows",
                   .num_rows = num_rows,
                   .features = {.sizes = {2}, .dtype = features},
                   .targets = {.dtype = at::kLong}}) {}

 private:
  absl::Status ReadInto(absl::Span<const int64_t> rows, RowBatch& batch) const override {
    batch.features.fill_(1);
    for (size_t i = 0; i < rows.size(); ++i) batch.targets[static_cast<int64_t>(i)].fill_(rows[i]);
    return absl::OkStatus();
  }
};

TEST(MlpTaskTest, ThereAreAsManyClassesAsTheDataHave) {
  const auto task = MakeMlpTask(Rows(7, at::kFloat), {.hidden = {3}});
  ABSL_ASSERT_OK(task);
  EXPECT_EQ((*task)->model_name(), "Mlp(2, 3, 7)");
}

TEST(MlpTaskTest, ComplexFeaturesAreRefusedAndNotCutDownToTheirRealPart) {
  EXPECT_THAT(MakeMlpTask(Rows(7, at::kComplexFloat), {}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("[2] of ComplexFloat; a classifier needs real")));
  EXPECT_THAT(MakeMlpTask(Rows(7, at::kInt), {}), IsOk());
}

TEST(MlpTaskTest, AClassThatIsNotAmongThoseAskedForIsNamed) {
  const auto task = MakeMlpTask(Rows(7, at::kFloat), {.classes = 3});
  ABSL_ASSERT_OK(task);
  const auto loss_of = [&](int64_t target) {
    return InvokeTorch([&] { return (*task)->Loss(at::ones({2, 3}), at::tensor({int64_t{0}, target})); }).status();
  };
  EXPECT_THAT(loss_of(2), IsOk());
  for (const int64_t target : {3, 6, -1}) {
    EXPECT_THAT(
        loss_of(target),
        StatusIs(absl::StatusCode::kInvalidArgument,
                 HasSubstr(absl::StrCat("a row is of class ", target, "; with classes=3 they must be from 0 to 2"))));
  }
}

}  // namespace
}  // namespace cohort
