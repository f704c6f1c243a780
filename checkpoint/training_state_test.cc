#include "cohort/checkpoint/training_state.h"

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ATen/ATen.h"
#include "absl/base/log_severity.h"
#include "absl/log/absl_check.h"
#include "absl/log/scoped_mock_log.h"
#include "absl/status/status.h"
#include "absl/status/status_matchers.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "cohort/checkpoint/internal/string_file.h"
#include "cohort/checkpoint/main_only_saver.h"
#include "cohort/checkpoint/state_file.h"
#include "cohort/checkpoint/testing/files.h"
#include "cohort/checkpoint/torch_file.h"
#include "cohort/runtime/process_group.h"
#include "cohort/runtime/testing/thread_group.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "torch/nn/module.h"
#include "torch/optim/adam.h"

namespace cohort {
namespace {

using ::absl_testing::IsOk;
using ::absl_testing::StatusIs;
using ::c10::IValue;
using ::cohort::testing::FreshDirectory;
using ::cohort::testing::ThreadGroup;
using ::cohort::testing::WriteFile;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

struct Model : torch::nn::Module {
  explicit Model(double value, int64_t size = 3) { weight = register_parameter("weight", at::full({size}, value)); }
  at::Tensor weight;
};

// A model with the optimizer that trains it.
struct Training {
  explicit Training(double value, int64_t size = 3) : model(value, size), optimizer({model.weight}) {}

  // Noise, so that the random numbers matter.
  void Steps(int n) {
    for (int i = 0; i < n; ++i) {
      model.weight.mutable_grad() = model.weight.detach() + at::randn_like(model.weight);
      optimizer.step();
    }
  }

  Model model;
  torch::optim::Adam optimizer;
};

std::string Bytes(const at::Tensor& tensor) {
  return std::string(static_cast<const char*>(tensor.const_data_ptr()), tensor.nbytes());
}

std::unique_ptr<ProcessGroup> Alone() { return ProcessGroup::WorldOfOne(); }

void Save(const std::string& path, const Training& run, const TrainingState& state = {},
          StateFormat format = StateFormat::kTorch) {
  const auto group = Alone();
  MainOnlySaver saver(group.get());
  ASSERT_THAT(SaveTrainingState(*group, saver, path, run.model, run.optimizer, state, {.format = format}), IsOk());
}

class TrainingStateTest : public ::testing::Test {
 protected:
  const std::string path_ = FreshDirectory() + "/run/state.pt";
};

TEST_F(TrainingStateTest, ARunGoesOnBitForBit) {
  for (const StateFormat format : {StateFormat::kTorch, StateFormat::kSafetensors}) {
    at::manual_seed(1);
    Training straight(1);
    straight.Steps(20);

    at::manual_seed(1);
    Training first(1);
    first.Steps(10);
    Save(path_, first, {.step = 10, .epoch = 2}, format);
    at::manual_seed(99);

    Training second(5);
    second.Steps(3);
    absl::StatusOr<TrainingState> loaded;
    for (int i = 0; i < 3; ++i) loaded = LoadTrainingState(*Alone(), path_, second.model, second.optimizer);
    ASSERT_THAT(loaded, IsOk());
    EXPECT_EQ(loaded->step, 10);
    EXPECT_EQ(loaded->epoch, 2);
    EXPECT_TRUE(loaded->lr_scheduler.isNone());
    second.Steps(10);
    EXPECT_EQ(Bytes(second.model.weight), Bytes(straight.model.weight));
  }
}

TEST_F(TrainingStateTest, EveryRankGetsItsOwnPlaceInTheData) {
  EXPECT_THAT(ThreadGroup(3).Run([&](ProcessGroup& group) {
    Training run(1);
    MainOnlySaver saver(&group);
    return SaveTrainingState(group, saver, path_, run.model, run.optimizer, {.data = IValue(100 + group.rank())})
        .status();
  }),
              Each(IsOk()));
  EXPECT_THAT(ThreadGroup(3).Run([&](ProcessGroup& group) {
    Training run(2);
    const absl::StatusOr<TrainingState> loaded = LoadTrainingState(group, path_, run.model, run.optimizer);
    if (!loaded.ok()) return loaded.status();
    EXPECT_EQ(loaded->data.toInt(), 100 + group.rank());
    EXPECT_TRUE(at::equal(run.model.weight, at::ones({3})));
    return absl::OkStatus();
  }),
              Each(IsOk()));
}

TEST_F(TrainingStateTest, WhatIsGatheredCanBeWrittenElsewhere) {
  Save(path_, Training(1), {.step = 7, .data = IValue("here")});
  internal::StringFile first, second;
  {
    const auto group = Alone();
    const Training run(1);
    // The state itself may go.
    const auto write =
        *GatherTrainingState(*group, "state", run.model, run.optimizer, {.step = 7, .data = IValue("here")});
    ASSERT_THAT(write(first), IsOk());
    ASSERT_THAT(write(second), IsOk());
  }
  EXPECT_TRUE(first.contents() == testing::ReadFile(path_));
  EXPECT_TRUE(second.contents() == first.contents());
}

TEST_F(TrainingStateTest, OnlyTheMainRankHasWhatIsGathered) {
  EXPECT_THAT(ThreadGroup(2).Run([&](ProcessGroup& group) {
    const Training run(1);
    const auto write = GatherTrainingState(group, "state", run.model, run.optimizer, {.data = IValue(group.rank())});
    if (!write.ok()) return write.status();
    internal::StringFile file;
    const absl::Status written = (*write)(file);
    EXPECT_EQ(file.contents().empty(), !group.is_main());
    return written;
  }),
              ElementsAre(IsOk(), StatusIs(absl::StatusCode::kFailedPrecondition)));
}

TEST_F(TrainingStateTest, WhatCannotBeGatheredIsNamed) {
  EXPECT_THAT(ThreadGroup(2).Run([&](ProcessGroup& group) {
    const Training run(1);
    const absl::Status ready = group.rank() == 1 ? absl::InternalError("no gradients") : absl::OkStatus();
    return GatherTrainingState(group, "state", run.model, run.optimizer, {}, {}, ready).status();
  }),
              Each(StatusIs(absl::StatusCode::kInternal, HasSubstr("rank 1: no gradients"))));
}

TEST_F(TrainingStateTest, OneRankThatDoesNotAcceptTheStateIsEnough) {
  EXPECT_THAT(ThreadGroup(2).Run([&](ProcessGroup& group) {
    Training run(1);
    MainOnlySaver saver(&group);
    return SaveTrainingState(group, saver, path_, run.model, run.optimizer, {.step = 7, .data = IValue(group.rank())})
        .status();
  }),
              Each(IsOk()));
  EXPECT_THAT(ThreadGroup(2).Run([&](ProcessGroup& group) {
    Training run(2);
    TrainingStateOptions options;
    options.accept = [](const TrainingState& state) {
      return state.data.toInt() == 0 ? absl::OkStatus()
                                     : absl::FailedPreconditionError(absl::StrCat("not step ", state.step));
    };
    const absl::Status status = LoadTrainingState(group, path_, run.model, run.optimizer, options).status();
    EXPECT_TRUE(at::equal(run.model.weight, at::full({3}, 2.0)));
    return status;
  }),
              Each(StatusIs(absl::StatusCode::kFailedPrecondition,
                            AllOf(HasSubstr("rank 1: "), HasSubstr(path_), HasSubstr("not step 7")))));
}

TEST_F(TrainingStateTest, AnotherNumberOfRanksIsRefused) {
  Save(path_, Training(1));
  EXPECT_THAT(ThreadGroup(2).Run([&](ProcessGroup& group) {
    Training run(2);
    return LoadTrainingState(group, path_, run.model, run.optimizer).status();
  }),
              Each(StatusIs(kInvalid, HasSubstr("has entries of 1 ranks, and this job has 2"))));
}

TEST_F(TrainingStateTest, AnotherNumberOfRanksIsTakenIfAllRanksAllowIt) {
  Save(path_, Training(1), {.step = 7, .data = IValue(100)});
  const auto loading = [&](int how_many_allow) {
    return ThreadGroup(3).Run([&](ProcessGroup& group) {
      Training run(2);
      TrainingStateOptions options;
      options.allow_other_world_size = group.rank() < how_many_allow;
      const absl::StatusOr<TrainingState> loaded = LoadTrainingState(group, path_, run.model, run.optimizer, options);
      EXPECT_TRUE(at::equal(run.model.weight, at::full({3}, loaded.ok() ? 1.0 : 2.0)));
      EXPECT_TRUE(!loaded.ok() || loaded->data.toInt() == 100);
      return loaded.status();
    });
  };
  EXPECT_THAT(loading(3), Each(IsOk()));
  EXPECT_THAT(loading(2), Each(StatusIs(kInvalid, HasSubstr("rank 2: "))));
}

TEST_F(TrainingStateTest, WithoutATakerTheWarningIsLogged) {
  Save(path_, Training(1));
  absl::ScopedMockLog log(absl::MockLogDefault::kIgnoreUnexpected);
  EXPECT_CALL(log, Log(absl::LogSeverity::kWarning, ::testing::_, HasSubstr("saved by 1 rank, and 2 ranks go on")));
  log.StartCapturingLogs();
  EXPECT_THAT(ThreadGroup(2).Run([&](ProcessGroup& group) {
    Training run(2);
    return LoadTrainingState(group, path_, run.model, run.optimizer, {.allow_other_world_size = true}).status();
  }),
              Each(IsOk()));
}

TEST_F(TrainingStateTest, IfOneRankCannotLoadNoneIsChanged) {
  EXPECT_THAT(ThreadGroup(2).Run([&](ProcessGroup& group) {
    Training run(1);
    MainOnlySaver saver(&group);
    return SaveTrainingState(group, saver, path_, run.model, run.optimizer, {}).status();
  }),
              Each(IsOk()));
  EXPECT_THAT(ThreadGroup(2).Run([&](ProcessGroup& group) {
    Training run(2, group.rank() == 1 ? 4 : 3);
    run.Steps(2);
    const std::string weight = Bytes(run.model.weight);
    const IValue optimizer = *OptimizerState(run.optimizer);
    const absl::Status refused = LoadTrainingState(group, path_, run.model, run.optimizer).status();
    EXPECT_EQ(Bytes(run.model.weight), weight);
    const auto moment = [](const IValue& state) {
      return Bytes(state.toGenericDict().at("state").toGenericDict().at(0).toGenericDict().at("exp_avg").toTensor());
    };
    EXPECT_EQ(moment(*OptimizerState(run.optimizer)), moment(optimizer));
    EXPECT_THAT(group.Agree("still usable", absl::OkStatus()), IsOk());
    return refused;
  }),
              Each(StatusIs(kInvalid, AllOf(HasSubstr("rank 1: "), HasSubstr(path_), HasSubstr("\"weight\"")))));
}

TEST_F(TrainingStateTest, ARankThatIsNotReadyLeavesTheFileAsItWas) {
  Save(path_, Training(1));
  const std::string before = testing::ReadFile(path_);
  EXPECT_THAT(ThreadGroup(2).Run([&](ProcessGroup& group) {
    Training run(2);
    MainOnlySaver saver(&group);
    const absl::Status ready = group.rank() == 1 ? absl::InternalError("no gradients") : absl::OkStatus();
    return SaveTrainingState(group, saver, path_, run.model, run.optimizer, {}, {}, ready).status();
  }),
              Each(StatusIs(absl::StatusCode::kInternal, HasSubstr("rank 1: no gradients"))));
  EXPECT_EQ(testing::ReadFile(path_), before);
}

// A bundle with one key replaced (or, with an undefined value, taken away).
void WriteChanged(const std::string& path, const std::string& from, const char* key, const IValue* value) {
  absl::StatusOr<StateFile> file = StateFile::Open(from);
  ABSL_CHECK_OK(file);
  auto dict = file->Read()->toGenericDict();
  ABSL_CHECK_EQ(dict.erase(key), 1u);
  if (value != nullptr) dict.insert(key, *value);
  internal::StringFile contents;
  ABSL_CHECK_OK(WriteTorchFile(IValue(dict), contents));
  WriteFile(path, contents.contents());
}

TEST_F(TrainingStateTest, SaysWhatIsWrongWithABundle) {
  const std::string good = path_ + ".good";
  Save(good, Training(1));
  const auto loading = [&](const char* key, const IValue* value) {
    WriteChanged(path_, good, key, value);
    Training run(2);
    const absl::Status status = LoadTrainingState(*Alone(), path_, run.model, run.optimizer).status();
    EXPECT_TRUE(status.ok() || at::equal(run.model.weight, at::full({3}, 2.0))) << key;
    return status;
  };
  for (const char* key : {"model", "optimizer", "step", "epoch", "rng", "data"}) {
    EXPECT_THAT(loading(key, nullptr), StatusIs(absl::StatusCode::kNotFound,
                                                AllOf(HasSubstr(path_), HasSubstr(absl::StrCat("no key \"", key)))));
  }
  EXPECT_THAT(loading("version", nullptr), IsOk());
  EXPECT_THAT(loading("lr_scheduler", nullptr), IsOk());
  const IValue two = 2, minus = -1, text = "x";
  EXPECT_THAT(loading("version", &two), StatusIs(kInvalid, HasSubstr("its version is 2; this cohort reads version 1")));
  EXPECT_THAT(loading("step", &minus),
              StatusIs(kInvalid, HasSubstr("\"step\" is -1; it must be an int of at least 0")));
  EXPECT_THAT(loading("epoch", &text), StatusIs(kInvalid, HasSubstr("\"epoch\" is a str")));
  EXPECT_THAT(loading("rng", &text), StatusIs(kInvalid, HasSubstr("\"rng\" is a str; it must be a list")));
  c10::impl::GenericList none(c10::AnyType::get()), three(c10::AnyType::get());
  for (int i = 0; i < 3; ++i) three.push_back(i);
  const IValue empty = none, of_three = three;
  EXPECT_THAT(loading("data", &empty), StatusIs(kInvalid, HasSubstr("\"data\" is empty; it must be a list with")));
  EXPECT_THAT(loading("data", &of_three),
              StatusIs(kInvalid, HasSubstr("\"data\" has entries of 3 ranks, and \"rng\" of 1")));
  EXPECT_THAT(loading("model", &text), StatusIs(kInvalid, HasSubstr("missing: \"weight\"")));
  EXPECT_THAT(loading("optimizer", &text), StatusIs(kInvalid, HasSubstr(path_)));
  Training run(1);
  EXPECT_THAT(LoadTrainingState(*Alone(), path_ + ".none", run.model, run.optimizer),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr(".none")));
}

}  // namespace
}  // namespace cohort
