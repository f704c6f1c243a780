// What poisons the group: each TEST has one of its own. Every survivor gets the same error, and nobody waits for the
// deadline, which is longer than a TEST may take.

#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/log/absl_check.h"
#include "absl/status/status.h"
#include "absl/status/status_matchers.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "cohort/runtime/distributed_data_parallel.h"
#include "cohort/runtime/init_process_group.h"
#include "cohort/runtime/process_group.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "torch/torch.h"

namespace cohort {
namespace {

using absl_testing::IsOk;
using absl_testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

class FailureTest : public ::testing::Test {
 protected:
  FailureTest() {
    auto connected =
        InitProcessGroup({.backend = "gloo", .init_timeout = absl::Seconds(60), .timeout = absl::Minutes(10)});
    ABSL_CHECK_OK(connected.status());
    group_ = *std::move(connected);
  }

  bool IsOdd() const { return group_->rank() == group_->world_size() - 1; }
  std::string OddRank() const { return absl::StrCat("rank ", group_->world_size() - 1, ": "); }

  std::unique_ptr<ProcessGroup> group_;
};

// Throws if the input is negative; `second` has its part only if the input is not zero.
struct NetImpl : torch::nn::Module {
  NetImpl() {
    first = register_module("first", torch::nn::Linear(2, 1));
    second = register_module("second", torch::nn::Linear(2, 1));
  }
  at::Tensor forward(const at::Tensor& x) {
    const double sum = x.sum().item<double>();
    TORCH_CHECK_VALUE(sum >= 0, "negative input");
    const at::Tensor one = first(x);
    return sum == 0 ? one : one + second(x);
  }
  torch::nn::Linear first{nullptr}, second{nullptr};
};

using Ddp = DistributedDataParallel<NetImpl>;

absl::Status Step(Ddp& ddp, double input) {
  auto output = ddp.Forward(at::full({1, 2}, input));
  return output.ok() ? ddp.Backward(output->sum()) : output.status();
}

// Wraps a model and calls `body`. Where another rank fails early, already wrapping it may fail with that error.
absl::Status With(ProcessGroup& group, absl::FunctionRef<absl::Status(Ddp& ddp)> body,
                  const DistributedDataParallelOptions& options = {}) {
  auto ddp = Ddp::Create(&group, std::make_shared<NetImpl>(), options);
  return ddp.ok() ? body(**ddp) : ddp.status();
}

// A step with each of `inputs`, until one fails.
absl::Status Steps(ProcessGroup& group, const std::vector<double>& inputs,
                   const DistributedDataParallelOptions& options = {}) {
  return With(
      group,
      [&](Ddp& ddp) {
        absl::Status status;
        for (const double input : inputs) {
          if (status.ok()) status = Step(ddp, input);
        }
        return status;
      },
      options);
}

TEST_F(FailureTest, WhatForwardThrowsOnOneRankIsTheErrorOfAllAtOnce) {
  EXPECT_THAT(Steps(*group_, {1, IsOdd() ? -1.0 : 1.0, 1}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr(absl::StrCat(OddRank(), "DistributedDataParallel::Forward: negative input"))));
  if (group_->world_size() > 1) {
    EXPECT_THAT(group_->Barrier(), StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("negative input")));
  }
}

TEST_F(FailureTest, WhatBackwardThrowsOnOneRankIsTheErrorOfAllAtOnce) {
  const absl::Status status = With(*group_, [&](Ddp& ddp) {
    auto output = ddp.Forward(at::ones({1, 2}));
    if (!output.ok()) return output.status();
    if (IsOdd()) {
      output->register_hook([](const at::Tensor& gradient) {
        TORCH_CHECK_VALUE(false, "not this one");
        return gradient;
      });
    }
    return ddp.Backward(output->sum());
  });
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kInvalidArgument,
                               HasSubstr(absl::StrCat(OddRank(), "DistributedDataParallel::Backward: not this one"))));
}

TEST_F(FailureTest, ARankThatUsesFewerParametersNamesThemToAllAtOnce) {
  if (group_->world_size() == 1) return;  // nobody would wait
  EXPECT_THAT(
      Steps(*group_, {1, IsOdd() ? 0.0 : 1.0}),
      StatusIs(absl::StatusCode::kInvalidArgument,
               AllOf(HasSubstr(OddRank()), HasSubstr("2 of 4 parameters got no gradient: second.weight, second.bias"),
                     HasSubstr("find_unused_parameters"))));
}

TEST_F(FailureTest, AStaticGraphThatBeginsWithALossOfSomethingElseIsAnError) {
  if (group_->world_size() == 1) return;
  const absl::Status status = With(*group_,
                                   [](Ddp& ddp) {
                                     if (absl::Status forward = ddp.Forward(at::ones({1, 2})).status(); !forward.ok())
                                       return forward;
                                     return ddp.Backward(ddp.module()->forward(at::ones({1, 2})).sum());
                                   },
                                   {.static_graph = true});
  EXPECT_THAT(status,
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("DistributedDataParallel::Backward: with static_graph the loss of the first Backward "
                                 "that averages must depend on what its Forward returned")));
}

TEST_F(FailureTest, AStaticGraphThatDoesNotStayNamesWhatIsMissing) {
  if (group_->world_size() == 1) return;
  EXPECT_THAT(Steps(*group_, {1, 1, IsOdd() ? 0.0 : 1.0}, {.static_graph = true}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr(OddRank()), HasSubstr("with static_graph every step must use the parameters "
                                                             "that the first one used, and as often; now 2 of 4 "
                                                             "parameters got no gradient: second.weight"))));
}

TEST_F(FailureTest, FindUnusedParametersAllowsThat) {
  EXPECT_THAT(Steps(*group_, {1, IsOdd() ? 0.0 : 1.0, 1, 1}, {.find_unused_parameters = true}), IsOk());
  EXPECT_THAT(group_->Shutdown(), IsOk());
}

struct BadLoss {
  std::string name;
  at::Tensor (*make)(const at::Tensor& output);
  std::string fault;
};

class LossTest : public FailureTest, public ::testing::WithParamInterface<std::tuple<BadLoss, bool>> {};

TEST_P(LossTest, ALossThatHasNoBackwardIsTheErrorOfAllAtOnce) {
  const auto& [bad, is_local] = GetParam();
  const absl::Status status = With(*group_, [&](Ddp& ddp) {
    const auto no_sync = ddp.NoSync(is_local);
    auto output = ddp.Forward(at::ones({2, 2}));
    if (!output.ok()) return output.status();
    const absl::Status backward = ddp.Backward(IsOdd() ? bad.make(*output) : output->sum());
    return backward.ok() ? group_->Barrier() : backward;
  });
  EXPECT_THAT(status,
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr(absl::StrCat(group_->world_size() > 1 ? OddRank() : "",
                                              "DistributedDataParallel::Backward: the loss ", bad.fault,
                                              "; it must be one real number, for example a mean(), that depends on "
                                              "parameters"))));
}

INSTANTIATE_TEST_SUITE_P(
    FailureTest, LossTest,
    ::testing::Combine(
        ::testing::Values(
            BadLoss{"Undefined", [](const at::Tensor&) { return at::Tensor(); }, "is undefined"},
            BadLoss{"Several", [](const at::Tensor& output) { return output; }, "has sizes [2, 1]"},
            BadLoss{"None", [](const at::Tensor& output) { return output.slice(0, 0, 0); }, "has sizes [0, 1]"},
            BadLoss{"Detached", [](const at::Tensor& output) { return output.sum().detach(); },
                    "depends on nothing that needs a gradient"},
            BadLoss{"Complex", [](const at::Tensor& output) { return output.sum().to(at::kComplexFloat); },
                    "is of type ComplexFloat"}),
        ::testing::Bool()),
    [](const auto& info) {
      return absl::StrCat(std::get<0>(info.param).name, std::get<1>(info.param) ? "Locally" : "");
    });

TEST_F(FailureTest, ARankThatForgetsBackwardIsFoundAtItsNextForward) {
  const absl::Status status = With(*group_, [&](Ddp& ddp) {
    if (!IsOdd()) return Step(ddp, 1);
    const absl::Status first = ddp.Forward(at::ones({1, 2})).status();
    return first.ok() ? ddp.Forward(at::ones({1, 2})).status() : first;
  });
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kFailedPrecondition,
                               HasSubstr(absl::StrCat(OddRank(),
                                                      "DistributedDataParallel::Forward: the Forward before has "
                                                      "had no Backward"))));
}

// A local Forward after a synchronized one: the latter's Backward is still the next.
absl::Status LocalForward(Ddp& ddp) {
  const auto no_sync = ddp.NoSync();
  return ddp.Forward(at::ones({1, 2})).status();
}

TEST_F(FailureTest, AForgottenBackwardIsFoundBehindALocalForward) {
  const absl::Status status = With(*group_, [&](Ddp& ddp) {
    if (!IsOdd()) return Step(ddp, 1);
    absl::Status status = ddp.Forward(at::ones({1, 2})).status();
    if (status.ok()) status = LocalForward(ddp);
    return status.ok() ? ddp.Forward(at::ones({1, 2})).status() : status;
  });
  EXPECT_THAT(status,
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr(absl::StrCat(OddRank(), "DistributedDataParallel::Forward: the Forward before"))));
}

TEST_F(FailureTest, ParametersWithoutGradientAreNamedBehindALocalForward) {
  if (group_->world_size() == 1) return;  // nobody would wait
  const absl::Status status = With(*group_, [&](Ddp& ddp) {
    auto output = ddp.Forward(at::full({1, 2}, IsOdd() ? 0.0 : 1.0));
    if (!output.ok()) return output.status();
    if (absl::Status local = LocalForward(ddp); !local.ok()) return local;
    return ddp.Backward(output->sum());
  });
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kInvalidArgument,
                               AllOf(HasSubstr(OddRank()), HasSubstr("got no gradient: second.weight, second.bias"))));
}

TEST_F(FailureTest, AfterTheAveragedBackwardOfALocalAndASynchronizedForwardThereIsNoOther) {
  const absl::Status status = With(*group_, [&](Ddp& ddp) {
    if (absl::Status local = LocalForward(ddp); !local.ok()) return local;
    if (absl::Status step = Step(ddp, 1); !step.ok()) return step;
    return ddp.Backward(ddp.module()->forward(at::ones({1, 2})).sum());
  });
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("no Forward, with gradients, since")));
}

TEST_F(FailureTest, BackwardTwiceIsAnError) {
  const absl::Status status = With(*group_, [&](Ddp& ddp) {
    auto output = ddp.Forward(at::ones({1, 2}));
    if (!output.ok()) return output.status();
    const at::Tensor loss = output->sum();
    const absl::Status first = ddp.Backward(loss);
    return first.ok() ? ddp.Backward(loss) : first;
  });
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("no Forward, with gradients, since")));
}

TEST_F(FailureTest, AChangedParameterIsNamedAtTheNextForward) {
  const absl::Status status = With(*group_, [&](Ddp& ddp) {
    if (absl::Status first = Step(ddp, 1); !first.ok()) return first;
    ddp.module()->second->bias.set_requires_grad(false);
    return Step(ddp, 1);
  });
  EXPECT_THAT(status,
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("second.bias no longer needs a gradient")));
}

TEST_F(FailureTest, AnAddedParameterIsFoundAtTheNextForward) {
  const absl::Status status = With(*group_, [&](Ddp& ddp) {
    ddp.module()->register_module("third", torch::nn::Linear(1, 1));
    return Step(ddp, 1);
  });
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("(2 more)")));
}

TEST_F(FailureTest, AParameterThatWasReplacedIsNamedAtTheNextForward) {
  const absl::Status status = With(*group_, [&](Ddp& ddp) {
    ddp.module()->replace_module("second", torch::nn::Linear(2, 1));
    return Step(ddp, 1);
  });
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kFailedPrecondition,
                               HasSubstr("the module's parameters are not those it was wrapped with (second.weight is "
                                         "another tensor): make another DistributedDataParallel")));
}

TEST_F(FailureTest, AParameterThatWasTakenAwayIsNamedAtTheNextForward) {
  const absl::Status status = With(*group_, [&](Ddp& ddp) {
    ddp.module()->unregister_module("second");
    return Step(ddp, 1);
  });
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("(second.weight is no longer there)")));
}

TEST_F(FailureTest, AParameterThatIsChangedInPlaceIsNamedAtTheNextForward) {
  const absl::Status status = With(*group_, [&](Ddp& ddp) {
    if (absl::Status first = Step(ddp, 1); !first.ok()) return first;
    if (IsOdd()) ddp.module()->to(at::kDouble);
    return Step(ddp, 1);
  });
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("first.weight is Double[")));
}

TEST_F(FailureTest, ABufferThatIsChangedIsNamedBeforeItIsSent) {
  if (group_->world_size() == 1) return;  // nothing is sent
  const auto net = std::make_shared<NetImpl>();
  net->register_buffer("cache", at::zeros({4}));
  auto ddp = Ddp::Create(group_.get(), net);
  ASSERT_THAT(ddp, IsOk());
  ASSERT_THAT(Step(**ddp, 1), IsOk());
  if (IsOdd()) net->named_buffers()["cache"].set_data(at::zeros({1000}));
  EXPECT_THAT(Step(**ddp, 1),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr(OddRank()), HasSubstr("cache is Float[1000] on cpu, and was Float[4] on cpu"))));
}

TEST_F(FailureTest, ParametersThatAreTiedOnOneRankOnlyAreNamed) {
  if (group_->world_size() == 1) return;
  const auto net = std::make_shared<NetImpl>();
  const at::Tensor third = net->register_parameter("third", at::ones({2}));
  net->register_parameter("fourth", IsOdd() ? third : at::ones({2}));
  EXPECT_THAT(Ddp::Create(group_.get(), net),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("parameter fourth Float[2], the same as third")));
  EXPECT_THAT(group_->Barrier(), IsOk());
  EXPECT_THAT(group_->Shutdown(), IsOk());
}

// As many different tensors on every rank, of the same sizes, and different ones.
TEST_F(FailureTest, ParametersAndBuffersThatAreTiedInAnotherWayAreNamed) {
  if (group_->world_size() == 1) return;
  for (const bool are_buffers : {false, true}) {
    const auto net = std::make_shared<NetImpl>();
    const auto add = [&](const std::string& name, const at::Tensor& tensor) {
      return are_buffers ? net->register_buffer(name, tensor) : net->register_parameter(name, tensor);
    };
    const at::Tensor third = add("third", at::ones({2}));
    const at::Tensor fourth = add("fourth", IsOdd() ? at::ones({2}) : third);
    add("fifth", IsOdd() ? fourth : at::ones({2}));
    const std::string kind = are_buffers ? "buffer" : "parameter";
    const std::string gradient = are_buffers ? " without gradient" : "";
    EXPECT_THAT(
        Ddp::Create(group_.get(), net),
        StatusIs(absl::StatusCode::kInvalidArgument,
                 absl::StrCat(OddRank(), "this rank has ", kind, " fourth Float[2]", gradient,
                              " where the main rank has ", kind, " fourth Float[2]", gradient, ", the same as third")));
  }
  EXPECT_THAT(group_->Barrier(), IsOk());
  EXPECT_THAT(group_->Shutdown(), IsOk());
}

TEST_F(FailureTest, WhatCannotBeSentIsRefusedBeforeAnythingIs) {
  for (const auto& [buffer, what] :
       {std::pair(at::zeros({2}, at::kShort), "of type Short"), std::pair(at::zeros({1}).expand({3}), "expanded"),
        std::pair(at::zeros({2, 2}).to_sparse(), "a sparse tensor")}) {
    const auto net = std::make_shared<NetImpl>();
    net->register_buffer("odd", buffer);
    EXPECT_THAT(Ddp::Create(group_.get(), net),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(absl::StrCat("buffer odd is ", what))));
  }
  EXPECT_THAT(group_->Barrier(), IsOk());
  EXPECT_THAT(group_->Shutdown(), IsOk());
}

TEST_F(FailureTest, AbortReachesTheOthersInBackward) {
  const absl::Status status = With(*group_, [&](Ddp& ddp) {
    const absl::Status first = Step(ddp, 1);
    if (!first.ok()) return first;
    return IsOdd() ? group_->Abort(absl::DataLossError("row 7 is broken")) : Step(ddp, 1);
  });
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kDataLoss, absl::StrCat(OddRank(), "row 7 is broken")));
}

TEST_F(FailureTest, APoisonedGroupWrapsNothing) {
  if (group_->world_size() == 1) return;
  const absl::Status lost = IsOdd() ? group_->Abort(absl::DataLossError("lost")) : group_->Barrier();
  ASSERT_THAT(lost, StatusIs(absl::StatusCode::kDataLoss));
  EXPECT_THAT(Ddp::Create(group_.get(), std::make_shared<NetImpl>()),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("lost")));
}

TEST_F(FailureTest, AnOutputThatNobodyKnowsIsRefusedWhereItMustBeLookedInto) {
  struct Unknown {
    at::Tensor inside;
  };
  struct OpaqueImpl : torch::nn::Module {
    OpaqueImpl() { weight = register_parameter("weight", at::ones({2})); }
    Unknown forward(const at::Tensor& x) { return {.inside = x * weight}; }
    at::Tensor weight;
  };
  auto ddp = DistributedDataParallel<OpaqueImpl>::Create(group_.get(), std::make_shared<OpaqueImpl>(),
                                                         {.find_unused_parameters = group_->world_size() > 1});
  if (group_->world_size() == 1) {
    ASSERT_THAT(ddp, IsOk());
    auto output = (*ddp)->Forward(at::ones({2}));
    ASSERT_THAT(output, IsOk());
    EXPECT_THAT((*ddp)->Backward(output->inside.sum()), IsOk());
    return;
  }
  const absl::Status status = ddp.ok() ? (*ddp)->Forward(at::ones({2})).status() : ddp.status();
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("VisitTensors")));
}

}  // namespace
}  // namespace cohort
