// Collective: every TEST body runs on every rank.

#include <vector>

#include "ATen/ATen.h"
#include "absl/status/status_matchers.h"
#include "cohort/runtime/tensor_collectives.h"
#include "cohort/tests/harness/shared_group.h"
#include "gtest/gtest.h"

namespace cohort {
namespace {

using absl_testing::IsOk;
using cohort::testing::SharedGroup;

TEST(HalfTypesTest, AreSummed) {
  for (at::ScalarType type : {at::kHalf, at::kBFloat16}) {
    const std::vector<at::Tensor> tensors = {at::full({5}, SharedGroup().rank() + 1.0, type)};
    ASSERT_THAT(AllReduceSum(SharedGroup(), tensors), IsOk()) << type;
    const double sum = SharedGroup().world_size() * (SharedGroup().world_size() + 1) / 2.0;
    EXPECT_TRUE(tensors[0].equal(at::full({5}, sum, type))) << tensors[0];
  }
}

}  // namespace
}  // namespace cohort
