// Collective: every TEST body runs on every rank.

#include "cohort/runtime/tensor_collectives.h"

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "ATen/ATen.h"
#include "absl/status/status.h"
#include "absl/status/status_matchers.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "cohort/runtime/process_group.h"
#include "cohort/runtime/testing/thread_group.h"
#include "cohort/tests/harness/shared_group.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort {
namespace {

using absl_testing::IsOk;
using absl_testing::StatusIs;
using cohort::testing::SharedGroup;
using ::testing::Each;

// 1 + 2 + ... + n
double SumOfRanks() { return SharedGroup().world_size() * (SharedGroup().world_size() + 1) / 2.0; }
double MyShare() { return SharedGroup().rank() + 1.0; }

// The same on every rank, bit for bit.
void ExpectSameOnAllRanks(const at::Tensor& tensor) {
  const at::Tensor plain = tensor.detach().contiguous();
  const std::string mine(static_cast<const char*>(plain.const_data_ptr()), plain.nbytes());
  const absl::StatusOr<std::string> of_main = SharedGroup().BroadcastBytes("the main rank's bytes", mine);
  ASSERT_THAT(of_main, IsOk());
  EXPECT_EQ(mine, *of_main);
}

void ExpectSumsOf(const std::vector<at::ScalarType>& types) {
  std::vector<at::Tensor> tensors;
  for (at::ScalarType type : types) tensors.push_back(at::full({5}, MyShare(), type));
  ASSERT_THAT(AllReduceSum(SharedGroup(), tensors), IsOk());
  for (size_t i = 0; i < types.size(); ++i) {
    EXPECT_EQ(tensors[i].scalar_type(), types[i]);
    EXPECT_TRUE(tensors[i].equal(at::full({5}, SumOfRanks(), types[i]))) << tensors[i];
  }
}

TEST(TensorCollectivesTest, SumsEveryElementOfEveryTensor) {
  const std::vector<at::Tensor> tensors = {at::full({3}, MyShare()), at::full({2, 2}, 10 * MyShare())};
  ASSERT_THAT(AllReduceSum(SharedGroup(), tensors), IsOk());
  EXPECT_TRUE(tensors[0].equal(at::full({3}, SumOfRanks()))) << tensors[0];
  EXPECT_TRUE(tensors[1].equal(at::full({2, 2}, 10 * SumOfRanks()))) << tensors[1];
}

TEST(TensorCollectivesTest, SumsEveryType) {
  ExpectSumsOf({at::kFloat, at::kDouble, at::kInt, at::kLong, at::kByte, at::kChar});
}

TEST(TensorCollectivesTest, MeansAreTheSumOverTheWorldSize) {
  const std::vector<at::Tensor> tensors = {at::full({3}, MyShare())};
  ASSERT_THAT(AllReduceMean(SharedGroup(), tensors), IsOk());
  EXPECT_TRUE(tensors[0].equal(at::full({3}, SumOfRanks() / SharedGroup().world_size()))) << tensors[0];
}

TEST(TensorCollectivesTest, BroadcastsWhatTheMainRankHas) {
  const std::vector<at::Tensor> tensors = {at::arange(6).view({2, 3}) * MyShare(), at::full({4}, MyShare(), at::kLong)};
  ASSERT_THAT(BroadcastTensors(SharedGroup(), tensors), IsOk());
  EXPECT_TRUE(tensors[0].equal(at::arange(6).view({2, 3}) * 1.0)) << tensors[0];
  EXPECT_TRUE(tensors[1].equal(at::full({4}, 1, at::kLong))) << tensors[1];
}

TEST(TensorCollectivesTest, TakesTensorsAsTheyCome) {
  const at::Tensor whole = at::full({4, 6}, MyShare());
  const std::vector<at::Tensor> tensors = {
      whole.narrow(1, 1, 3),                      // a view with gaps
      at::full({3, 2}, MyShare()).t(),            // transposed
      at::full({}, MyShare()),                    // no dimensions
      at::empty({0, 7}),                          // no elements
      at::full({2}, MyShare()).requires_grad_(),  // a parameter
  };
  ASSERT_THAT(AllReduceSum(SharedGroup(), tensors), IsOk());
  EXPECT_EQ(tensors[0].sum().item<double>(), 12 * SumOfRanks());
  EXPECT_EQ(whole.sum().item<double>(), 12 * SumOfRanks() + 12 * MyShare()) << "the elements between were touched";
  EXPECT_EQ(tensors[1].sum().item<double>(), 6 * SumOfRanks());
  EXPECT_EQ(tensors[2].item<double>(), SumOfRanks());
  EXPECT_EQ(tensors[4].sum().item<double>(), 2 * SumOfRanks());
  EXPECT_TRUE(tensors[4].requires_grad());
}

TEST(TensorCollectivesTest, AParameterKeepsItsStorage) {
  const at::Tensor parameter = at::full({3}, MyShare());
  const void* data = parameter.const_data_ptr();
  ASSERT_THAT(AllReduceSum(SharedGroup(), {parameter, at::full({3}, MyShare())}), IsOk());
  EXPECT_EQ(parameter.const_data_ptr(), data);
}

TEST(TensorCollectivesTest, NothingIsNothing) {
  EXPECT_THAT(AllReduceSum(SharedGroup(), {}), IsOk());
  EXPECT_THAT(BroadcastTensors(SharedGroup(), {at::empty({0})}), IsOk());
}

TEST(TensorCollectivesTest, AGroupOfThreadsCarriesNoTensors) {
  testing::ThreadGroup threads({.world_size = 2});
  const std::vector<absl::Status> outcomes =
      threads.Run([](ProcessGroup& group) { return AllReduceSum(group, {at::ones({1})}); });
  EXPECT_THAT(outcomes, Each(StatusIs(absl::StatusCode::kUnimplemented)));
}

// Floating point sums depend on their order, which must depend on nothing else.
TEST(TensorCollectivesTest, ResultsAreTheSameOnAllRanksAndEveryTime) {
  at::manual_seed(7 + SharedGroup().rank());
  const at::Tensor mine = at::randn({100003});
  at::Tensor first;
  for (int round = 0; round < 3; ++round) {
    const at::Tensor sum = mine.clone();
    ASSERT_THAT(AllReduceSum(SharedGroup(), {sum, at::ones({17})}), IsOk());
    ExpectSameOnAllRanks(sum);
    if (round == 0) first = sum;
    EXPECT_TRUE(sum.equal(first));
  }
}

}  // namespace
}  // namespace cohort
