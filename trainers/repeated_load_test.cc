// Loading a state again and again changes nothing more, and takes no more memory. Runs as 2 ranks; every TEST body is
// collective.

#include <malloc.h>

#include <cstdint>
#include <fstream>
#include <functional>
#include <memory>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "ATen/Context.h"
#include "ATen/core/Tensor.h"
#include "ATen/ops/randn_like.h"
#include "absl/base/config.h"
#include "absl/status/status_matchers.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "cohort/checkpoint/main_only_saver.h"
#include "cohort/checkpoint/state_file.h"
#include "cohort/checkpoint/training_state.h"
#include "cohort/models/linear.h"
#include "cohort/runtime/process_group.h"
#include "cohort/tests/harness/shared_group.h"
#include "cohort/trainers/make_optimizer.h"
#include "gtest/gtest.h"
#include "torch/optim/optimizer.h"

#ifdef ABSL_HAVE_ADDRESS_SANITIZER
#include <sanitizer/allocator_interface.h>
#endif

namespace cohort {
namespace {

using ::cohort::testing::SharedGroup;

constexpr int64_t kTensorBytes = 4 * 100'000;

struct Training {
  Training(std::string_view name, int seed) {
    at::manual_seed(seed);
    model = std::make_unique<Linear>(kTensorBytes / 4, 1);
    optimizer = *MakeOptimizer(name, model->parameters(), {.learning_rate = 0.01, .momentum = 0.5});
  }
  void Step() {
    for (at::Tensor& parameter : model->parameters()) parameter.mutable_grad() = at::randn_like(parameter.detach());
    optimizer->step();
  }

  std::unique_ptr<Linear> model;
  std::unique_ptr<torch::optim::Optimizer> optimizer;
};

std::string Read(const std::string& path) {
  std::ostringstream content;
  content << std::ifstream(path, std::ios::binary).rdbuf();
  return content.str();
}

void Save(const std::string& path, const Training& run, const TrainingState& state, StateFormat format) {
  MainOnlySaver saver(&SharedGroup());
  ABSL_ASSERT_OK(SaveTrainingState(SharedGroup(), saver, path, *run.model, *run.optimizer, state, {.format = format}));
}

// How many more bytes are allocated after `function` was called 20 times more.
int64_t GrowthOf(const std::function<void()>& function) {
  const auto in_use = [] {
#ifdef ABSL_HAVE_ADDRESS_SANITIZER
    return static_cast<int64_t>(__sanitizer_get_current_allocated_bytes());  // the C library's allocator is not used
#else
    const struct mallinfo2 info = mallinfo2();
    return static_cast<int64_t>(info.uordblks + info.hblkhd);
#endif
  };
  for (int i = 0; i < 3; ++i) function();
  const int64_t before = in_use();
  for (int i = 0; i < 20; ++i) function();
  return in_use() - before;
}

TEST(RepeatedLoadTest, ChangesNothingMoreAndTakesNoMoreMemory) {
  for (const std::string_view name : {"sgd", "adam", "adamw", "rmsprop", "adagrad"}) {
    for (const StateFormat format : {StateFormat::kTorch, StateFormat::kSafetensors}) {
      SCOPED_TRACE(absl::StrCat(name, format == StateFormat::kTorch ? " .pt" : " safetensors"));
      const std::string path = absl::StrCat(::testing::TempDir(), "/", name, format == StateFormat::kTorch);
      Training saved(name, 1);
      saved.Step();
      saved.Step();
      Save(path, saved, {.step = 2, .epoch = 1}, format);
      ABSL_ASSERT_OK(SharedGroup().Barrier());

      Training run(name, 2);
      run.Step();
      TrainingState state;
      const int64_t growth = GrowthOf([&] {
        absl::StatusOr<TrainingState> loaded = LoadTrainingState(SharedGroup(), path, *run.model, *run.optimizer);
        ABSL_ASSERT_OK(loaded);
        state = *std::move(loaded);
      });
      EXPECT_LT(growth, kTensorBytes);
      Save(path + ".again", run, state, format);
      ABSL_ASSERT_OK(SharedGroup().Barrier());
      EXPECT_TRUE(Read(path + ".again") == Read(path));
    }
  }
}

TEST(RepeatedLoadTest, TheDetectorSeesOneTensorThatIsKept) {
  Training run("adam", 1);
  std::vector<at::Tensor> kept;
  EXPECT_GE(GrowthOf([&] { kept.push_back(run.model->weight.detach().clone()); }), 20 * kTensorBytes);
}

}  // namespace
}  // namespace cohort
