#include "ATen/core/Tensor.h"
#include "ATen/ops/arange.h"
#include "gtest/gtest.h"

namespace {

TEST(LibtorchTest, ComputesWithTheLibrariesFoundAtRunTime) {
  const at::Tensor numbers = at::arange(5);
  EXPECT_EQ(numbers.sum().item<int64_t>(), 10);
}

}  // namespace
