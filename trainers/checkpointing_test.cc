// What becomes of saves that fail and of runs that go on, with what the trainer would load and write played by strings.

#include "cohort/trainers/checkpointing.h"

#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/status_macros.h"
#include "absl/status/status_matchers.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "cohort/checkpoint/checkpoint_manager.h"
#include "cohort/checkpoint/writable_file.h"
#include "cohort/runtime/process_group.h"
#include "cohort/runtime/testing/thread_group.h"
#include "cohort/trainers/resume_from.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort {
namespace {

namespace fs = std::filesystem;
using ::absl_testing::IsOk;
using ::absl_testing::StatusIs;
using ::cohort::testing::RunRanks;
using ::cohort::testing::ThreadGroup;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Kind = ResumeFrom::Kind;

std::string Read(std::string_view path) {
  std::ostringstream content;
  content << std::ifstream(std::string(path), std::ios::binary).rdbuf();
  return content.str();
}

Checkpointing::Payload Writes(std::string text) {
  return [text](WritableFile& file) { return file.Append(text); };
}

class CheckpointingTest : public ::testing::Test {
 protected:
  CheckpointingTest() {
    const char* name = ::testing::UnitTest::GetInstance()->current_test_info()->name();
    directory_ = (fs::path(::testing::TempDir()) / name).lexically_normal();
    fs::remove_all(directory_);
  }

  absl::StatusOr<std::unique_ptr<Checkpointing>> Open(ProcessGroup& group, bool stop_if_save_fails = false) {
    CheckpointingOptions options{.manager = {.directory = directory_}, .stop_if_save_fails = stop_if_save_fails};
    options.manager.on_warning = [this](std::string_view warning) {
      const absl::MutexLock lock(mutex_);
      warnings_.emplace_back(warning);
    };
    return Checkpointing::Open(&group, std::move(options));
  }

  // Two ranks, each of which gets what is open and must return OK.
  void OnTwoRanks(const std::function<absl::Status(Checkpointing&)>& body, bool stop_if_save_fails = false) {
    EXPECT_THAT(RunRanks(2,
                         [&](ProcessGroup& group) -> absl::Status {
                           ABSL_ASSIGN_OR_RETURN(const auto open, Open(group, stop_if_save_fails));
                           return body(*open);
                         }),
                Each(IsOk()));
  }

  std::string directory_;
  absl::Mutex mutex_;
  std::vector<std::string> warnings_;
};

TEST_F(CheckpointingTest, ASaveThatFailsIsAWarningOfOneRankAndTheNextOneIsMade) {
  OnTwoRanks([&](Checkpointing& open) -> absl::Status {
    const auto fails = [](WritableFile&) { return absl::ResourceExhaustedError("the disk is full"); };
    EXPECT_THAT(open.last_outcome(), IsOk());
    ABSL_ASSIGN_OR_RETURN(auto saved, open.Save({.step = 1}, "state.pt", Checkpointing::Payload(fails)));
    EXPECT_FALSE(saved.has_value());
    EXPECT_THAT(open.last_outcome(), StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("the disk is full")));
    ABSL_ASSIGN_OR_RETURN(const auto exported, open.Export("model.pth", fails));
    EXPECT_FALSE(exported.has_value());
    EXPECT_EQ(open.num_failures(), 2);

    ABSL_ASSIGN_OR_RETURN(saved, open.Save({.step = 2}, "state.pt", Writes("two")));
    EXPECT_TRUE(saved.has_value());
    EXPECT_THAT(open.last_outcome(), StatusIs(absl::StatusCode::kResourceExhausted)) << "of the export";
    ABSL_RETURN_IF_ERROR(open.Export("model.pth", Writes("model")).status());
    EXPECT_THAT(open.last_outcome(), IsOk());
    EXPECT_EQ(open.num_failures(), 2);
    return absl::OkStatus();
  });
  EXPECT_THAT(warnings_,
              ElementsAre(AllOf(HasSubstr("the save of step 1 failed: rank 0: "),
                                HasSubstr("the disk is full; failed so far: 1")),
                          AllOf(HasSubstr("the save of model.pth failed: rank 0: "), HasSubstr("failed so far: 2"))));
  EXPECT_EQ(Read(directory_ + "/step_00000002/state.pt"), "two");
  EXPECT_EQ(Read(directory_ + "/model.pth"), "model");
  EXPECT_FALSE(fs::exists(directory_ + "/step_00000001"));
}

TEST_F(CheckpointingTest, AStateThatCannotBeGatheredIsASaveThatFails) {
  OnTwoRanks([&](Checkpointing& open) -> absl::Status {
    ABSL_ASSIGN_OR_RETURN(const auto saved,
                          open.Save({.step = 1}, "state.pt", absl::InternalError("rank 1: no state")));
    EXPECT_FALSE(saved.has_value());
    EXPECT_THAT(open.last_outcome(), StatusIs(absl::StatusCode::kInternal, "rank 1: no state"));
    return absl::OkStatus();
  });
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr("the save of step 1 failed: rank 1: no state; ")));
}

TEST_F(CheckpointingTest, IfSavesMustNotFailTheErrorIsTheCallers) {
  OnTwoRanks(
      [&](Checkpointing& open) -> absl::Status {
        const auto fails = [](WritableFile&) { return absl::ResourceExhaustedError("the disk is full"); };
        EXPECT_THAT(open.Save({.step = 1}, "state.pt", Checkpointing::Payload(fails)),
                    StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("the disk is full")));
        EXPECT_THAT(open.Export("model.pth", fails), StatusIs(absl::StatusCode::kResourceExhausted));
        return absl::OkStatus();
      },
      /*stop_if_save_fails=*/true);
  EXPECT_THAT(warnings_, IsEmpty());
}

TEST_F(CheckpointingTest, ARankThatDiesInASaveIsNoWarning) {
  ThreadGroup threads(2);
  const std::vector<absl::Status> outcomes = threads.Run([&](ProcessGroup& group) -> absl::Status {
    ABSL_ASSIGN_OR_RETURN(const auto open, Open(group));
    if (!group.is_main()) threads.Die(group);
    return open->Save({.step = 1}, "state.pt", Writes("one")).status();
  });
  EXPECT_THAT(outcomes, ElementsAre(StatusIs(absl::StatusCode::kUnavailable, HasSubstr("rank 1")),
                                    StatusIs(absl::StatusCode::kCancelled)));
  EXPECT_THAT(warnings_, IsEmpty());
}

TEST_F(CheckpointingTest, GoesOnFromTheNewestOrTheStepThatIsAskedForOrNothing) {
  const auto resume = [&](Checkpointing& open, const ResumeFrom& from, std::string& loaded) {
    return open.Resume(from, [&](std::string_view path) {
      loaded = Read(path);
      return absl::OkStatus();
    });
  };
  OnTwoRanks([&](Checkpointing& open) -> absl::Status {
    std::string loaded;
    ABSL_ASSIGN_OR_RETURN(const auto from, resume(open, {}, loaded));
    EXPECT_EQ(from, std::nullopt);
    ABSL_RETURN_IF_ERROR(open.Save({.step = 1}, "state.pt", Writes("one")).status());
    return open.Save({.step = 2}, "state.safetensors", Writes("two")).status();
  });
  OnTwoRanks([&](Checkpointing& open) -> absl::Status {
    std::string loaded;
    ABSL_ASSIGN_OR_RETURN(auto from, resume(open, {.kind = Kind::kNone}, loaded));
    EXPECT_EQ(from, std::nullopt);
    EXPECT_EQ(loaded, "");
    ABSL_ASSIGN_OR_RETURN(from, resume(open, {.kind = Kind::kAuto}, loaded));
    EXPECT_EQ(from, directory_ + "/step_00000002");
    EXPECT_EQ(loaded, "two");
    ABSL_ASSIGN_OR_RETURN(from, resume(open, {.kind = Kind::kStep, .step = 1}, loaded));
    EXPECT_EQ(from, directory_ + "/step_00000001");
    EXPECT_EQ(loaded, "one");
    EXPECT_THAT(resume(open, {.kind = Kind::kStep, .step = 5}, loaded), StatusIs(absl::StatusCode::kNotFound));
    return absl::OkStatus();
  });
}

TEST_F(CheckpointingTest, IfEveryCheckpointIsDamagedItDoesNotBeginByItself) {
  OnTwoRanks([&](Checkpointing& open) { return open.Save({.step = 1}, "state.pt", Writes("one")).status(); });
  std::ofstream(directory_ + "/step_00000001/state.pt") << "two";
  OnTwoRanks([&](Checkpointing& open) -> absl::Status {
    const auto load = [&](std::string_view path) {
      return Read(path) == "one" ? absl::OkStatus() : absl::DataLossError("a checksum differs");
    };
    EXPECT_THAT(open.Resume({}, load),
                StatusIs(absl::StatusCode::kDataLoss, AllOf(HasSubstr(directory_), HasSubstr("is damaged"))));
    return absl::OkStatus();
  });
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr("step 1")));
}

TEST_F(CheckpointingTest, ACheckpointOfAnotherProgramIsNotLoaded) {
  OnTwoRanks([&](Checkpointing& open) { return open.Save({.step = 1}, "weights.bin", Writes("one")).status(); });
  OnTwoRanks([&](Checkpointing& open) -> absl::Status {
    EXPECT_THAT(open.Resume({}, [](std::string_view) { return absl::OkStatus(); }),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("neither state.pt nor state.safetensors")));
    return absl::OkStatus();
  });
}

// A job that saves there removes it between the moments when it is chosen and when it is opened.
TEST_F(CheckpointingTest, APathWhoseCheckpointGoesMeanwhileLeadsToTheNextOne) {
  for (const char* step : {"/step_1", "/step_2"}) {
    fs::create_directories(directory_ + step);
    std::ofstream(directory_ + step + "/manifest.json") << "x";
    std::ofstream(directory_ + step + "/state.pt") << step;
  }
  fs::create_directory_symlink("step_1", directory_ + "/latest");
  EXPECT_THAT(RunRanks(2,
                       [&](ProcessGroup& group) -> absl::Status {
                         const auto load = [&](std::string_view path) -> absl::Status {
                           if (path.find("step_1") == std::string_view::npos) return absl::OkStatus();
                           if (group.is_main()) {
                             fs::remove(directory_ + "/latest");
                             fs::create_directory_symlink("step_2", directory_ + "/latest");
                             fs::remove_all(directory_ + "/step_1");
                           }
                           return group.Agree("loaded", absl::NotFoundError("it is gone"));
                         };
                         EXPECT_THAT(Checkpointing::LoadFrom(group, directory_ + "/latest", load),
                                     absl_testing::IsOkAndHolds(directory_ + "/step_2/state.pt"));
                         int num_loads = 0;
                         const auto never = [&](std::string_view) {
                           ++num_loads;
                           return absl::NotFoundError("it is gone");
                         };
                         EXPECT_THAT(Checkpointing::LoadFrom(group, directory_ + "/step_2", never),
                                     StatusIs(absl::StatusCode::kNotFound, "it is gone"));
                         EXPECT_EQ(num_loads, 2);
                         return absl::OkStatus();
                       }),
              Each(IsOk()));
}

TEST_F(CheckpointingTest, APathIsTheMainRanksAndMayNotBeThere) {
  fs::create_directories(directory_);
  std::ofstream(directory_ + "/any.pt") << "any";
  EXPECT_THAT(RunRanks(2,
                       [&](ProcessGroup& group) -> absl::Status {
                         const auto load = [&](std::string_view path) {
                           EXPECT_EQ(Read(path), "any");
                           return absl::OkStatus();
                         };
                         const auto from = Checkpointing::LoadFrom(group, directory_ + "/any.pt", load);
                         EXPECT_THAT(from, absl_testing::IsOkAndHolds(directory_ + "/any.pt"));
                         return Checkpointing::LoadFrom(group, directory_ + "/else.pt", load).status();
                       }),
              Each(StatusIs(absl::StatusCode::kNotFound, HasSubstr("rank 0: \""))));
}

}  // namespace
}  // namespace cohort
