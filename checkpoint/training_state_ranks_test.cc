// A run that two ranks have saved goes on with one, two and three: what each rank gets of its own. Ranks are processes,
// because random numbers are the process's. Every TEST body is collective.

#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "ATen/ATen.h"
#include "ATen/core/ivalue.h"
#include "absl/log/absl_check.h"
#include "absl/status/status.h"
#include "absl/status/status_matchers.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "cohort/checkpoint/internal/string_file.h"
#include "cohort/checkpoint/optimizer_state.h"
#include "cohort/checkpoint/rng_state.h"
#include "cohort/checkpoint/testing/files.h"
#include "cohort/checkpoint/torch_file.h"
#include "cohort/checkpoint/training_state.h"
#include "cohort/runtime/process_group.h"
#include "cohort/tests/harness/shared_group.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "torch/nn/module.h"
#include "torch/optim/sgd.h"

namespace cohort {
namespace {

using ::absl_testing::IsOk;
using ::absl_testing::StatusIs;
using ::c10::IValue;
using ::c10::impl::GenericDict;
using ::c10::impl::GenericList;
using ::cohort::testing::FreshDirectory;
using ::cohort::testing::SharedGroup;
using ::cohort::testing::WriteFile;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr int kSavedBy = 2;
constexpr int kWeights = 3;

struct Model : torch::nn::Module {
  Model() { weight = register_parameter("weight", at::zeros({kWeights})); }
  at::Tensor weight;
};

// What two ranks have saved, in the bytes of a file.
std::string SavedByTwo() {
  GenericDict model(c10::StringType::get(), c10::AnyType::get());
  model.insert("weight", at::full({kWeights}, 0.5));
  GenericList rng(c10::AnyType::get()), data(c10::AnyType::get());
  for (int rank = 0; rank < kSavedBy; ++rank) {
    at::manual_seed(70 + rank);
    rng.push_back(*RngState());
    data.push_back(IValue(100 + rank));
  }
  Model fresh;
  const torch::optim::SGD optimizer({fresh.weight}, 0.25);
  GenericDict bundle(c10::StringType::get(), c10::AnyType::get());
  bundle.insert("model", model);
  bundle.insert("optimizer", *OptimizerState(optimizer, {"weight"}));
  bundle.insert("lr_scheduler", IValue("a schedule"));
  bundle.insert("step", 7);
  bundle.insert("epoch", 2);
  bundle.insert("rng", rng);
  bundle.insert("data", data);
  internal::StringFile contents;
  ABSL_CHECK_OK(WriteTorchFile(IValue(bundle), contents));
  return contents.contents();
}

// Collective. The path of such a file, which the main rank has written.
std::string WriteSaved() {
  std::string path;
  if (SharedGroup().is_main()) {
    path = FreshDirectory() + "/state.pt";
    WriteFile(path, SavedByTwo());
  }
  return *SharedGroup().BroadcastBytes("the file", path);
}

std::string Draw() {
  const at::Tensor numbers = at::rand({16});
  return std::string(static_cast<const char*>(numbers.const_data_ptr()), numbers.nbytes());
}

struct Loaded {
  TrainingState state;
  std::string numbers;  // that this rank draws next
  std::vector<std::string> warnings;
};

// Collective.
Loaded Load(const std::string& path) {
  Loaded loaded;
  at::manual_seed(999);
  Model model;
  torch::optim::SGD optimizer({model.weight}, 0.75);
  TrainingStateOptions options;
  options.allow_other_world_size = true;
  options.on_warning = [&](std::string_view warning) { loaded.warnings.emplace_back(warning); };
  absl::StatusOr<TrainingState> state = LoadTrainingState(SharedGroup(), path, model, optimizer, options);
  EXPECT_THAT(state, IsOk());
  if (!state.ok()) return loaded;
  EXPECT_TRUE(at::equal(model.weight, at::full({kWeights}, 0.5)));
  EXPECT_EQ(static_cast<torch::optim::SGDOptions&>(optimizer.param_groups()[0].options()).lr(), 0.25);
  loaded.state = *std::move(state);
  loaded.numbers = Draw();
  return loaded;
}

bool IsAsSaved() { return SharedGroup().world_size() == kSavedBy; }

TEST(TrainingStateRanksTest, TheRunIsAsItWasSaved) {
  const Loaded loaded = Load(WriteSaved());
  EXPECT_EQ(loaded.state.step, 7);
  EXPECT_EQ(loaded.state.epoch, 2);
  EXPECT_EQ(loaded.state.lr_scheduler.toStringRef(), "a schedule");
  EXPECT_EQ(loaded.state.saved_world_size, kSavedBy);
}

TEST(TrainingStateRanksTest, EveryRankHasItsOwnPlaceInTheDataOrElseTheMainRanks) {
  EXPECT_EQ(Load(WriteSaved()).state.data.toInt(), 100 + (IsAsSaved() ? SharedGroup().rank() : 0));
}

TEST(TrainingStateRanksTest, EveryRankDrawsNumbersOfItsOwn) {
  const std::string path = WriteSaved();
  const Loaded loaded = Load(path);
  const std::vector<std::string> all = *SharedGroup().GatherBytes("numbers", loaded.numbers, 4096);
  if (!SharedGroup().is_main()) return;
  std::vector<std::string> of_two;
  for (int rank = 0; rank < kSavedBy; ++rank) {
    at::manual_seed(70 + rank);
    of_two.push_back(Draw());
  }
  if (IsAsSaved()) {
    EXPECT_EQ(all, of_two);
    return;
  }
  std::set<std::string> different(all.begin(), all.end());
  different.insert(of_two.begin(), of_two.end());
  EXPECT_THAT(different, SizeIs(all.size() + of_two.size()));
}

TEST(TrainingStateRanksTest, GoingOnOnceMoreGivesTheSameNumbers) {
  const std::string path = WriteSaved();
  EXPECT_EQ(Load(path).numbers, Load(path).numbers);
}

TEST(TrainingStateRanksTest, OneWarningOfTheMainRankSaysThatTheNumbersOfRanksDiffer) {
  const std::string path = WriteSaved();
  const Loaded loaded = Load(path);
  if (IsAsSaved() || !SharedGroup().is_main()) {
    EXPECT_THAT(loaded.warnings, IsEmpty());
    return;
  }
  const int now = SharedGroup().world_size();
  EXPECT_THAT(loaded.warnings,
              ElementsAre(AllOf(HasSubstr(path), HasSubstr("saved by 2 ranks"),
                                HasSubstr(now == 1 ? "1 rank goes on" : absl::StrCat(now, " ranks go on")))));
}

TEST(TrainingStateRanksTest, UnlessItIsAllowedAnotherNumberOfRanksIsRefused) {
  const std::string path = WriteSaved();
  Model model;
  torch::optim::SGD optimizer({model.weight}, 0.75);
  at::manual_seed(999);
  const std::string numbers = Draw();
  at::manual_seed(999);
  const absl::Status status = LoadTrainingState(SharedGroup(), path, model, optimizer).status();
  if (IsAsSaved()) {
    EXPECT_THAT(status, IsOk());
    return;
  }
  EXPECT_THAT(status,
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr(path), HasSubstr(absl::StrCat("has entries of 2 ranks, and this job has ",
                                                                     SharedGroup().world_size())))));
  EXPECT_TRUE(at::equal(model.weight, at::zeros({kWeights})));
  EXPECT_EQ(Draw(), numbers);
}

}  // namespace
}  // namespace cohort
