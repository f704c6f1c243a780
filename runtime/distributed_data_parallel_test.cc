// Collective: every TEST body runs on every rank. What poisons the group is in distributed_data_parallel_failure_test.cc.

#include "cohort/runtime/distributed_data_parallel.h"

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/status_matchers.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "cohort/runtime/process_group.h"
#include "cohort/runtime/tensor_collectives.h"
#include "cohort/runtime/testing/thread_group.h"
#include "cohort/tests/harness/shared_group.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "torch/torch.h"

namespace cohort {
namespace {

using absl_testing::IsOk;
using absl_testing::IsOkAndHolds;
using absl_testing::StatusIs;
using cohort::testing::SharedGroup;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::StartsWith;

int Rank() { return SharedGroup().rank(); }
int WorldSize() { return SharedGroup().world_size(); }

struct NetImpl : torch::nn::Module {
  NetImpl() {
    first = register_module("first", torch::nn::Linear(6, 16));
    norm = register_module("norm", torch::nn::BatchNorm1d(16));
    second = register_module("second", torch::nn::Linear(16, 3));
  }
  at::Tensor forward(const at::Tensor& x) { return second(torch::relu(norm(first(x)))); }
  torch::nn::Linear first{nullptr}, second{nullptr};
  torch::nn::BatchNorm1d norm{nullptr};
};
TORCH_MODULE(Net);

Net MakeNet(uint64_t seed) {
  torch::manual_seed(seed);
  return Net();
}

// This rank's rows of step `step`.
std::pair<at::Tensor, at::Tensor> BatchOf(int rank, int step) {
  auto random = at::make_generator<at::CPUGeneratorImpl>(1000 * step + rank);
  return {at::randn({8, 6}, random), at::randn({8, 3}, random)};
}

at::Tensor LossOf(const at::Tensor& output, const at::Tensor& targets) { return torch::mse_loss(output, targets); }

// All of the module's numbers, one after the other.
at::Tensor Flat(const torch::nn::Module& module) {
  std::vector<at::Tensor> all;
  for (const at::Tensor& tensor : module.parameters()) all.push_back(tensor.detach().flatten().to(at::kDouble));
  for (const at::Tensor& tensor : module.buffers()) all.push_back(tensor.detach().flatten().to(at::kDouble));
  return at::cat(all);
}

at::Tensor FlatGradients(const torch::nn::Module& module) {
  std::vector<at::Tensor> all;
  for (const at::Tensor& tensor : module.parameters()) {
    all.push_back(tensor.grad().defined() ? tensor.grad().detach().flatten() : at::zeros({tensor.numel()}));
  }
  return at::cat(all);
}

// Whether it is the main rank's on every rank, bit for bit.
bool IsSameEverywhere(const at::Tensor& tensor) {
  at::Tensor of_main = tensor.clone();
  EXPECT_THAT(BroadcastTensors(SharedGroup(), {of_main}), IsOk());
  const at::Tensor same = at::full({1}, of_main.equal(tensor) ? 1 : 0, at::kLong);
  EXPECT_THAT(AllReduceSum(SharedGroup(), {same}), IsOk());
  return same.item<int64_t>() == WorldSize();
}

at::Tensor MeanOverRanks(const at::Tensor& tensor) {
  at::Tensor mean = tensor.clone();
  EXPECT_THAT(AllReduceMean(SharedGroup(), {mean}), IsOk());
  return mean;
}

// ---- The same start, the same gradients ----

TEST(DistributedDataParallelTest, EveryRankStartsWithTheMainRanksModel) {
  Net net = MakeNet(Rank());
  net->norm->running_mean.fill_(Rank());
  const at::Tensor before = Flat(*net);
  auto ddp = DistributedDataParallel<NetImpl>::Create(&SharedGroup(), net.ptr());
  ASSERT_THAT(ddp, IsOk());
  EXPECT_TRUE(IsSameEverywhere(Flat(*net)));
  EXPECT_EQ(before.equal(Flat(*net)), SharedGroup().is_main());
  EXPECT_EQ((*ddp)->module().get(), net.get());
}

TEST(DistributedDataParallelTest, RanksThatBeganDifferentlyAreTheSameAfterTwentySteps) {
  Net net = MakeNet(Rank());
  auto ddp = DistributedDataParallel<NetImpl>::Create(&SharedGroup(), net.ptr());
  ASSERT_THAT(ddp, IsOk());
  torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  const at::Tensor before = Flat(*net);
  for (int step = 0; step < 20; ++step) {
    const auto [x, y] = BatchOf(Rank(), step);
    optimizer.zero_grad();
    auto output = (*ddp)->Forward(x);
    ASSERT_THAT(output, IsOk());
    ASSERT_THAT((*ddp)->Backward(LossOf(*output, y)), IsOk());
    optimizer.step();
  }
  EXPECT_FALSE(before.equal(Flat(*net)));
  std::vector<at::Tensor> parameters;
  for (const at::Tensor& parameter : net->parameters()) parameters.push_back(parameter.detach().flatten());
  EXPECT_TRUE(IsSameEverywhere(at::cat(parameters)));
}

struct Variant {
  std::string name;
  DistributedDataParallelOptions options;
};

class VariantTest : public ::testing::TestWithParam<Variant> {};

// The oracle: the same model alone on this rank, its gradients averaged one by one.
TEST_P(VariantTest, GradientsAreTheMeanOfTheRanks) {
  Net net = MakeNet(1), alone = MakeNet(1);
  auto ddp = DistributedDataParallel<NetImpl>::Create(&SharedGroup(), net.ptr(), GetParam().options);
  ASSERT_THAT(ddp, IsOk());
  for (int step = 0; step < 4; ++step) {
    const auto [x, y] = BatchOf(Rank(), step);
    net->zero_grad();
    alone->zero_grad();
    auto output = (*ddp)->Forward(x);
    ASSERT_THAT(output, IsOk());
    ASSERT_THAT((*ddp)->Backward(LossOf(*output, y)), IsOk());
    LossOf(alone->forward(x), y).backward();
    const at::Tensor mean = MeanOverRanks(FlatGradients(*alone));
    EXPECT_TRUE(at::allclose(FlatGradients(*net), mean, 1e-6, 1e-6))
        << "step " << step << ": " << (FlatGradients(*net) - mean).abs().max();
    EXPECT_TRUE(IsSameEverywhere(FlatGradients(*net)));
  }
}

INSTANTIATE_TEST_SUITE_P(
    DistributedDataParallelTest, VariantTest,
    ::testing::Values(
        Variant{"Default", {}}, Variant{"ManyBuckets", {.bucket_bytes = 100, .first_bucket_bytes = 1}},
        Variant{"BucketsThatStay", {.bucket_bytes = 100, .first_bucket_bytes = 1, .rebuild_buckets = false}},
        Variant{"StaticGraphInBucketsThatStay", {.bucket_bytes = 100, .rebuild_buckets = false, .static_graph = true}},
        Variant{"BucketViews", {.gradient_as_bucket_view = true}},
        Variant{"FindUnused", {.bucket_bytes = 100, .find_unused_parameters = true}},
        Variant{"StaticGraph", {.static_graph = true}},
        Variant{"StaticGraphInViews", {.gradient_as_bucket_view = true, .static_graph = true}}),
    [](const auto& info) { return info.param.name; });

TEST(DistributedDataParallelTest, UnderNoSyncGradientsAddUpAndAreAveragedOnceAtTheEnd) {
  Net net = MakeNet(1), alone = MakeNet(1);
  auto ddp = DistributedDataParallel<NetImpl>::Create(&SharedGroup(), net.ptr(), {.broadcast_buffers = false});
  ASSERT_THAT(ddp, IsOk());
  for (int micro = 0; micro < 3; ++micro) {
    const auto [x, y] = BatchOf(Rank(), micro);
    LossOf(alone->forward(x), y).backward();
    const auto no_sync = (*ddp)->NoSync(micro < 2);
    auto output = (*ddp)->Forward(x);
    ASSERT_THAT(output, IsOk());
    ASSERT_THAT((*ddp)->Backward(LossOf(*output, y)), IsOk());
    if (micro < 2) {
      EXPECT_TRUE(at::allclose(FlatGradients(*net), FlatGradients(*alone), 1e-6, 1e-6)) << "still this rank's own";
    }
  }
  EXPECT_TRUE(at::allclose(FlatGradients(*net), MeanOverRanks(FlatGradients(*alone)), 1e-6, 1e-6));
}

TEST(DistributedDataParallelTest, WhetherABackwardIsLocalIsDecidedAtItsForward) {
  Net net = MakeNet(1), alone = MakeNet(1);
  auto ddp = DistributedDataParallel<NetImpl>::Create(&SharedGroup(), net.ptr(), {.broadcast_buffers = false});
  ASSERT_THAT(ddp, IsOk());
  for (const bool forward_is_local : {true, false}) {
    net->zero_grad();
    alone->zero_grad();
    const auto [x, y] = BatchOf(Rank(), 0);
    absl::StatusOr<at::Tensor> output;
    {
      const auto no_sync = (*ddp)->NoSync(forward_is_local);
      output = (*ddp)->Forward(x);
      ASSERT_THAT(output, IsOk());
    }
    const auto no_sync = (*ddp)->NoSync(!forward_is_local);
    ASSERT_THAT((*ddp)->Backward(LossOf(*output, y)), IsOk());
    LossOf(alone->forward(x), y).backward();
    const at::Tensor own = FlatGradients(*alone);
    EXPECT_TRUE(at::allclose(FlatGradients(*net), forward_is_local ? own : MeanOverRanks(own), 1e-6, 1e-6));
  }
}

TEST(DistributedDataParallelTest, LocalForwardsInBetweenLeaveTheBackwardOfTheOneBeforeAveraged) {
  Net net = MakeNet(1), alone = MakeNet(1);
  auto ddp = DistributedDataParallel<NetImpl>::Create(&SharedGroup(), net.ptr(), {.broadcast_buffers = false});
  ASSERT_THAT(ddp, IsOk());
  for (int step = 0; step < 2; ++step) {
    net->zero_grad();
    alone->zero_grad();
    const auto [x, y] = BatchOf(Rank(), step);
    const auto [local_x, local_y] = BatchOf(Rank(), 10 + step);
    auto output = (*ddp)->Forward(x);
    ASSERT_THAT(output, IsOk());
    LossOf(alone->forward(x), y).backward();
    at::Tensor expected = MeanOverRanks(FlatGradients(*alone));
    {
      const at::NoGradGuard no_grad;
      ASSERT_THAT((*ddp)->Forward(local_x), IsOk());
      alone->forward(local_x);
    }
    const auto no_sync = (*ddp)->NoSync();
    auto local_output = (*ddp)->Forward(local_x);
    ASSERT_THAT(local_output, IsOk());
    ASSERT_THAT((*ddp)->Backward(LossOf(*output, y)), IsOk());
    EXPECT_TRUE(at::allclose(FlatGradients(*net), expected, 1e-6, 1e-6)) << "step " << step;

    ASSERT_THAT((*ddp)->Backward(LossOf(*local_output, local_y)), IsOk());
    alone->zero_grad();
    LossOf(alone->forward(local_x), local_y).backward();
    expected += FlatGradients(*alone);
    EXPECT_TRUE(at::allclose(FlatGradients(*net), expected, 1e-5, 1e-6)) << "step " << step;
  }
}

// LibTorch counts how often each gradient comes in the first backward, and would count local ones with it.
TEST(DistributedDataParallelTest, AStaticGraphMayBeginUnderNoSync) {
  for (const bool views : {false, true}) {
    Net net = MakeNet(1), alone = MakeNet(1);
    auto ddp = DistributedDataParallel<NetImpl>::Create(
        &SharedGroup(), net.ptr(),
        {.broadcast_buffers = false, .gradient_as_bucket_view = views, .static_graph = true});
    ASSERT_THAT(ddp, IsOk());
    for (int step = 0; step < 3; ++step) {
      net->zero_grad();
      alone->zero_grad();
      for (int micro = 0; micro < 3; ++micro) {
        const auto [x, y] = BatchOf(Rank(), 3 * step + micro);
        LossOf(alone->forward(x), y).backward();
        const auto no_sync = (*ddp)->NoSync(micro < 2);
        auto output = (*ddp)->Forward(x);
        ASSERT_THAT(output, IsOk());
        ASSERT_THAT((*ddp)->Backward(LossOf(*output, y)), IsOk());
      }
      EXPECT_TRUE(at::allclose(FlatGradients(*net), MeanOverRanks(FlatGradients(*alone)), 1e-6, 1e-6)) << step;
    }
  }
}

TEST(DistributedDataParallelTest, BuffersBecomeTheMainRanksAtEachForwardUnlessTheyAreNotTo) {
  for (const bool sends : {true, false}) {
    Net net = MakeNet(1);
    auto ddp = DistributedDataParallel<NetImpl>::Create(&SharedGroup(), net.ptr(), {.broadcast_buffers = sends});
    ASSERT_THAT(ddp, IsOk());
    net->norm->running_mean.fill_(Rank());
    net->eval();  // which leaves the running mean alone
    auto output = (*ddp)->Forward(BatchOf(Rank(), 0).first);
    ASSERT_THAT(output, IsOk());
    EXPECT_EQ(net->norm->running_mean[0].item<double>(), sends ? 0 : Rank());
    ASSERT_THAT((*ddp)->Backward(output->sum()), IsOk());
  }
}

TEST(DistributedDataParallelTest, WithoutGradientsForwardNeedsNoBackward) {
  Net net = MakeNet(1);
  auto ddp = DistributedDataParallel<NetImpl>::Create(&SharedGroup(), net.ptr());
  ASSERT_THAT(ddp, IsOk());
  for (int i = 0; i < 3; ++i) {
    const at::NoGradGuard no_grad;
    EXPECT_THAT((*ddp)->Forward(BatchOf(Rank(), i).first), IsOk());
  }
  auto output = (*ddp)->Forward(BatchOf(Rank(), 0).first);
  ASSERT_THAT(output, IsOk());
  EXPECT_THAT((*ddp)->Backward(output->sum()), IsOk());
}

// ---- What forward takes and returns ----

struct Pair {
  at::Tensor sum, difference;
};
void VisitTensors(Pair& pair, TensorVisitor visit) { visit(pair.sum), visit(pair.difference); }

// Two inputs, an output of type `Output`, and a branch that has its part only if it is asked for.
template <typename Output>
struct BranchesImpl : torch::nn::Module {
  BranchesImpl() {
    left = register_module("left", torch::nn::Linear(3, 2));
    right = register_module("right", torch::nn::Linear(3, 2));
  }
  Output forward(const at::Tensor& a, const at::Tensor& b) {
    const at::Tensor l = left(a), r = right(b);
    if constexpr (std::is_same_v<Output, Pair>) {
      return {.sum = l, .difference = r};
    } else if constexpr (std::is_same_v<Output, std::map<std::string, at::Tensor>>) {
      return {{"left", l}, {"right", r}};
    } else {
      return Output{l, r};
    }
  }
  torch::nn::Linear left{nullptr}, right{nullptr};
};

template <typename Output>
std::pair<at::Tensor, at::Tensor> Both(const Output& output) {
  if constexpr (std::is_same_v<Output, Pair>) {
    return {output.sum, output.difference};
  } else if constexpr (std::is_same_v<Output, std::map<std::string, at::Tensor>>) {
    return {output.at("left"), output.at("right")};
  } else if constexpr (std::is_same_v<Output, std::vector<at::Tensor>>) {
    return {output[0], output[1]};
  } else {
    return {*std::get<0>(output), std::get<1>(output)};
  }
}

template <typename Output>
class OutputTest : public ::testing::Test {};
using Outputs = ::testing::Types<Pair, std::map<std::string, at::Tensor>, std::vector<at::Tensor>,
                                 std::tuple<std::optional<at::Tensor>, at::Tensor>>;
TYPED_TEST_SUITE(OutputTest, Outputs);

// Only the main rank uses `right`, so its gradient is the main rank's divided by the number of ranks.
TYPED_TEST(OutputTest, ABranchThatOneRankUsesIsAveragedAndNoRankWaits) {
  torch::manual_seed(1);
  auto net = std::make_shared<BranchesImpl<TypeParam>>();
  auto ddp =
      DistributedDataParallel<BranchesImpl<TypeParam>>::Create(&SharedGroup(), net, {.find_unused_parameters = true});
  ASSERT_THAT(ddp, IsOk());
  for (int step = 0; step < 3; ++step) {
    net->zero_grad();
    auto output = (*ddp)->Forward(at::ones({1, 3}), at::ones({1, 3}));
    ASSERT_THAT(output, IsOk());
    const auto [left, right] = Both(*output);
    ASSERT_THAT((*ddp)->Backward(SharedGroup().is_main() ? left.sum() + right.sum() : left.sum()), IsOk());
    EXPECT_TRUE(at::allclose(net->left->bias.grad(), at::ones({2})));
    EXPECT_TRUE(at::allclose(net->right->bias.grad(), at::full({2}, 1.0 / WorldSize())));
  }
}

TYPED_TEST(OutputTest, ABranchThatNoRankUsesKeepsTheGradientThatItHad) {
  torch::manual_seed(1);
  auto net = std::make_shared<BranchesImpl<TypeParam>>();
  auto ddp =
      DistributedDataParallel<BranchesImpl<TypeParam>>::Create(&SharedGroup(), net, {.find_unused_parameters = true});
  ASSERT_THAT(ddp, IsOk());
  auto output = (*ddp)->Forward(at::ones({1, 3}), at::ones({1, 3}));
  ASSERT_THAT(output, IsOk());
  ASSERT_THAT((*ddp)->Backward(Both(*output).first.sum()), IsOk());
  EXPECT_TRUE(net->left->bias.grad().defined());
  EXPECT_FALSE(net->right->bias.grad().defined());
}

struct WithOwnParameterImpl : torch::nn::Module {
  WithOwnParameterImpl() {
    weight = register_parameter("weight", at::ones({2}));
    scale = register_parameter("scale", at::ones({2}));
  }
  std::tuple<at::Tensor, at::Tensor> forward(const at::Tensor& x) { return {(x * weight).sum(), scale}; }
  at::Tensor weight, scale;
};

TEST(DistributedDataParallelTest, ForwardMayReturnAParameter) {
  using Options = DistributedDataParallelOptions;
  for (const Options& options :
       {Options{}, Options{.find_unused_parameters = true}, Options{.static_graph = true},
        Options{.gradient_as_bucket_view = true}, Options{.bucket_bytes = 1, .find_unused_parameters = true}}) {
    auto net = std::make_shared<WithOwnParameterImpl>();
    auto ddp = DistributedDataParallel<WithOwnParameterImpl>::Create(&SharedGroup(), net, options);
    ASSERT_THAT(ddp, IsOk());
    for (int step = 0; step < 3; ++step) {
      net->zero_grad();
      auto output = (*ddp)->Forward(at::ones({2}));
      ASSERT_THAT(output, IsOk());
      const auto& [sum, scale] = *output;
      ASSERT_THAT((*ddp)->Backward(sum + (Rank() + 1) * scale.sum()), IsOk());
      EXPECT_TRUE(at::allclose(net->weight.grad(), at::ones({2})));
      EXPECT_TRUE(at::allclose(net->scale.grad(), at::full({2}, (WorldSize() + 1) / 2.0))) << net->scale.grad();
    }
  }
}

TEST(DistributedDataParallelTest, AReturnedParameterMayBeAllThatTheLossIsOfOrHaveNoPartInIt) {
  for (const bool only_scale : {true, false}) {
    auto net = std::make_shared<WithOwnParameterImpl>();
    auto ddp =
        DistributedDataParallel<WithOwnParameterImpl>::Create(&SharedGroup(), net, {.find_unused_parameters = true});
    ASSERT_THAT(ddp, IsOk());
    for (int step = 0; step < 2; ++step) {
      auto output = (*ddp)->Forward(at::ones({2}));
      ASSERT_THAT(output, IsOk());
      ASSERT_THAT((*ddp)->Backward(only_scale ? std::get<1>(*output).sum() : std::get<0>(*output)), IsOk());
      EXPECT_EQ(net->scale.grad().defined(), only_scale);
      EXPECT_EQ(net->weight.grad().defined(), !only_scale);
    }
  }
}

TEST(DistributedDataParallelTest, WithoutGradientsAReturnedParameterIsItself) {
  auto net = std::make_shared<WithOwnParameterImpl>();
  auto ddp =
      DistributedDataParallel<WithOwnParameterImpl>::Create(&SharedGroup(), net, {.find_unused_parameters = true});
  ASSERT_THAT(ddp, IsOk());
  const at::NoGradGuard no_grad;
  auto output = (*ddp)->Forward(at::ones({2}));
  ASSERT_THAT(output, IsOk());
  EXPECT_TRUE(std::get<1>(*output).is_same(net->scale));
}

TEST(DistributedDataParallelTest, TakesASequentialAndAnAnyModule) {
  torch::nn::Sequential sequential(torch::nn::Linear(6, 3), torch::nn::ReLU(), torch::nn::Linear(3, 1));
  auto ddp = DistributedDataParallel<torch::nn::SequentialImpl>::Create(&SharedGroup(), sequential.ptr());
  ASSERT_THAT(ddp, IsOk());
  auto output = (*ddp)->Forward(BatchOf(Rank(), 0).first);
  ASSERT_THAT(output, IsOk());
  EXPECT_THAT((*ddp)->Backward(output->sum()), IsOk());

  auto any = std::make_shared<torch::nn::AnyModule>(torch::nn::Linear(6, 1));
  auto any_ddp = DistributedDataParallel<torch::nn::AnyModule>::Create(&SharedGroup(), any);
  ASSERT_THAT(any_ddp, IsOk());
  auto any_output = (*any_ddp)->Forward(BatchOf(Rank(), 0).first);
  ASSERT_THAT(any_output, IsOk());
  EXPECT_THAT((*any_ddp)->Backward(any_output->sum()), IsOk());
}

struct TiedImpl : torch::nn::Module {
  TiedImpl() {
    weight = register_parameter("weight", at::ones({3}));
    frozen = register_parameter("frozen", at::ones({3}), /*requires_grad=*/false);
    alias = register_parameter("alias", weight);
  }
  at::Tensor forward(const at::Tensor& x) { return (x * weight * alias * frozen).sum(); }
  at::Tensor weight, frozen, alias;
};

TEST(DistributedDataParallelTest, AParameterWithTwoNamesIsAveragedOnceAndAFrozenOneNotAtAll) {
  auto net = std::make_shared<TiedImpl>();
  auto ddp = DistributedDataParallel<TiedImpl>::Create(&SharedGroup(), net);
  ASSERT_THAT(ddp, IsOk());
  auto output = (*ddp)->Forward(at::full({3}, Rank() + 1.0));
  ASSERT_THAT(output, IsOk());
  ASSERT_THAT((*ddp)->Backward(*output), IsOk());
  EXPECT_TRUE(at::allclose(net->weight.grad(), at::full({3}, WorldSize() + 1.0)));  // 2 x the mean of 1 ... n
  EXPECT_FALSE(net->frozen.grad().defined());
}

struct LookupImpl : torch::nn::Module {
  LookupImpl() {
    table = register_module("table", torch::nn::Embedding(torch::nn::EmbeddingOptions(10, 2).sparse(true)));
  }
  at::Tensor forward(const at::Tensor& rows) { return table(rows); }
  torch::nn::Embedding table{nullptr};
};

TEST(DistributedDataParallelTest, SparseGradientsAreAveragedAsSparseTensors) {
  auto net = std::make_shared<LookupImpl>();
  auto ddp = DistributedDataParallel<LookupImpl>::Create(&SharedGroup(), net);
  ASSERT_THAT(ddp, IsOk());
  auto output = (*ddp)->Forward(at::full({1}, Rank(), at::kLong));
  ASSERT_THAT(output, IsOk());
  ASSERT_THAT((*ddp)->Backward(output->sum()), IsOk());
  const at::Tensor gradient = net->table->weight.grad();
  ASSERT_TRUE(gradient.is_sparse());
  at::Tensor expected = at::zeros({10, 2});
  expected.narrow(0, 0, WorldSize()).fill_(1.0 / WorldSize());
  EXPECT_TRUE(at::allclose(gradient.to_dense(), expected)) << gradient.to_dense();
}

// ---- Uneven numbers of batches ----

TEST(DistributedDataParallelTest, RanksWithUnequalNumbersOfBatchesStopTogether) {
  const int batches = Rank() % 2 == 0 ? 5 : 3;
  Net net = MakeNet(1);
  auto ddp = DistributedDataParallel<NetImpl>::Create(&SharedGroup(), net.ptr(), {.broadcast_buffers = false});
  ASSERT_THAT(ddp, IsOk());
  torch::optim::SGD optimizer(net->parameters(), 0.1);
  int steps = 0;
  while (true) {
    const absl::StatusOr<bool> go_on = (*ddp)->EveryRankHasBatch(steps < batches);
    ASSERT_THAT(go_on, IsOk());
    if (!*go_on) break;
    const auto [x, y] = BatchOf(Rank(), steps++);
    optimizer.zero_grad();
    auto output = (*ddp)->Forward(x);
    ASSERT_THAT(output, IsOk());
    ASSERT_THAT((*ddp)->Backward(LossOf(*output, y)), IsOk());
    optimizer.step();
  }
  EXPECT_EQ(steps, WorldSize() == 1 ? 5 : 3);
  EXPECT_TRUE(IsSameEverywhere(net->second->weight.detach()));
}

// ---- Refused before anything is touched; the group stays usable ----

TEST(DistributedDataParallelTest, AnotherShapeOnOneRankIsTheErrorOfAllAndNamesTheParameter) {
  if (WorldSize() == 1) return;  // nobody to differ from
  const int odd = WorldSize() - 1;
  torch::nn::Sequential net(torch::nn::Linear(6, Rank() == odd ? 5 : 4));
  EXPECT_THAT(DistributedDataParallel<torch::nn::SequentialImpl>::Create(&SharedGroup(), net.ptr()),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       absl::StrCat("rank ", odd,
                                    ": this rank has parameter 0.weight Float[5, 6] where the main rank has "
                                    "parameter 0.weight Float[4, 6]")));
}

TEST(DistributedDataParallelTest, EveryOtherDifferenceIsNamedToo) {
  if (WorldSize() == 1) return;
  const bool is_odd = Rank() == WorldSize() - 1;
  const auto error_of = [](const torch::nn::Sequential& net, const DistributedDataParallelOptions& options = {}) {
    return DistributedDataParallel<torch::nn::SequentialImpl>::Create(&SharedGroup(), net.ptr(), options).status();
  };
  torch::nn::Sequential more(torch::nn::Linear(2, 1));
  if (is_odd) more->push_back("extra", torch::nn::Linear(1, 1));
  EXPECT_THAT(error_of(more),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("parameter extra.weight Float[1, 1] where the main rank has no more")));
  torch::nn::Sequential type(torch::nn::Linear(2, 1));
  if (is_odd) type->to(at::kDouble);
  EXPECT_THAT(error_of(type), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("0.weight Double[1, 2]")));
  torch::nn::Sequential frozen(torch::nn::Linear(2, 1));
  frozen[0]->as<torch::nn::Linear>()->bias.set_requires_grad(!is_odd);
  EXPECT_THAT(error_of(frozen),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("0.bias Float[1] without gradient")));
  torch::nn::Sequential buffer(torch::nn::BatchNorm1d(torch::nn::BatchNorm1dOptions(2).track_running_stats(!is_odd)));
  EXPECT_THAT(error_of(buffer), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("has no more where")));
  torch::nn::Sequential same(torch::nn::Linear(2, 1));
  EXPECT_THAT(error_of(same), IsOk());
}

TEST(DistributedDataParallelTest, TheOptionThatDiffersIsNamedWithBothValues) {
  if (WorldSize() == 1) return;
  const int odd = WorldSize() - 1;
  using Options = DistributedDataParallelOptions;
  for (const auto& [other, difference] :
       {std::pair(Options{.bucket_bytes = 5}, "bucket_bytes=5 where the main rank has bucket_bytes=26214400"),
        std::pair(Options{.first_bucket_bytes = 5},
                  "first_bucket_bytes=5 where the main rank has first_bucket_bytes=1048576"),
        std::pair(Options{.rebuild_buckets = false},
                  "rebuild_buckets=false where the main rank has rebuild_buckets=true"),
        std::pair(Options{.broadcast_buffers = false},
                  "broadcast_buffers=false where the main rank has broadcast_buffers=true"),
        std::pair(Options{.find_unused_parameters = true},
                  "find_unused_parameters=true where the main rank has find_unused_parameters=false"),
        std::pair(Options{.gradient_as_bucket_view = true},
                  "gradient_as_bucket_view=true where the main rank has gradient_as_bucket_view=false"),
        std::pair(Options{.static_graph = true}, "static_graph=true where the main rank has static_graph=false"),
        std::pair(Options{.compression = GradientCompression::kHalf},
                  "compression=kHalf where the main rank has compression=kNone")}) {
    torch::nn::Linear net(2, 1);
    EXPECT_THAT(
        DistributedDataParallel<torch::nn::LinearImpl>::Create(&SharedGroup(), net.ptr(),
                                                               Rank() == odd ? other : Options{}),
        StatusIs(absl::StatusCode::kInvalidArgument, absl::StrCat("rank ", odd, ": this rank has ", difference)));
  }
}

TEST(DistributedDataParallelTest, OneRanksErrorIsTheErrorOfAll) {
  const int odd = WorldSize() - 1;
  torch::nn::Sequential net(torch::nn::Linear(2, 1));
  EXPECT_THAT(
      DistributedDataParallel<torch::nn::SequentialImpl>::Create(&SharedGroup(), net.ptr(),
                                                                 {.bucket_bytes = Rank() == odd ? 0 : 1}),
      StatusIs(absl::StatusCode::kInvalidArgument, absl::StrCat("rank ", odd, ": bucket_bytes=0: must be at least 1")));
}

TEST(DistributedDataParallelTest, ACompressionThatDoesNotExistIsRefused) {
  for (const int number : {-1, 3, 7}) {
    torch::nn::Linear net(2, 1);
    EXPECT_THAT(DistributedDataParallel<torch::nn::LinearImpl>::Create(
                    &SharedGroup(), net.ptr(), {.compression = static_cast<GradientCompression>(number)}),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         StartsWith(absl::StrCat("rank 0: compression=", number,
                                                 ": must be kNone (0), kHalf (1) or kBFloat16 (2)"))));
  }
}

TEST(DistributedDataParallelTest, AModuleWithoutGradientsIsRefused) {
  torch::nn::Sequential relu((torch::nn::ReLU()));
  EXPECT_THAT(
      DistributedDataParallel<torch::nn::SequentialImpl>::Create(&SharedGroup(), relu.ptr()),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("has 0 parameters, and none that needs a gradient")));
  torch::nn::Linear frozen(2, 1);
  for (at::Tensor& parameter : frozen->parameters()) parameter.set_requires_grad(false);
  EXPECT_THAT(DistributedDataParallel<torch::nn::LinearImpl>::Create(&SharedGroup(), frozen.ptr()),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("has 2 parameters, and none")));
}

TEST(DistributedDataParallelTest, AModuleCanBeWrappedOnceAtATime) {
  torch::nn::Linear net(2, 1);
  {
    auto ddp = DistributedDataParallel<torch::nn::LinearImpl>::Create(&SharedGroup(), net.ptr());
    ASSERT_THAT(ddp, IsOk());
    torch::nn::Sequential around(net);
    EXPECT_THAT(DistributedDataParallel<torch::nn::SequentialImpl>::Create(&SharedGroup(), around.ptr()),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr("parameter 0.weight is in a DistributedDataParallel already")));
  }
  EXPECT_THAT(DistributedDataParallel<torch::nn::LinearImpl>::Create(&SharedGroup(), net.ptr()), IsOk());
}

TEST(DistributedDataParallelTest, AGroupThatCarriesNoTensorsIsRefused) {
  if (!SharedGroup().is_main()) return;
  testing::ThreadGroup threads({.world_size = 2});
  EXPECT_THAT(threads.Run([](ProcessGroup& group) {
    torch::nn::Linear net(2, 1);
    return DistributedDataParallel<torch::nn::LinearImpl>::Create(&group, net.ptr()).status();
  }),
              Each(StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("in-process"))));
}

}  // namespace
}  // namespace cohort
